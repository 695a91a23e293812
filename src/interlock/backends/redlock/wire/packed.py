"""One request, encoded once for all nodes of a quorum."""

from __future__ import annotations

from typing import TypeAlias

from interlock.backends.redis.wire.packing import millis
from interlock.backends.redis.wire.resp import bulk
from interlock.backends.redis.wire.scripts import Call
from interlock.backends.redlock.wire.requests import Release, Vote

RUN_ID_LENGTH = 40

Identity: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""What a connection knows of its node, in four forms: nothing; its run id, encoded; the same, and whether the
node is durable; its run id as it is, or nothing if that has not the usual length.
"""


class Packed:
    """One encoded request; only the node's identity, which its connection knows, is missing."""

    __slots__ = ("_call", "crossed", "head", "identity_form", "lasting", "request", "sent", "tail")

    def __init__(
        self,
        call: Call,
        body: bytes,
        identity_form: int,
        tail: bytes = b"",
        request: Vote | Release | None = None,
    ) -> None:
        self._call = call
        self.head = call.by_hash + body
        # Which form of the node's identity follows the head.
        self.identity_form = identity_form
        self.tail = tail  # what follows the identity
        self.sent = 0.0  # when; set by the transport
        # A release that was not sent on the connections of its vote: a node may read it first.
        self.crossed = False
        self.request = request  # the vote or release that must be reported if no reply comes
        # Must be carried out even if nobody waits for it any more.
        self.lasting = request.__class__ is Release

    def by_hash(self, identity: Identity, node: int) -> bytes:
        return self.head + identity[self.identity_form] + self.tail

    def with_source(self, identity: Identity, node: int) -> bytes:
        """The request with the script itself, for a node that does not know it."""
        return self._call.with_source + self.by_hash(identity, node)[len(self._call.by_hash) :]


class PackedVote(Packed):
    """A vote. Each node is sent its own seat, if the vote may name it."""

    __slots__ = ()

    def by_hash(self, identity: Identity, node: int) -> bytes:
        assert isinstance(self.request, Vote)
        seats = self.request.seats
        seat = seats[node] if seats and identity[3] else None
        return self.head + (identity[1] if seat is None else bulk(identity[3] + seat)) + self.tail


TTLS: dict[float, bytes] = {}
"""Encoded by `encoded_ttl` before."""


def encoded_ttl(ttl: float) -> bytes:
    """The ttl, encoded; most claims of a program share a few, so these are kept."""
    found = TTLS.get(ttl)
    if found is None:
        if len(TTLS) > 1000:
            TTLS.clear()
        found = TTLS[ttl] = bulk(millis(ttl))
    return found
