"""What is asked of the nodes, and the seam between the algorithm and the ways to ask them.

Requests are records; only the panels of real servers know bytes. A reply is a list that begins with the node's clock
in microseconds; the heads of the scripts say what follows. The clock alone is a plain yes: a vote was accepted, a
release met its claim. `testing.redlock_node` is the same in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeAlias

from interlock.errors import InterlockError
from interlock.model import Claim, Standing
from interlock.record import record

TOO_LOW, BUSY, EVICTED, MISMATCH, NO_VOTE = 2, 0, -1, -2, -9
"""What a vote that was not accepted answers, after the clock. BUSY: how many are ahead, ms until what is in the way lapses, and
the oldest holder, as `Panel.standing` reads it."""

RENEWED, GONE, STRAY = 1, 0, 2
"""What a renewal answers for one claim; an operator's words mean that it was evicted."""


@record
class Vote:
    """Enter the claim, and accept the ballot as its number. -> us, or [us, TOO_LOW...NO_VOTE, ...]"""

    claim: Claim
    ballot: int
    fill: bool = False  # a majority holds it already under this number: only enter it here, too


@record
class Prolong:
    """One claim to renew, with the token its holder has (0: whatever it stands with)."""

    resource: str
    id: str
    ttl: float
    note: str | None
    permits: int | None
    token: int


@record
class Renew:
    """Push the lapses of many claims away. -> [us, 1, answer, ...] or [us, NO_VOTE, whether it is certain]"""

    items: tuple[Prolong, ...]


@record
class Release:
    """Remove a claim. -> us, or [us, 0] if it did not stand; `upto`: not if a later ballot than this entered it (0: any)."""

    resource: str
    id: str
    linger: float = 0.0
    upto: int = 0


@record
class Inspect:
    """-> [us, 1 or NO_VOTE, capacity, (Standing, ...)]; with a limit only so many of them, those with the lowest tokens."""

    resource: str
    limit: int | None = None


@record
class Evict:
    """-> [us, 1 or NO_VOTE, (Standing, ...)]; an id of None means every holder.

    A node answers `ForeignKey` if another program's key stands there that it may not remove.
    """

    resource: str
    id: str | None
    reason: str
    foreign: bool = False  # also a string that another program wrote
    no_expiry: bool = False  # and also if it has no expiry


@record
class Scan:
    """One step over the names on a node, beginning with the cursor ''. -> [us, cursor, (name, ...)]; '' at the end."""

    prefix: str
    cursor: str


@record
class CheckIn:
    """-> [us, run, since ms, top, longest ms, floor, fields, run now, durable]; `look` changes nothing."""

    look: bool = False


@record
class Admit:
    """Give a node its vote. -> [us, 1 or 0]"""

    since: int  # ms, as it was seen: a node that lost its memory again is not meant
    quarantine: int  # ms that must have passed since then, by the node's clock
    floor: int  # it accepts no number up to this
    unused: bool = False  # only if it never accepted one


FOR_EVER = float("inf")

Request: TypeAlias = Vote | Renew | Release | Inspect | Evict | Scan | CheckIn | Admit
Reply: TypeAlias = "list[Any] | InterlockError"  # of a vote or a release also an int
Unread: TypeAlias = Callable[[int, "Vote | Release"], None]
Hear: TypeAlias = Callable[[int, Reply, float, float], bool]


class Limits:
    """Wait `timeout` seconds, or up to `longest` for as long as fewer than `least` nodes have answered. An error is no answer.

    Where fewer than `least` have a connection, that is waited for first, for up to `connecting` seconds. `total` bounds both:
    without it connecting takes its time beside the request. `hurried`: the caller has less time than a request usually gets;
    one round trip is waited for all the same, because not waiting for a lock is not the same as not waiting for the network.
    """

    __slots__ = ("connecting", "hurried", "least", "longest", "timeout", "total")

    def __init__(
        self,
        timeout: float,
        longest: float,
        least: int,
        connecting: float | None = None,
        total: float = FOR_EVER,
        hurried: bool = False,
    ) -> None:
        self.timeout, self.longest, self.least = timeout, max(longest, timeout), least
        self.connecting = self.longest if connecting is None else connecting
        self.total, self.hurried = total, hurried

    def patience(self, took: float) -> float:
        """Seconds for which all are waited for, when the first `least` of them took so long: far away all are late alike."""
        return min(self.longest, max(self.timeout, 2 * took))

    def after(self, connecting: float, had: int, round_trip: float) -> Limits:
        """What is left for the request itself after so many seconds of connecting, to nodes that are so far away.

        `had`: so many nodes had a connection before. Where those were enough, the others are waited for in the request's own
        time: a call that need not connect must be back when it promised.
        """
        longest = self.longest - connecting if had >= self.least else self.longest
        longest = max(0.001, min(longest, self.total - connecting))
        if self.hurried:
            longest = max(longest, 2 * round_trip)
        return Limits(min(self.timeout, longest), longest, self.least)


class Panel(Protocol):
    """The nodes, and one way to ask them."""

    unread: Unread
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
        hear: Hear,
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


def nothing(node: int, request: Vote | Release) -> None:
    """For panels whose owner has not said yet what to do about requests that were not read."""
