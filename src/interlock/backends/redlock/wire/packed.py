"""One request, encoded once for all nodes of a quorum."""

from __future__ import annotations

from typing import NamedTuple

from interlock.backends.redis.wire.packing import millis
from interlock.backends.redis.wire.resp import bulk
from interlock.backends.redis.wire.scripts import Call
from interlock.backends.redlock.wire.requests import Release, Vote

RUN_ID_LENGTH = 40


class NodeIdentity(NamedTuple):
    """What a connection knows of its node, as the requests on it say it."""

    run: bytes = b""
    """The run id of its process, encoded."""
    run_and_durability: bytes = b""
    """The same, and whether the node is durable."""
    run_id: bytes = b""
    """The run id as it is; empty if it has not the usual length."""


class Packed:
    """One encoded request that does not depend on the node."""

    __slots__ = ("_call", "_head", "lasting", "request", "sent", "sent_on_other_set")

    def __init__(self, call: Call, body: bytes, request: Vote | Release | None = None) -> None:
        self._call = call
        self._head = call.by_hash + body
        self.sent = 0.0  # when; set by the transport
        # A release that was not sent on the connections of its vote: a node may read it first.
        self.sent_on_other_set = False
        self.request = request  # the vote or release that must be reported if no reply comes
        # Must be carried out even if nobody waits for it any more.
        self.lasting = request.__class__ is Release

    def by_hash(self, identity: NodeIdentity, node: int) -> bytes:
        """The request for one node; its script is named by its hash."""
        return self._head

    def with_source(self, identity: NodeIdentity, node: int) -> bytes:
        """The request with the script itself, for a node that does not know it."""
        return self._call.with_source + self.by_hash(identity, node)[len(self._call.by_hash) :]


class PackedForRun(Packed):
    """A request that names the run id of the node, between the head and the tail."""

    __slots__ = ("_tail",)

    def __init__(
        self, call: Call, body: bytes, tail: bytes = b"", request: Vote | Release | None = None
    ) -> None:
        super().__init__(call, body, request)
        self._tail = tail

    def by_hash(self, identity: NodeIdentity, node: int) -> bytes:
        return self._head + identity.run + self._tail


class PackedCheckIn(PackedForRun):
    """A request that names the run id of the node, and whether the node is durable."""

    __slots__ = ()

    def by_hash(self, identity: NodeIdentity, node: int) -> bytes:
        return self._head + identity.run_and_durability + self._tail


class PackedVote(PackedForRun):
    """A vote. Each node is sent its own seat, if the vote may name it."""

    __slots__ = ()

    def by_hash(self, identity: NodeIdentity, node: int) -> bytes:
        assert isinstance(self.request, Vote)
        seats = self.request.seats
        seat = seats[node] if seats and identity.run_id else None
        return self._head + (identity.run if seat is None else bulk(identity.run_id + seat)) + self._tail


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
