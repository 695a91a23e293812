"""Deliberate bugs in the quorum's algorithm and in its nodes, and where each must be noticed.

Not here, because no judge would mind: a failed attempt that is released only where it was granted. What is left then costs
others a node until it lapses, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interlock._support.record import replaced
from interlock.backends.redlock.algorithm import beginning, claims, membership, recovery, renewals
from interlock.backends.redlock.algorithm.beginning import NodeState, Step
from interlock.backends.redlock.wire.requests import (
    TOO_LOW,
    Release,
    Renew,
    RenewalItem,
    Request,
    Vote,
)
from interlock.lab.model import beginnings
from interlock.testing.redlock_node import NodeMemory, StandingClaim
from tests.redlock.simulation.mutant import Mutant, Patch


def _less_than_a_majority() -> list[Patch]:
    init = membership.Membership.__init__

    def fewer(self: membership.Membership, places: list[str]) -> None:
        init(self, places)
        self.majority -= 1

    return [(membership.Membership, "__init__", fewer)]


def _no_second_round() -> list[Patch]:
    on_reply = claims.Votes.on_reply

    def believing(self: claims.Votes, place: int, reply: Any, sent: float, received: float) -> bool:
        if isinstance(reply, list) and reply[1] == TOO_LOW:
            reply = b"%d" % reply[0]
        return on_reply(self, place, reply, sent, received)

    return [(claims.Votes, "on_reply", believing)]


def _no_marker() -> list[Patch]:
    return [(NodeMemory, "votes", property(lambda self: True))]


def _no_quarantine() -> list[Patch]:
    checkin = NodeMemory.checkin

    def at_once(self: NodeMemory, request: Any) -> list[Any]:
        """Its quarantine began long ago."""
        known = self.quorum.get("since")
        checkin(self, request)
        if self.quorum.get("since") not in (None, known):
            self.quorum["since"] -= 3_600_000
        return checkin(self, request)

    return [(NodeMemory, "checkin", at_once)]


def _no_floor() -> list[Patch]:
    admit = NodeMemory.admit

    def bare(self: NodeMemory, request: Any) -> list[Any]:
        return admit(self, replaced(request, floor=0))

    return [(NodeMemory, "admit", bare)]


def _ids_per_client() -> list[Patch]:
    answer = NodeMemory.answer

    def shared(id: str) -> str:
        return id.partition("-")[0]

    def known_by_client(self: NodeMemory, request: Request, node: int = 0) -> Any:
        if isinstance(request, Vote):
            request = replaced(request, claim=replaced(request.claim, id=shared(request.claim.id)))
        elif isinstance(request, Renew):
            request = Renew(tuple(replaced(item, id=shared(item.id)) for item in request.items))
        elif isinstance(request, Release):
            request = replaced(request, id=shared(request.id))
        return answer(self, request, node)

    return [(NodeMemory, "answer", known_by_client)]


def _late_release() -> list[Patch]:
    release = NodeMemory.release

    def whatever(self: NodeMemory, request: Release) -> int | list[Any]:
        return release(self, replaced(request, upto=0))

    return [(NodeMemory, "release", whatever)]


def _leftovers_count() -> list[Patch]:
    prolong = NodeMemory._prolong

    def any_token(self: NodeMemory, item: RenewalItem, now: int) -> int | str:
        return prolong(self, replaced(item, token=0), now)

    return [(NodeMemory, "_prolong", any_token)]


def _minority_renews() -> list[Patch]:
    verdict = renewals._verdict

    async def lenient(quorum: Any, *rest: Any) -> Any:
        members = quorum.members
        majority, members.majority = members.majority, 1
        try:
            return await verdict(quorum, *rest)
        finally:
            members.majority = majority

    return [(renewals, "_verdict", lenient)]


def _no_clock_watch() -> list[Patch]:
    counts = membership.Membership.counts

    def trusting(self: membership.Membership, *heard: Any) -> bool:
        counts(self, *heard)
        return True

    return [(membership.Membership, "counts", trusting)]


def _whoever_set_it() -> list[Patch]:
    vote = NodeMemory.vote

    def again(self: NodeMemory, request: Vote, seat: Any = None) -> Any:
        if request.ballot == self.numbers.get(request.claim.resource):
            self.numbers[request.claim.resource] -= 1
        return vote(self, request, seat)

    return [(NodeMemory, "vote", again)]


def _endless_rounds() -> list[Patch]:
    return [(claims, "ROUND_TIMEOUT_S", 3600.0)]


def _short_rest() -> list[Patch]:
    return [(recovery, "RESTED", 0)]


def _own_ttl_only() -> list[Patch]:
    judged = membership.Membership.settle_jump

    def selfish(self: membership.Membership, place: int, longest: float) -> None:
        judged(self, place, 0.0)

    return [(membership.Membership, "settle_jump", selfish)]


TOKENS = frozenset({"N1", "N2", "N3"})
BOTH = TOKENS | {"E", "N9"}


def _late_votes_tell_nothing() -> list[Patch]:
    def unheard(self: membership.Membership, *late: object) -> None:
        """The clock of a node that votes after a majority is not looked at."""

    return [(membership.Membership, "on_late_vote", unheard)]


def _votes_make_numbers() -> list[Patch]:
    usual = NodeMemory.usual

    def made(self: NodeMemory, request: Vote, seat: Any) -> bool:
        """ZADD without XX: where there is no number there is one now."""
        name = request.claim.resource
        if name in self.numbers or self._live(name, now := self._clock()):
            return usual(self, request, seat)
        self.claims[name] = {request.claim.id: StandingClaim(request.claim, request.ballot, now)}
        self.numbers[name] = request.ballot
        return True

    return [(NodeMemory, "usual", made)]


def _numbers_of_any_seat() -> list[Patch]:
    def whichever(self: NodeMemory, name: str, seat: Any) -> bool:
        """The seat is not in the name of a number."""
        return name in self.numbers

    return [(NodeMemory, "has_number", whichever)]


def _numbers_outlive_their_seat() -> list[Patch]:
    checkin = NodeMemory.checkin

    def kept(self: NodeMemory, request: Any) -> list[Any]:
        """A node that comes back keeps its numbers, and their names do not say which process made them."""
        numbers = self.numbers
        said = checkin(self, request)
        self.numbers = numbers
        return said

    return [*_numbers_of_any_seat(), (NodeMemory, "checkin", kept)]


def _begin_at_once() -> list[Patch]:
    def at_once(states: Sequence[NodeState], floor: int = 0) -> dict[int, Step]:
        """A node that accepted no number is taken for new."""
        return {} if any(state.top for state in states) else beginnings.at_once(states)

    return [(recovery, "next_steps", at_once)]


def _begin_in_two_steps() -> list[Patch]:
    def two(states: Sequence[NodeState], floor: int = 0) -> dict[int, Step]:
        return beginnings.in_two_steps(states)

    return [(recovery, "next_steps", two)]


def _nobody_is_told_that_others_have_begun() -> list[Patch]:
    next_steps = beginning.next_steps

    def untold(states: Sequence[NodeState], floor: int = 0) -> dict[int, Step]:
        steps = next_steps(states, floor)
        return {node: step for node, step in steps.items() if step.start}

    return [(recovery, "next_steps", untold)]


MUTANTS = [
    Mutant(
        "nodes begin at once",
        "two hold the lock: a majority forgot it, and the others have their votes and no number",
        _begin_at_once,
        BOTH,
        schedule="a majority forgets before the others have voted once",
    ),
    Mutant(
        "nodes begin in two steps",
        "two hold the lock: a majority forgot it, and the others do not know that anything has begun",
        _begin_in_two_steps,
        BOTH,
        schedule="a majority forgets that began without the others",
    ),
    Mutant(
        "nobody is told",
        "two hold the lock: a majority forgot it, and the others had forgotten before",
        _nobody_is_told_that_others_have_begun,
        BOTH,
        schedule="a majority forgets while the others are in quarantine",
    ),
    Mutant(
        "votes make numbers",
        "a node that lost its memory grants what others hold",
        _votes_make_numbers,
        BOTH,
        schedule="a usual vote meets a node that has just forgotten",
    ),
    Mutant(
        "numbers outlive their seat",
        "a node comes back with old numbers, and a usual vote raises one of them",
        _numbers_outlive_their_seat,
        TOKENS,
        schedule="a usual vote meets numbers that were rolled back",
    ),
    Mutant(
        "ttl of an earlier seat",
        "a node that forgets waits for a shorter ttl than that of a usual vote",
        _numbers_of_any_seat,
        BOTH,
        schedule="a usual vote meets nodes that began anew",
    ),
    Mutant(
        "less than a majority", "two minorities grant at once", _less_than_a_majority, BOTH, weather="calm"
    ),
    Mutant(
        "no second round",
        "a client whose clock is behind gets a lower token",
        _no_second_round,
        TOKENS,
        weather="calm",
    ),
    Mutant(
        "no marker",
        "a node that lost its memory grants what others hold",
        _no_marker,
        BOTH,
        weather="forgetting",
    ),
    Mutant(
        "no run id",
        "a node comes back with old numbers and gives them again",
        _no_marker,
        TOKENS,
        schedule="a node restarts with old numbers",
    ),
    Mutant(
        "no quarantine",
        "a node votes again while what it forgot is held",
        _no_quarantine,
        BOTH,
        weather="forgetting",
    ),
    Mutant(
        "no floor",
        "a node that forgot accepts a number below a granted one",
        _no_floor,
        TOKENS,
        schedule="a node forgets the highest number",
    ),
    Mutant(
        "ids per client",
        "two threads of one process hold one lock",
        _ids_per_client,
        BOTH,
        weather="calm",
        workers=2,
    ),
    Mutant(
        "late release",
        "the release of a try that failed ends the next",
        _late_release,
        BOTH,
        schedule="a release of the first try meets the second",
    ),
    Mutant(
        "leftovers count",
        "a renewal counts what a late release will end",
        _leftovers_count,
        BOTH,
        schedule="a renewal meets what the first try left",
    ),
    Mutant(
        "a minority renews",
        "a holder goes on though a majority forgot it",
        _minority_renews,
        BOTH,
        weather="cut",
        scenario="long",
    ),
    Mutant(
        "no clock watch",
        "a node whose clock jumped lets the next in",
        _no_clock_watch,
        BOTH,
        weather="leaping",
    ),
    Mutant(
        "whoever set it",
        "a node accepts one number of two attempts",
        _whoever_set_it,
        TOKENS,
        schedule="two clients think of one number",
    ),
    Mutant(
        "rounds may last",
        "a client that was stopped believes what a node has forgotten since",
        _endless_rounds,
        BOTH,
        schedule="a stopped client hears what was said before a node forgot",
    ),
    Mutant(
        "no rest",
        "a node votes again while a round that counts what it forgot is under way",
        _short_rest,
        BOTH,
        schedule="a node forgets while a round that counts it is under way",
    ),
    Mutant(
        "own ttl only",
        "a clock that jumped counts again while others hold what lapsed there",
        _own_ttl_only,
        BOTH,
        schedule="a clock leaps under a lease longer than others know",
    ),
    Mutant(
        "late votes tell nothing",
        "a client that never read a node's clock counts it after it has jumped",
        _late_votes_tell_nothing,
        BOTH,
        schedule="a clock leaps under a lease longer than others know",
    ),
]
