"""Deliberate bugs in the quorum's algorithm and in its nodes, and where each must be noticed.

Not here, because no judge would mind: a failed attempt that is released only where it was granted. What is left then costs
others a node until it lapses, and nothing else.
"""

from __future__ import annotations

from typing import Any

from interlock.backends.redlock.algorithm import claiming, membership, recovery, renewing
from interlock.backends.redlock.wire.requests import (
    TOO_LOW,
    UNDECIDED,
    Release,
    Renew,
    RenewalItem,
    Request,
    Vote,
)
from interlock.record import replaced
from interlock.testing.redlock_node import NodeMemory
from tests.redlock.simulation.mutant import Mutant, Patch


def _less_than_a_majority() -> list[Patch]:
    init = membership.Membership.__init__

    def fewer(self: membership.Membership, places: list[str]) -> None:
        init(self, places)
        self.majority -= 1

    return [(membership.Membership, "__init__", fewer)]


def _no_second_round() -> list[Patch]:
    on_reply = claiming.Votes.on_reply

    def believing(self: claiming.Votes, place: int, reply: Any, sent: float, received: float) -> bool:
        if isinstance(reply, list) and reply[1] == TOO_LOW:
            reply = b"%d" % reply[0]
        return on_reply(self, place, reply, sent, received)

    return [(claiming.Votes, "on_reply", believing)]


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
    verdict = renewing._verdict

    async def lenient(quorum: Any, *rest: Any) -> Any:
        members = quorum.members
        majority, members.majority = members.majority, 1
        try:
            return await verdict(quorum, *rest)
        finally:
            members.majority = majority

    return [(renewing, "_verdict", lenient)]


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
    return [(claiming, "ROUND", 3600.0)]


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


def _quick_votes_make_numbers() -> list[Patch]:
    raised = NodeMemory.raise_number

    def made(self: NodeMemory, request: Vote, seat: Any, entered: bool) -> Any:
        """ZADD without XX: where there is no number there is one now."""
        if request.claim.resource not in self.numbers and entered:
            return b"%d" % self._clock()
        return raised(self, request, seat, entered)

    return [(NodeMemory, "raise_number", made)]


def _numbers_of_any_seat() -> list[Patch]:
    raised = NodeMemory.raise_number

    def whichever(self: NodeMemory, request: Vote, seat: Any, entered: bool) -> Any:
        """The seat is not in the name of a number."""
        vote, own = self.quorum.get("vote"), self.quorum.get("seat", b"")
        self.quorum["vote"] = self.run
        try:
            return raised(self, request, own, entered)
        finally:
            self.quorum["vote"] = vote

    return [(NodeMemory, "raise_number", whichever)]


def _numbers_outlive_their_seat() -> list[Patch]:
    checkin = NodeMemory.checkin

    def kept(self: NodeMemory, request: Any) -> list[Any]:
        """A node that comes back keeps its numbers, and their names do not say which process made them."""
        numbers = self.numbers
        said = checkin(self, request)
        self.numbers = numbers
        return said

    return [*_numbers_of_any_seat(), (NodeMemory, "checkin", kept)]


def _undecided_counts() -> list[Patch]:
    on_reply = claiming.Votes.on_reply

    def believing(self: claiming.Votes, place: int, reply: Any, sent: float, received: float) -> bool:
        if isinstance(reply, list) and reply[1:] == [UNDECIDED, 1]:
            reply = b"%d" % reply[0]
        return on_reply(self, place, reply, sent, received)

    return [(claiming.Votes, "on_reply", believing)]


MUTANTS = [
    Mutant(
        "quick votes make numbers",
        "a node that lost its memory grants what others hold",
        _quick_votes_make_numbers,
        BOTH,
        schedule="a quick vote meets a node that has just forgotten",
    ),
    Mutant(
        "numbers outlive their seat",
        "a node comes back with old numbers, and a quick vote raises one of them",
        _numbers_outlive_their_seat,
        TOKENS,
        schedule="a quick vote meets numbers that were rolled back",
    ),
    Mutant(
        "ttl of an earlier seat",
        "a node that forgets waits for a shorter ttl than that of a quick vote",
        _numbers_of_any_seat,
        BOTH,
        schedule="a quick vote meets nodes that began anew",
    ),
    Mutant(
        "undecided counts",
        "a quick vote with too low a ballot is granted",
        _undecided_counts,
        TOKENS,
        weather="calm",
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
