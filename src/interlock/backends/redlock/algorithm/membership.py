"""What one client knows of its nodes, and of what it holds there; shared by its blocking and its asyncio side."""

from __future__ import annotations

from collections.abc import Iterable

from interlock.backends.redlock.algorithm.clock import DRIFT, ClockWatch
from interlock.backends.redlock.wire.requests import Release
from interlock.model import Claim
from interlock.record import record

MAX_PENDING_RELEASES = 1000  # releases kept for a node that is away; the oldest lapse by themselves
FARTHEST = 2**52  # us, in the year 2112: scripts tell numbers apart up to twice that, whatever a clock says
SWEPT = 256  # claims remembered before the first look for those that have lapsed


@record
class Held:
    """A claim that a majority granted: what it takes to enter it on a node that misses it."""

    claim: Claim
    token: int
    until: float  # when it has lapsed unless it is renewed


class Membership:
    """Which nodes are here, which have a vote, whose clock is steady."""

    def __init__(self, places: list[str]) -> None:
        self.places = places
        self.size = len(places)
        self.majority = self.size // 2 + 1
        self.everyone = tuple(range(self.size))
        self.present = self.everyone  # whose answers are waited for
        self.away: frozenset[int] = frozenset()
        self.faults: dict[int, str] = {}  # what is wrong with those that are away
        self.non_voting: frozenset[int] = frozenset()  # without a vote
        self.clocks = [ClockWatch() for _ in places]
        self.jumped: dict[
            int, float
        ] = {}  # whose clock jumped and when: how long it is distrusted is not known yet
        self.longest = 0.0  # the longest ttl asked for
        self.highest = 0  # the highest number seen, or proposed
        self.granted = 0  # the highest that a majority gave us
        self.held: dict[str, Held] = {}
        self.missed_votes: dict[int, bool] = {}  # nodes that may have missed a vote
        self.pending_releases: dict[
            tuple[int, str], tuple[Release, float]
        ] = {}  # by node and id, until when it matters
        self._sweep_at = SWEPT

    @property
    def unhealthy(self) -> bool:
        """Whether somebody is away, has no vote, a clock that jumped, or missed something: somebody must look after them."""
        return bool(self.away or self.non_voting or self.jumped or self.pending_releases or self.missed_votes)

    @property
    def able(self) -> bool:
        """Whether a majority is here and has its vote."""
        return self.size - len(self.away | self.non_voting) >= self.majority

    def mark_away(self, nodes: Iterable[int]) -> None:
        """These do not answer: nobody waits for them, unless too few are left."""
        self._present(self.away.union(nodes))

    def mark_present(self, node: int) -> None:
        self.faults.pop(node, None)
        self._present(self.away - {node})

    def _present(self, away: frozenset[int]) -> None:
        self.away = away
        here = tuple([node for node in self.everyone if node not in away])
        # Fewer than a majority: without those that are away nothing can be decided, so all are waited for.
        self.present = here if len(here) >= self.majority else self.everyone

    def mark_non_voting(self, node: int) -> None:
        self.non_voting = self.non_voting | {node}

    def mark_voting(self, node: int) -> None:
        self.non_voting = self.non_voting - {node}

    def counts(self, node: int, clock: int, sent: float, received: float) -> bool:
        """Whether the node's answer counts: its clock has run as ours for as long as anything may be held."""
        watch = self.clocks[node]
        jumped = watch.observe(clock, sent, received)
        if jumped:
            self.jumped[node] = received
            _say_jumped(self.places[node], jumped)
        return received >= watch.distrusted_until and not (self.jumped and node in self.jumped)

    def settle_jump(self, node: int, longest: float) -> None:
        """The node has told its longest ttl: until that has passed, others may hold what lapsed there too early."""
        jumped = self.jumped.pop(node, None)
        if jumped is not None:
            self.clocks[node].distrust(jumped + max(longest, self.longest) * (1 + DRIFT))

    def steady(self, node: int, now: float) -> bool:
        return node not in self.jumped and self.clocks[node].steady(now)

    def add_pending_release(self, node: int, release: Release, now: float) -> None:
        """Remember what a node could not be told, or may not have read: a leftover there would cost others a node."""
        self.pending_releases[node, release.id] = (release, now + self.longest)
        while len(self.pending_releases) > MAX_PENDING_RELEASES * self.size:
            try:
                self.pending_releases.pop(next(iter(self.pending_releases)), None)
            except RuntimeError:
                continue  # another thread has changed it between the two steps

    def pending_releases_of(self, node: int) -> list[tuple[int, str]]:
        """Under what the releases stand that a node has not been told."""
        return [key for key in list(self.pending_releases) if key[0] == node]

    def take_missed_votes(self) -> set[int]:
        """Those that may have missed a vote, since this was last asked."""
        return {node for node in self.everyone if self.missed_votes.pop(node, False)}

    def note_ttl(self, ttl: float) -> None:
        if ttl > self.longest:
            self.longest = ttl

    def ballot(self, wall: int) -> int:
        """A number above every one seen, and not below the clock."""
        self.highest = number = max(self.highest + 1, min(wall, FARTHEST))
        return number

    def note_number(self, number: int) -> None:
        if number > self.highest:
            self.highest = number

    def hold(self, claim: Claim, token: int, now: float) -> None:
        self.held[claim.id] = Held(claim, token, now + claim.ttl)
        if token > self.granted:
            self.granted = token
        if len(self.held) > self._sweep_at:  # what its holder lost and never released
            for id, held in list(self.held.items()):
                if held.until < now:
                    self.held.pop(id, None)
            self._sweep_at = max(SWEPT, 2 * len(self.held))


def _say_jumped(place: str, jumped: float) -> None:
    import logging  # here, not above: `import interlock` stays light

    logging.getLogger("interlock").warning(
        "%s: its clock jumped by %+.3f s; it does not count for the longest ttl it has granted", place, jumped
    )
