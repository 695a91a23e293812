"""The seam between the algorithm and the ways to ask the nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from interlock.backends.redlock.transport.patience import Limits
from interlock.backends.redlock.wire.requests import OnReply, OnUnacknowledged, Release, Request, Vote
from interlock.errors import InterlockError
from interlock.model import Standing


class QuorumTransport(Protocol):
    """The nodes, and one way to ask them."""

    on_unacknowledged: OnUnacknowledged
    """Called with a vote or a release that a node was not sent, or whose connection broke before the answer. Each of them is
    answered in the end, or comes here: nobody need wait for it."""

    @property
    def places(self) -> Sequence[str]:
        """What each node is called in messages."""
        ...

    async def ask(
        self,
        request: Request,
        to: Collection[int],
        awaited: Collection[int],
        on_reply: OnReply,
        limits: Limits,
    ) -> list[int]:
        """Send the request to the nodes `to`, all at once, and hear the replies of those `awaited`.

        `hear(node, reply, sent, received)` is called for each reply that comes in time, with an error in place of a
        reply from a node that cannot be asked or refused; it says True when it has heard enough. Waits as long as
        `limits` say. Answers which of the awaited could not be reached, broke off, or kept silent. Replies that come later are
        nobody's: they are dropped, and never waited for. Connects only to nodes that are awaited, which are among `to`: to all
        of them at once; attempts that take longer than this request waits go on, for the next.
        """
        ...

    def standing(self, busy: list[Any]) -> Standing | None:
        """The oldest holder that a node named when it refused a vote: read only where somebody wants to know."""
        ...

    def prepare(self) -> None:
        """Begin to connect to nodes that have no connection, without waiting for it."""
        ...

    def connected(self) -> dict[int, InterlockError | None]:
        """The nodes that have a connection (None), and those that could not be connected to, with the reason."""
        ...

    def inside(self) -> bool:
        """Whether the calling thread stands inside a critical section of this panel."""
        ...

    def round_trip(self, least: int) -> float:
        """Seconds within which the nearest `least` nodes answered when they were connected to; 0.0 if that is not known."""
        ...

    def after_fork(self) -> None: ...
    async def close(self) -> None: ...


def ignore_unacknowledged(node: int, request: Vote | Release) -> None:
    """For panels whose owner has not said yet what to do about requests that were not read."""
