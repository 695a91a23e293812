"""Which keys a resource has on the server. All of one resource's are in one slot of a Cluster.

The holder's key is the resource's own name, after the prefix: other programs lock the same name there. Its
companions hash to the same slot, and hold a control character, so that no resource's name can be theirs.
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import cache

from interlock.backends.redis.wire.resp import bulk

REMEMBERED_NAMES = 4096  # whose keys are kept ready
SLOTS = 16384
LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"


class Keys:
    """From names to keys, ready for the wire, under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix.encode()
        self._holder_keys: dict[str, bytes] = {}
        self._claim_keys: dict[str, bytes] = {}
        self._claim_keys_and_counter: dict[str, bytes] = {}
        self._token_counter = bulk(self.prefix + b"\x1ftoken")

    def claim_keys(self, resource: str) -> bytes:
        """Holder, records, waiters and lapses, encoded one after the other."""
        found = self._claim_keys.get(resource)
        if found is None:
            holder = self.holder(resource)
            others = b"".join([bulk(companion(holder, letter)) for letter in (b"w", b"e")])
            found = _remember(self._claim_keys, resource, self.holder_keys(resource) + others)
        return found

    def holder_keys(self, resource: str) -> bytes:
        """Holder and records, encoded one after the other."""
        found = self._holder_keys.get(resource)
        if found is None:
            holder = self.holder(resource)
            found = _remember(self._holder_keys, resource, bulk(holder) + bulk(companion(holder, b"h")))
        return found

    def claim_keys_and_counter(self, resource: str) -> bytes:
        """The four, and the counter of tokens."""
        found = self._claim_keys_and_counter.get(resource)
        if found is None:
            found = _remember(
                self._claim_keys_and_counter,
                resource,
                self.claim_keys(resource) + self.token_counter(resource),
            )
        return found

    def token_counter(self, resource: str) -> bytes:
        """The counter of tokens, encoded: one for the whole server."""
        return self._token_counter

    def holder(self, resource: str) -> bytes:
        return self.prefix + resource.encode()

    def register(self, name: str) -> bytes:
        return self.prefix + b"\x1fregister\x1f" + name.encode()

    def register_keys(self, name: str) -> bytes:
        """A register and the counter that its versions come from, encoded one after the other."""
        return bulk(self.register(name)) + self._token_counter

    def resource(self, key: bytes) -> str | None:
        """The name whose holder's key, records or waiters this is; None for anybody else's key."""
        if key.endswith((b"\x1fh", b"\x1fw")):
            key = key[:-2]
            if key.endswith(b"}\x1f"):
                key = key[1:-2]
            elif b"}\x1f=" in key:
                key = key.partition(b"}\x1f=")[2]
        if not key.startswith(self.prefix) or b"\x1f" in key.removesuffix(b"\x1fwaiters"):
            return None
        try:
            return key[len(self.prefix) :].decode()
        except UnicodeDecodeError:
            return None


class ClusterKeys(Keys):
    """The keys on a Cluster: there each slot in use has a counter of its own, since a script stays in one slot."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix)
        self._counters: dict[int, bytes] = {}  # 16384 at most

    def token_counter(self, resource: str) -> bytes:
        return self._counter(slot(self.holder(resource)))

    def register_keys(self, name: str) -> bytes:
        key = self.register(name)
        return bulk(key) + self._counter(slot(key))

    def tagged(self, resource: str) -> bytes:
        """A text that is in the slot of a resource, and has it all in its tag: one for each slot."""
        return b"{" + _tag_of(slot(self.holder(resource))) + b"}"

    def _counter(self, number: int) -> bytes:
        found = self._counters.get(number)
        if found is None:
            tagged = b"{" + _tag_of(number) + b"}"
            key = self.prefix + b"\x1ftoken" + tagged
            if slot(key) != number:  # a { of the prefix is in the way
                key = tagged + b"\x1f=" + self.prefix + b"\x1ftoken"
            found = self._counters[number] = bulk(key)
        return found


def _remember(kept: dict[str, bytes], resource: str, encoded: bytes) -> bytes:
    """What was encoded, kept for the next time; names that come and go do not fill the memory."""
    if len(kept) >= REMEMBERED_NAMES:
        kept.clear()
    kept[resource] = encoded
    return encoded


def companion(holder: bytes, letter: bytes) -> bytes:
    """The key beside the holder's: distinct for distinct holders and letters, and in the same slot."""
    if tag(holder) is not None:
        return holder + b"\x1f" + letter
    if b"}" not in holder:
        return b"{" + holder + b"}\x1f\x1f" + letter
    return b"{" + _tag_of(slot(holder)) + b"}\x1f=" + holder + b"\x1f" + letter


def tag(key: bytes) -> bytes | None:
    """The part of a key between the first { and the next }, which alone is hashed, if it is not empty."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    return key[start + 1 : end] if start >= 0 and end > start + 1 else None


def slot(key: bytes) -> int:
    hashed = tag(key)
    return crc_hqx(key if hashed is None else hashed, 0) % SLOTS


@cache
def _tag_of(number: int) -> bytes:
    """Four characters that hash to this slot, the same in every program: for what cannot be its own tag.

    The hash of a text is that of its first half, moved on, combined bit by bit with that of the second: so a second half is
    looked up for each first. Trying texts until one fits takes a thousand times as long, in the midst of a claim.
    """
    ends = _ends()
    for start in ends.values():
        moved = crc_hqx(start + b"\0\0", 0)
        for high in range(0, 4 * SLOTS, SLOTS):  # the slot is what is left below them
            end = ends.get(moved ^ (number + high))
            if end is not None:
                return start + end
    raise AssertionError(f"no tag for slot {number}")  # there is one for each: a test has tried them all


@cache
def _ends() -> dict[int, bytes]:
    pairs = [bytes((one, other)) for one in LETTERS for other in LETTERS]
    return {crc_hqx(pair, 0): pair for pair in pairs}
