"""The keys of a resource on the server. All keys of one resource are in one slot of a Cluster.

The holder's key is the resource's own name after the prefix, so that other programs lock the same name there.
The companion keys hash to the same slot, and contain a control character, so that no resource can have their
name.
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import cache

from interlock.backends.redis.wire.resp import bulk

MAX_NAMES_CACHED = 4096  # names whose encoded keys are cached
SLOTS = 16384
LETTERS = b"0123456789abcdefghijklmnopqrstuvwxyz"


class Keys:
    """Turns names into encoded keys under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix.encode()
        # What was encoded before, by resource: the quick paths look here first, and ask the methods for the
        # rest.
        self.of_claims: dict[str, bytes] = {}  # claim_keys_and_counter
        self.of_releases: dict[str, bytes] = {}  # claim_keys
        self.of_votes: dict[str, bytes] = {}  # holder_keys
        self.of_quorum_releases: dict[str, bytes] = {}  # waiters_keys
        self._token_counter = bulk(self.prefix + b"\x1ftoken")

    def claim_keys(self, resource: str) -> bytes:
        """The keys of holder, records, waiters and lapses, encoded one after the other."""
        found = self.of_releases.get(resource)
        if found is None:
            holder = self.holder(resource)
            others = b"".join([bulk(companion(holder, letter)) for letter in (b"w", b"e")])
            found = _remember(self.of_releases, resource, self.holder_keys(resource) + others)
        return found

    def holder_keys(self, resource: str) -> bytes:
        """The keys of holder and records, encoded one after the other."""
        found = self.of_votes.get(resource)
        if found is None:
            holder = self.holder(resource)
            found = _remember(self.of_votes, resource, bulk(holder) + bulk(companion(holder, b"h")))
        return found

    def waiters_keys(self, resource: str) -> bytes:
        """The keys of holder and waiters, encoded one after the other."""
        found = self.of_quorum_releases.get(resource)
        if found is None:
            holder = self.holder(resource)
            found = _remember(self.of_quorum_releases, resource, bulk(holder) + bulk(companion(holder, b"w")))
        return found

    def claim_keys_and_counter(self, resource: str) -> bytes:
        """The keys of a claim and the counter of tokens, encoded one after the other."""
        found = self.of_claims.get(resource)
        if found is None:
            found = _remember(
                self.of_claims,
                resource,
                self.claim_keys(resource) + self.token_counter(resource),
            )
        return found

    def token_counter(self, resource: str) -> bytes:
        """The key of the counter of tokens, encoded; one for the whole server."""
        return self._token_counter

    def holder(self, resource: str) -> bytes:
        return self.prefix + resource.encode()

    def register(self, name: str) -> bytes:
        return self.prefix + b"\x1fregister\x1f" + name.encode()

    def register_keys(self, name: str) -> bytes:
        """The keys of a register and of the counter for its versions, encoded one after the other."""
        return bulk(self.register(name)) + self._token_counter

    def resource(self, key: bytes) -> str | None:
        """The resource whose holder, records or waiters this key has; None for any other key."""
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
    """The keys on a Cluster, where each slot in use has a counter of its own, since a script cannot leave
    its slot.
    """

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix)
        self._counters: dict[int, bytes] = {}  # 16384 at most

    def token_counter(self, resource: str) -> bytes:
        return self._counter(slot(self.holder(resource)))

    def register_keys(self, name: str) -> bytes:
        key = self.register(name)
        return bulk(key) + self._counter(slot(key))

    def tagged(self, resource: str) -> bytes:
        """A hash tag for the slot of a resource, the same for all resources of that slot."""
        return b"{" + _tag_of(slot(self.holder(resource))) + b"}"

    def _counter(self, number: int) -> bytes:
        found = self._counters.get(number)
        if found is None:
            tagged = b"{" + _tag_of(number) + b"}"
            key = self.prefix + b"\x1ftoken" + tagged
            if slot(key) != number:  # the prefix contains a {
                key = tagged + b"\x1f=" + self.prefix + b"\x1ftoken"
            found = self._counters[number] = bulk(key)
        return found


def _remember(kept: dict[str, bytes], resource: str, encoded: bytes) -> bytes:
    """Cache encoded keys for the next time.

    The cache is bounded, so names that come and go do not fill the memory.
    """
    if len(kept) >= MAX_NAMES_CACHED:
        kept.clear()
    kept[resource] = encoded
    return encoded


def companion(holder: bytes, letter: bytes) -> bytes:
    """A companion key: in the holder's slot, and distinct for distinct holders and letters."""
    if tag(holder) is not None:
        return holder + b"\x1f" + letter
    if b"}" not in holder:
        return b"{" + holder + b"}\x1f\x1f" + letter
    return b"{" + _tag_of(slot(holder)) + b"}\x1f=" + holder + b"\x1f" + letter


def tag(key: bytes) -> bytes | None:
    """The part of a key between the first { and the next }. If it is not empty, only this part is hashed."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    return key[start + 1 : end] if start >= 0 and end > start + 1 else None


def slot(key: bytes) -> int:
    hashed = tag(key)
    return crc_hqx(key if hashed is None else hashed, 0) % SLOTS


@cache
def _tag_of(number: int) -> bytes:
    """Four characters that hash to this slot, the same in every program, for keys that cannot be their own
    tag.

    CRC16 is linear: the hash of a text is the hash of its first half, shifted, xor the hash of its second
    half. So for each first half a fitting second half is looked up. Trial and error would take a thousand
    times as long during a claim.
    """
    ends = _ends()
    for start in ends.values():
        moved = crc_hqx(start + b"\0\0", 0)
        for high in range(0, 4 * SLOTS, SLOTS):  # the slot is the hash modulo SLOTS
            end = ends.get(moved ^ (number + high))
            if end is not None:
                return start + end
    raise AssertionError(f"no tag for slot {number}")  # a test has found one for every slot


@cache
def _ends() -> dict[int, bytes]:
    pairs = [bytes((one, other)) for one in LETTERS for other in LETTERS]
    return {crc_hqx(pair, 0): pair for pair in pairs}
