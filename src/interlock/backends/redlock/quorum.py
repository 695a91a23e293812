"""Asking the nodes: whom to wait for, and for how long. Who does not answer is looked after apart from the caller."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from interlock.backends.redlock.algorithm.membership import Membership
from interlock.backends.redlock.transport.interface import Panel
from interlock.backends.redlock.transport.patience import Limits
from interlock.backends.redlock.wire.requests import Hear, Release, Request, Vote
from interlock.errors import InterlockError, StoreUnavailable, StoreUnfit
from interlock.ports import CONNECT_TIMEOUT, IO_TIMEOUT

if TYPE_CHECKING:
    from interlock.backends.redlock.algorithm.recovery import Mending

ROUND = 2.0
"""Seconds within which a round must be over to count, for every client alike. A node that forgot what it said waits longer
than this before the others are asked what they know: by then they know of every grant that counted it."""

STRETCH = 10  # times a node's timeout are waited for while fewer than a majority have answered


class Quorum:
    """The nodes of one client, in one colour."""

    mending: Mending

    def __init__(
        self,
        panel: Panel,
        members: Membership,
        now: Callable[[], float],
        wall: Callable[[], int],
        node_timeout: float,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        self.panel = panel
        panel.unread = self._unread
        self.members = members
        self.now = now
        self.wall = wall  # microseconds, for ballots only: a wrong clock costs a second round, nothing else
        self.node_timeout = node_timeout
        self.longest = min(ROUND, STRETCH * node_timeout)
        self.connect_timeout = connect_timeout
        self._usual = Limits(node_timeout, self.longest, members.majority, connect_timeout)
        self._within = Limits(node_timeout, self.longest, members.majority, connect_timeout, IO_TIMEOUT)

    @property
    def usual(self) -> float:
        """Seconds within which nodes that are well answer: `node_timeout`, or more if they are far away."""
        return max(self.node_timeout, min(self.longest, 2 * self.panel.round_trip(self.members.majority)))

    def within(self, timeout: float) -> Limits:
        """For requests that must be over after `timeout` seconds, connecting and all."""
        if timeout == IO_TIMEOUT:
            return self._within
        longest, least = min(timeout, self.longest), self.members.majority
        return Limits(min(timeout, self.node_timeout), longest, least, self.connect_timeout, timeout)

    def once_connected(self, timeout: float) -> Limits:
        """For requests whose caller does not count the time it takes to connect, and one round trip, among its seconds."""
        if timeout >= self.longest:
            return self._usual
        least = self.members.majority
        return Limits(min(timeout, self.node_timeout), timeout, least, self.connect_timeout, hurried=True)

    async def ask(
        self, request: Request, hear: Hear, limits: Limits, to: Collection[int] | None = None
    ) -> None:
        """Send to all nodes, or to some, and hear those that are not away."""
        members = self.members
        if to is None:
            quiet = await self.panel.ask(request, members.everyone, members.present, hear, limits)
        else:
            awaited = [node for node in members.present if node in to]
            quiet = await self.panel.ask(request, to, awaited, hear, limits)
        if quiet and limits.longest >= self.usual:  # or it was the caller who had no time to hear them
            members.left(quiet)
        if members.ailing:
            self._told(request, members.everyone if to is None else to)
            self.mending.begin()

    async def tell(self, request: Request, to: Collection[int]) -> None:
        """Send to some nodes and do not wait for what they say."""
        if to:
            await self.panel.ask(request, to, (), unheard, self._usual)
            self._told(request, to)

    def _told(self, request: Request, to: Collection[int]) -> None:
        """Have those that are away hear of a release again when they are back: one that hangs reads its connections in any
        order, and may meet the release on one before the vote on another."""
        if isinstance(request, Release):
            for node in self.members.away.intersection(to):
                self._unread(node, request)

    async def pay(self, node: int, patience: float) -> None:
        """Tell a node that is back of the releases it missed; it has this long for each."""
        members, limits = self.members, Limits(patience, patience, 1)
        for key in members.owed_to(node):
            owed = members.owed.pop(key, None)  # before it is told: what is owed anew meanwhile must stay
            if owed is None or owed[1] <= self.now():
                continue
            quiet = [node]
            try:
                quiet = await self.panel.ask(owed[0], (node,), (node,), unheard, limits)
            finally:  # interrupted, too
                if node in quiet:
                    members.owed.setdefault(key, owed)
            if node in quiet:
                members.left((node,))
                return  # gone again: to wait as long for each of the rest would keep the other nodes waiting

    def _unread(self, node: int, request: Vote | Release) -> None:
        if isinstance(request, Release):
            self.members.owe(node, request, self.now())
        else:
            self.members.missing[node] = True
        self.mending.begin()

    def too_few(self, doing: str, said: dict[int, str | InterlockError]) -> InterlockError:
        """The error for who needed a majority, naming what each node said."""
        members = self.members
        alike: dict[str, list[str]] = {}  # who says the same says it once
        for node, place in enumerate(members.places):
            told = said.get(node)
            if told is None:
                told = members.faults.get(node, "no answer" if node in members.away else "not waited for")
            short = str(told).removeprefix(place).lstrip(": ")
            alike.setdefault(short, []).append(place.removeprefix("Redis at "))
        words = [f"Redis at {', '.join(places)}: {short}" for short, places in alike.items()]
        errors = [told for told in said.values() if isinstance(told, InterlockError)]
        kind = StoreUnfit if errors and all(isinstance(e, StoreUnfit) for e in errors) else StoreUnavailable
        text = f"{doing} needs {members.majority} of {members.size} nodes ({'; '.join(words)})"
        if sum(told == QUARANTINED for told in said.values()) > members.size - members.majority:
            text += (
                "; new servers begin as soon as all of them answer. If these were in use before, so many have lost their "
                "memory that only an operator can say when they may begin anew: see `interlock quorum status` and "
                "`interlock quorum init`"
            )
        return kind(text)


QUARANTINED = "no vote: it lost its memory, or is new, and is in quarantine"


def unheard(node: int, reply: object, sent: float, received: float) -> bool:
    """For replies that change nothing."""
    return True
