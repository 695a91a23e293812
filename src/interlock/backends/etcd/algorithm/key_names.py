"""The names of the keys of a client's claims. A key is used again once its claim has left (decision 0029).

etcd keeps each key that ever existed in its index until it is compacted, and whoever asks what stands under a
name passes all of them. So a client does not use a new key for each claim. Its keys consist of a random word
of its own and a number: for each resource, the lowest number that none of its claims uses. They are as many
as its claims have ever been at once.

Nothing is remembered of a resource on which the client has no claim. A key about which a request may still be
under way must not be used again; then the client takes another word, and all its old keys are out of use at
once.
"""

from __future__ import annotations

import secrets
from functools import lru_cache

from interlock._support.record import record
from interlock.backends.etcd.wire.keys import READER, Keys


@record
class KeyName:
    """One key: the word of its client, and the number among the keys of that client for the same resource."""

    resource: str
    word: str
    number: int
    key: bytes
    reader: bool = False


class KeyNames:
    """The keys that are in use. The caller holds a mutex: a key must not be taken twice."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._word = _fresh_word()
        # For each resource and word, readers and others: one bit for each number.
        self._in_use: dict[tuple[str, str, bool], int] = {}

    def take(self, resource: str, *, reader: bool = False) -> KeyName:
        """A key that no other claim of this client uses."""
        word = self._word
        bits = self._in_use.get((resource, word, reader), 0)
        number = (~bits & (bits + 1)).bit_length() - 1  # the lowest bit that is not set
        self._in_use[resource, word, reader] = bits | 1 << number
        return _name(self._keys, resource, word, number, reader)

    def free(self, name: KeyName, *, again: bool) -> None:
        """Its claim has left. Unless nothing can reach the key any more, it is never used `again`."""
        key = name.resource, name.word, name.reader
        bits = self._in_use.get(key, 0) & ~(1 << name.number)
        if bits:
            self._in_use[key] = bits
        else:
            self._in_use.pop(key, None)
        if not again and name.word == self._word:
            self._word = _fresh_word()


@lru_cache(maxsize=1024)
def _name(keys: Keys, resource: str, word: str, number: int, reader: bool) -> KeyName:
    last = f"{READER.decode()}{word}" if reader else word
    key = keys.claim(resource, last if number == 0 else f"{last}-{number}")
    return KeyName(resource, word, number, key, reader)


def _fresh_word() -> str:
    """If two clients had the same one, they would find each other's keys in the way: it need not be
    longer.
    """
    return secrets.token_hex(8)
