"""The interface between the algorithm and the ways to ask the nodes: blocking, asyncio, simulated."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from interlock.backends.redlock.transport.timeouts import Timeouts
from interlock.backends.redlock.wire.requests import (
    OnLateVote,
    OnReply,
    OnUnacknowledged,
    Release,
    Request,
    Vote,
)
from interlock.errors import InterlockError
from interlock.model import Standing


class QuorumTransport(Protocol):
    """One way to ask all nodes."""

    on_unacknowledged: OnUnacknowledged
    """Called with each vote or release that a node was not sent, or whose connection broke before the reply.

    Every vote and release is either answered or passed to this callback, so no caller has to wait for the
    slowest node.
    """

    on_late_vote: OnLateVote
    """Called with each vote whose reply was read when a majority had answered, the reply, and when they were
    sent and read.

    It counts for nothing any more. But a client must know a node's clock before it can see it jump, that a
    node has no vote, and the seat of one that has.
    """

    @property
    def labels(self) -> Sequence[str]:
        """The names of the nodes in messages."""
        ...

    async def ask(
        self,
        request: Request,
        to: Collection[int],
        awaited: Collection[int],
        on_reply: OnReply,
        timeouts: Timeouts,
    ) -> list[int]:
        """Send the request to the nodes `to`, all at once, and wait for the replies of those `awaited`.

        `on_reply(node, reply, sent, received)` is called for each reply that arrives within `timeouts`, and
        with an error in place of a reply if a node cannot be asked or refuses. It returns True once it needs
        no more replies. The result names the awaited nodes that could not be reached, broke the connection,
        or did not answer; later replies are dropped. The nodes `awaited` are among `to`. Only they are
        connected to, all at once; an attempt to connect that takes longer than this request waits goes on for
        the next request.
        """
        ...

    def standing(self, busy: list[Any]) -> Standing | None:
        """The oldest holder that a node named when it refused a vote; decoded only here, because few
        callers need it.
        """
        ...

    def prepare(self) -> None:
        """Begin to connect to nodes that have no connection, without waiting for it."""
        ...

    def connected(self) -> dict[int, InterlockError | None]:
        """The nodes that have a connection (None), and those that could not be connected to, with the
        reason.
        """
        ...

    def inside(self) -> bool:
        """Whether the calling thread is inside a critical section of this transport."""
        ...

    def round_trip(self, least: int) -> float:
        """Seconds within which the nearest `least` nodes answered when they were connected to; 0.0 if that
        is not known.
        """
        ...

    def after_fork(self) -> None: ...
    async def close(self) -> None: ...


def ignore_unacknowledged(node: int, request: Vote | Release) -> None:
    """The callback of a transport that belongs to no quorum yet."""


def ignore_late_vote(node: int, vote: Vote, reply: bytes | list[Any], sent: float, received: float) -> None:
    """The callback of a transport that belongs to no quorum yet."""
