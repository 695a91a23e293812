"""The values of the keys: what a claim says of itself, why a claim is gone, and what a register holds.

A claim's value is a JSON object, readable with `etcdctl get`. A value that is none of ours belongs to another
program that locks under the same key (`etcdctl lock`, Go's `concurrency` package): its key takes the whole
capacity, and has no say in it.
"""

from __future__ import annotations

import json
import math
import time
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from interlock.backends.etcd.wire.messages import KeyValue
from interlock.model import LINGERING, Claim, Standing

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
MAX_CACHED_CHARACTERS = 512  # characters of a note and a holder's name; longer ones are encoded each time


def claim_value(claim: Claim, floor: int) -> bytes:
    """The value that is written for a claim.

    The instant is wall clock, only for people to read: etcd keeps no times.
    """
    note, who = claim.note, claim.who
    long = len(note) + len(who) > MAX_CACHED_CHARACTERS
    make = _rest_of_value.__wrapped__ if long else _rest_of_value
    rest = make(claim.permits, claim.capacity, claim.ttl, note, who, floor)
    id = encode_basestring(claim.id).encode("utf-8", "surrogatepass")
    return b'{"id":%b,%b%.3f}' % (id, rest, time.time())


@lru_cache(maxsize=1024)
def _rest_of_value(permits: int, capacity: int, ttl: float, note: str, who: str, floor: int) -> bytes:
    """The part that the values of all claims of one lock have in common, if they are made at one place of a
    program.
    """
    said: dict[str, Any] = {"permits": permits, "capacity": capacity, "ttl": ttl, "note": note, "who": who}
    if floor:
        said["floor"] = floor
    return encoded(said)[1:-1] + b',"came":'


def encoded(value: dict[str, Any]) -> bytes:
    return _encoder.encode(value).encode("utf-8", "surrogatepass")


def settings(value: bytes) -> dict[str, Any] | None:
    """The settings in the value of a claim; None if the value is not ours."""
    if value[:1] != b"{":
        return None
    try:
        found = json.loads(value.decode("utf-8", "surrogatepass"))
        if _counts(found["permits"], 0) and _counts(found["capacity"], 1) and _sound(found):
            return dict(found)
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        pass
    return None


def _counts(number: object, least: int) -> bool:
    return type(number) is int and number >= least


def _sound(said: dict[str, Any]) -> bool:
    """Whether the numbers are numbers.

    Another program may have written anything, and nobody who reads it may stumble over that.
    """
    if type(said.get("floor", 0)) is not int:
        return False
    times = [said.get(name, 0.0) for name in ("ttl", "came", "admitted")]
    return all(type(one) in (int, float) and math.isfinite(one) for one in times)


class ClaimKey:
    """One key in the queue of a resource."""

    __slots__ = ("capacity", "created", "key", "lease", "modified", "said")

    def __init__(self, kv: KeyValue) -> None:
        self.key = kv.key
        self.created = kv.created  # its place in the queue
        self.modified = kv.modified
        self.lease = kv.lease
        self.said = settings(kv.value)
        self.capacity: int | None = None if self.said is None else self.said["capacity"]

    @property
    def foreign(self) -> bool:
        return self.said is None

    def permits(self, capacity: int) -> int:
        """The permits that it takes; a stranger takes all."""
        return capacity if self.said is None else int(self.said["permits"])

    @property
    def token(self) -> int:
        """The fencing token: the revision of its creation, above the floor that stood then."""
        return self.created + (int(self.said.get("floor", 0)) if self.said is not None else 0)

    @property
    def ttl(self) -> float:
        return 60.0 if self.said is None else float(self.said.get("ttl", 60.0))

    @property
    def id(self) -> str:
        """Its id for an operator. One that only lingers has no owner any more, and another id."""
        if self.said is not None and self.said.get("lingering"):
            return f"{LINGERING}{self.token}"
        return self.claim_id

    @property
    def claim_id(self) -> str:
        """The id of the claim that stands at this key now; a stranger's is the last part of its key."""
        id = None if self.said is None else self.said.get("id")
        return id if isinstance(id, str) else self.key.rsplit(b"/", 1)[-1].decode("utf-8", "replace")

    def standing(self, capacity: int, admitted: bool, lapses_in: float) -> Standing:
        said = self.said or {}
        since = said.get("admitted" if admitted else "came") or said.get("came") or time.time()
        return Standing(
            id=self.id,
            token=self.token,
            permits=self.permits(capacity),
            admitted=admitted,
            age=max(0.0, time.time() - float(since)),
            lapses_in=lapses_in,
            note=str(said.get("note", "")),
            who=str(said.get("who", "")),
            foreign=self.foreign,
        )


# ---- tombstones -------------------------------------------------------------------------

RELEASED = b"released"  # its holder gave it back: a request for it that arrives late must not enter it again
_EVICTED = b"evicted:"


def evicted(reason: str) -> bytes:
    return _EVICTED + reason.encode("utf-8", "surrogatepass")


def eviction(value: bytes) -> str | None:
    """The reason that an operator gave; None if the claim was not evicted."""
    if not value.startswith(_EVICTED):
        return None
    return _text(value[len(_EVICTED) :])


# ---- registers --------------------------------------------------------------------------


def register_value(id: str, value: str | None) -> bytes:
    """The id of the write, and the value; the first byte tells a value from its absence."""
    return (
        (b"-" if value is None else b"=")
        + id.encode()
        + b"\n"
        + (value or "").encode("utf-8", "surrogatepass")
    )


def register_read(stored: bytes) -> tuple[str, str | None]:
    """The id of the write, and the value (None if it was deleted)."""
    head, _, rest = stored.partition(b"\n")
    value = _text(rest) if stored[:1] == b"=" else None
    return head[1:].decode("utf-8", "replace"), value


def _text(data: bytes) -> str:
    """The text that we have written; of a text that others have written, as much as can be read."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")
