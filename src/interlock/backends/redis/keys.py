"""Which keys a resource has on the server. All of one resource's are in one slot of a Cluster.

The holder's key is the resource's own name, after the prefix: other programs lock the same name there. Its
companions hash to the same slot, and hold a control character, so that no resource's name can be theirs.
"""

from __future__ import annotations

from binascii import crc_hqx

from interlock.backends.redis.resp import bulk

REMEMBERED_NAMES = 4096  # whose keys are kept ready

_tags: dict[int, bytes] = {}


class Keys:
    """From names to keys, ready for the wire, under one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix.encode()
        self._four: dict[str, bytes] = {}
        self._last = bulk(self.prefix + b"\x1ftoken")

    def four(self, resource: str) -> bytes:
        """Holder, records, waiters and lapses, encoded one after the other."""
        found = self._four.get(resource)
        if found is None:
            if len(self._four) >= REMEMBERED_NAMES:
                self._four.clear()
            holder = self.holder(resource)
            parts = [holder, *(companion(holder, letter) for letter in (b"h", b"w", b"e"))]
            found = self._four[resource] = b"".join([bulk(part) for part in parts])
        return found

    def last(self, resource: str) -> bytes:
        """The counter of tokens, encoded: one for the whole server."""
        return self._last

    def holder(self, resource: str) -> bytes:
        return self.prefix + resource.encode()

    def register(self, name: str) -> bytes:
        return self.prefix + b"\x1fregister\x1f" + name.encode()

    def resource(self, key: bytes) -> str | None:
        """The name whose holder's key, or hash of records, this is; None for anybody else's key."""
        if key.endswith(b"\x1fh"):
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
    return crc_hqx(key if hashed is None else hashed, 0) % 16384


def _tag_of(number: int) -> bytes:
    """A short tag that hashes to this slot: names with a } that closes nothing cannot be their own tag."""
    if number not in _tags:
        _tags[number] = next(b"%x" % n for n in range(10**6) if crc_hqx(b"%x" % n, 0) % 16384 == number)
    return _tags[number]
