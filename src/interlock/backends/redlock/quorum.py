"""Asking the nodes: which of them a request waits for, and for how long.

A node that does not answer in time is marked as away, and no caller waits for it again. `algorithm.recovery`
brings it back, beside the callers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from interlock.backends.kit.connect_pace import does_not_wait, time_to_reconnect
from interlock.backends.redlock.algorithm.membership import Membership
from interlock.backends.redlock.transport.interface import QuorumTransport
from interlock.backends.redlock.transport.timeouts import FOR_EVER, Timeouts
from interlock.backends.redlock.wire.requests import OnReply, Release, Request, Vote
from interlock.errors import InterlockError, StoreUnavailable, StoreUnfit
from interlock.store import CONNECT_TIMEOUT, IO_TIMEOUT

if TYPE_CHECKING:
    from interlock.backends.redlock.algorithm.recovery import Recovery

ROUND_TIMEOUT_S = 2.0
"""Seconds within which a round must be over to count, for every client alike.

A node that lost its memory waits longer than this before the other nodes are asked what they know: by then
they know of every grant that counted its vote.
"""

CONNECT_ROUND_TRIPS = 4  # round trips that connecting takes: TCP, TLS, and the login
MAX_NODE_TIMEOUTS = 10  # a round waits for this many node timeouts while fewer than a majority have answered


class Quorum:
    """The nodes of one client, over one transport."""

    recovery: Recovery

    def __init__(
        self,
        transport: QuorumTransport,
        members: Membership,
        now: Callable[[], float],
        wall: Callable[[], int],
        node_timeout: float,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        self.transport = transport
        transport.on_unacknowledged = self._unacknowledged
        transport.on_late_vote = members.on_late_vote
        self.members = members
        self.now = now
        self.wall = wall  # microseconds, for ballots only: a wrong clock costs a second round, nothing else
        self.node_timeout = node_timeout
        self.longest = min(ROUND_TIMEOUT_S, MAX_NODE_TIMEOUTS * node_timeout)
        self.connect_timeout = connect_timeout
        self._usual = Timeouts(node_timeout, self.longest, members.majority, connect_timeout)
        self._within = Timeouts(node_timeout, self.longest, members.majority, connect_timeout, IO_TIMEOUT)

    @property
    def usual(self) -> float:
        """Seconds within which healthy nodes answer: `node_timeout`, or more if they are distant."""
        return max(self.node_timeout, min(self.longest, 2 * self.transport.round_trip(self.members.majority)))

    def within(self, timeout: float) -> Timeouts:
        """For requests that must be over after `timeout` seconds, connecting included."""
        if timeout == IO_TIMEOUT:
            return self._within
        longest, least = min(timeout, self.longest), self.members.majority
        return Timeouts(min(timeout, self.node_timeout), longest, least, self.connect_timeout, timeout)

    def once_connected(self, timeout: float) -> Timeouts:
        """For requests whose timeout counts neither the first time that a majority is connected to nor one
        round trip.
        """
        if timeout >= IO_TIMEOUT:
            return self._usual
        least = self.members.majority
        connecting, total, trip = self.connect_timeout, FOR_EVER, self.transport.round_trip(least)
        if trip:  # a majority was connected to before
            connecting = min(connecting, time_to_reconnect(timeout, CONNECT_ROUND_TRIPS * trip))
            if not does_not_wait(timeout):
                total = connecting
        longest, shortened = min(timeout, self.longest), timeout < self.longest
        return Timeouts(min(timeout, self.node_timeout), longest, least, connecting, total, shortened)

    async def ask(
        self, request: Request, on_reply: OnReply, timeouts: Timeouts, to: Collection[int] | None = None
    ) -> None:
        """Send to all nodes, or to some, and wait for those that are not away."""
        members = self.members
        if to is None:
            unanswered = await self.transport.ask(
                request, members.everyone, members.present, on_reply, timeouts
            )
        else:
            awaited = [node for node in members.present if node in to]
            unanswered = await self.transport.ask(request, to, awaited, on_reply, timeouts)
        if unanswered or members.unhealthy:
            self.recover(request, members.everyone if to is None else to, unanswered, timeouts)

    def recover(
        self, request: Request, to: Collection[int], unanswered: list[int], timeouts: Timeouts
    ) -> None:
        """Note which nodes did not answer, what they missed, and let `algorithm.recovery` look after them."""
        members = self.members
        # If the caller had less time than nodes usually need, they are not to blame.
        if unanswered and timeouts.longest >= self.usual:
            members.mark_away(unanswered)
        if members.unhealthy:
            self._remember_missed_release(request, to)
            self.recovery.start()

    async def notify(self, request: Request, to: Collection[int]) -> None:
        """Send to some nodes without waiting for their replies."""
        if to:
            await self.transport.ask(request, to, (), ignore_reply, self._usual)
            self._remember_missed_release(request, to)

    def _remember_missed_release(self, request: Request, to: Collection[int]) -> None:
        """Send a release again to nodes that are away, when they are back.

        A node that comes back from a hang may read its sockets in any order, and so the release before the
        vote.
        """
        if isinstance(request, Release):
            for node in self.members.away.intersection(to):
                self._unacknowledged(node, request)

    async def retry_releases(self, node: int, timeout: float) -> None:
        """Send a node that is back the releases it missed; it has `timeout` seconds for each."""
        members, timeouts = self.members, Timeouts(timeout, timeout, 1)
        for key in members.pending_releases_of(node):
            # Removed before it is sent: a release that becomes pending anew meanwhile must stay.
            pending = members.pending_releases.pop(key, None)
            if pending is None or pending[1] <= self.now():
                continue
            unanswered = [node]
            try:
                unanswered = await self.transport.ask(pending[0], (node,), (node,), ignore_reply, timeouts)
            finally:  # also when the caller is interrupted
                if node in unanswered:
                    members.pending_releases.setdefault(key, pending)
            if node in unanswered:
                members.mark_away((node,))
                return  # it is away again: waiting as long for each of the rest would delay the other nodes

    def _unacknowledged(self, node: int, request: Vote | Release) -> None:
        if isinstance(request, Release):
            self.members.add_pending_release(node, request, self.now())
        else:
            self.members.missed_votes[node] = True
        self.recovery.start()

    def too_few(self, doing: str, said: dict[int, str | InterlockError]) -> InterlockError:
        """The error for a request that needed a majority; it names what each node said."""
        members = self.members
        alike: dict[str, list[str]] = {}  # nodes that gave the same reason are listed together
        for node, label in enumerate(members.labels):
            word = said.get(node)
            if word is None:
                word = members.faults.get(node, "no answer" if node in members.away else "not waited for")
            short = str(word).removeprefix(label).lstrip(": ")
            alike.setdefault(short, []).append(label.removeprefix("Redis at "))
        words = [f"Redis at {', '.join(labels)}: {short}" for short, labels in alike.items()]
        errors = [word for word in said.values() if isinstance(word, InterlockError)]
        kind = StoreUnfit if errors and all(isinstance(e, StoreUnfit) for e in errors) else StoreUnavailable
        text = f"{doing} needs {members.majority} of {members.size} nodes ({'; '.join(words)})"
        if sum(word == QUARANTINED for word in said.values()) > members.size - members.majority:
            text += (
                "; new servers begin as soon as all of them answer. If these were in use before, so many "
                "have lost their memory that only an operator can say when they may begin anew: see "
                "`interlock quorum status` and `interlock quorum init`"
            )
        return kind(text)


QUARANTINED = "no vote: it lost its memory, or is new, and is in quarantine"


def ignore_reply(node: int, reply: object, sent: float, received: float) -> bool:
    """For requests whose replies nobody needs."""
    return True
