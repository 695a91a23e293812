"""What one client knows of its nodes, and what it holds there; its blocking and its asyncio store share
one membership.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from interlock._support.record import record
from interlock.backends.redlock.algorithm.clock import DRIFT_PART, ClockWatch
from interlock.backends.redlock.wire.requests import NO_VOTE, Clock, Release, Seat, Vote
from interlock.errors import StoreUnfit
from interlock.model import Claim

MAX_PENDING_RELEASES = 1000  # for each node that is away; of older ones, the claims lapse by themselves
MAX_NUMBER = 79 * 10**14  # no number is above it: scores, like all numbers of Lua, are exact up to 9e15
# In the year 2112. Whatever a clock says, Lua tells numbers apart only up to twice that.
MAX_CLOCK_US = 2**52
MIN_SWEPT_CLAIMS = 256  # claims remembered before lapsed ones are first swept
CLOCK_KNOWN_S = 0.05  # seconds for which a node's clock need not be looked at again: the next vote does


@record
class Held:
    """A claim that a majority granted, with what is needed to enter it on a node that misses it."""

    claim: Claim
    token: int
    until: float  # when it has lapsed unless it is renewed


class Membership:
    """Which nodes are present, which have a vote, and whose clocks are steady."""

    def __init__(self, labels: list[str]) -> None:
        self.labels = labels
        self.size = len(labels)
        self.majority = self.size // 2 + 1
        self.everyone = tuple(range(self.size))
        self.present = self.everyone  # requests wait for these
        self.away: frozenset[int] = frozenset()
        self.faults: dict[int, str] = {}  # why a node is away
        self.non_voting: frozenset[int] = frozenset()  # nodes without a vote
        self._voted = [float("-inf")] * self.size  # when each node was last seen to have its vote
        self.clocks = [ClockWatch() for _ in labels]
        # When a node's clock jumped. How long it is distrusted is not known until it tells its longest ttl.
        self.jumped: dict[int, float] = {}
        self.longest = 0.0  # the longest ttl asked for
        self.highest = 0  # the highest number seen, or proposed
        self.granted = 0  # the highest that a majority gave us
        self.held: dict[str, Held] = {}
        self.missed_votes: dict[int, bool] = {}  # nodes that may have missed a vote
        self.pending_releases: dict[
            tuple[int, str], tuple[Release, float]
        ] = {}  # by node and id; with the instant when the claim has lapsed anyway
        self._sweep_at = MIN_SWEPT_CLAIMS
        # By node: its seat, and the longest ttl that it is known to remember there.
        self._seats: list[tuple[Seat | None, float]] = [(None, 0.0)] * self.size

    @property
    def unhealthy(self) -> bool:
        """Whether recovery is needed: a node is away, has no vote, missed a request, or its clock jumped."""
        return bool(self.away or self.non_voting or self.jumped or self.pending_releases or self.missed_votes)

    @property
    def able(self) -> bool:
        """Whether a majority is present and has its vote."""
        return self.size - len(self.away | self.non_voting) >= self.majority

    def mark_away(self, nodes: Iterable[int]) -> None:
        """These nodes do not answer: requests no longer wait for them, unless fewer than a majority would
        be left.
        """
        self._present(self.away.union(nodes))

    def mark_present(self, node: int) -> None:
        self.faults.pop(node, None)
        self._present(self.away - {node})

    def _present(self, away: frozenset[int]) -> None:
        self.away = away
        here = tuple([node for node in self.everyone if node not in away])
        # With fewer than a majority nothing can be decided, so requests wait for all nodes.
        self.present = here if len(here) >= self.majority else self.everyone

    def mark_non_voting(self, node: int) -> None:
        self.non_voting = self.non_voting | {node}

    def mark_voting(self, node: int, now: float) -> None:
        self.non_voting = self.non_voting - {node}
        self._voted[node] = now

    # ---- seats --------------------------------------------------------------------------

    def seats_for(self, ttl: float) -> list[Seat | None]:
        """By node: its seat, if it is known and the node is known to remember a ttl as long as this one.

        A node that forgets is readmitted when the longest ttl that the others remember has passed, so all
        must remember ours.
        """
        return [seat if ttl <= noted else None for seat, noted in self._seats]

    def learn_seat(self, node: int, vote: Vote, reply: bytes) -> bytes:
        """Learn the node's seat, and the ttl that it has noted there, from its reply to a vote that it
        accepted; return its clock.
        """
        clock, _, told = reply.partition(b" ")
        if told:
            seat, noted = self._seats[node]
            self._seats[node] = told, max(noted, vote.claim.ttl) if told == seat else vote.claim.ttl
        return clock

    # ---- replies ---------------------------------------------------------------------------

    def on_late_vote(
        self, node: int, vote: Vote, reply: bytes | list[Any], sent: float, received: float
    ) -> None:
        """Learn what a node tells that was asked for its vote, and answered when a majority had voted
        already.
        """
        if isinstance(reply, list):
            if reply[1] == NO_VOTE and sent > self._voted[node]:
                self.mark_non_voting(node)
            clock: Clock = reply[0]
        else:
            clock = self.learn_seat(node, vote, reply)
        if self.clocks[node].seen < sent - CLOCK_KNOWN_S:
            self.counts(node, clock, sent, received)

    def counts(self, node: int, clock: Clock, sent: float, received: float) -> bool:
        """Whether the node's reply counts: its clock has run like ours for as long as any lease may last."""
        watch = self.clocks[node]
        jumped = watch.observe(clock, sent, received)
        if jumped:
            self.jumped[node] = received
            _say_jumped(self.labels[node], jumped)
        return received >= watch.distrusted_until and node not in self.jumped

    def settle_jump(self, node: int, longest: float) -> None:
        """Distrust a node whose clock jumped for the longest ttl it has granted: until then others may
        hold what lapsed too early.
        """
        jumped = self.jumped.pop(node, None)
        if jumped is not None:
            self.clocks[node].distrust(jumped + max(longest, self.longest) * (1 + DRIFT_PART))

    def steady(self, node: int, now: float) -> bool:
        return node not in self.jumped and self.clocks[node].steady(now)

    def add_pending_release(self, node: int, release: Release, now: float) -> None:
        """Remember a release that a node may not have read: a leftover there would cost other clients a
        node.
        """
        self.pending_releases[node, release.id] = (release, now + self.longest)
        while len(self.pending_releases) > MAX_PENDING_RELEASES * self.size:
            try:
                self.pending_releases.pop(next(iter(self.pending_releases)), None)
            except RuntimeError:
                continue  # another thread changed it between the two steps

    def pending_releases_of(self, node: int) -> list[tuple[int, str]]:
        """The keys of the releases that a node has not acknowledged."""
        return [key for key in list(self.pending_releases) if key[0] == node]

    def take_missed_votes(self) -> set[int]:
        """The nodes that may have missed a vote since the last call."""
        return {node for node in self.everyone if self.missed_votes.pop(node, False)}

    def note_ttl(self, ttl: float) -> None:
        if ttl > self.longest:
            self.longest = ttl

    def ballot(self, wall: int) -> int:
        """A number above every number seen, and not below the wall clock; `StoreUnfit` if there is none."""
        number = max(self.highest + 1, min(wall, MAX_CLOCK_US))
        if number > MAX_NUMBER:
            self.highest = 0  # the nodes say it again, unless an operator has deleted it
            raise StoreUnfit(
                "a node of the quorum has accepted a number above 7.9e15, and the next ones could not be "
                "told apart: "
                "delete the key \\x1fquorum, behind the prefix, on all nodes while no lock is held, "
                "which sets tokens "
                "back to the clock, and reset the guards that have seen higher ones"
            )
        self.highest = number
        return number

    def note_number(self, number: int) -> None:
        if number > self.highest:
            self.highest = number

    def hold(self, claim: Claim, token: int, now: float) -> None:
        self.held[claim.id] = Held(claim, token, now + claim.ttl)
        if token > self.granted:
            self.granted = token
        if len(self.held) > self._sweep_at:  # forget claims that were lost and never released
            for id, held in list(self.held.items()):
                if held.until < now:
                    self.held.pop(id, None)
            self._sweep_at = max(MIN_SWEPT_CLAIMS, 2 * len(self.held))


def _say_jumped(label: str, jumped: float) -> None:
    import logging  # here, not above: `import interlock` stays light

    logging.getLogger("interlock").warning(
        "%s: its clock jumped by %+.3f s; it does not count for the longest ttl it has granted", label, jumped
    )
