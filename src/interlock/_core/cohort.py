"""Attempts of one client that want the same lock: one of them asks the store, and they pass the lock on among
themselves.

This is lock cohorting (Dice, Marathe and Shavit, "Lock Cohorting: A General Technique for Designing NUMA
Locks", PPoPP 2012), with a client in the place of a NUMA node and the store in the place of the global lock.

    head     asks the store. Attempts of the same client that come meanwhile stand in line behind it.
    turn     begins with a grant. The attempts in line that began before the store was asked become its heirs;
             the next one in line becomes the new head.
    heir     gets the claim from the holder that releases, with the next of the tokens that were reserved with
             the grant. The store is not asked.

A new head stands by while there are heirs: they came before it. It asks the store when the last of them has
the claim, so all who stand in line by then began before that question and can inherit what it is granted.

An heir's token must not be below a token that was granted, and used, before its attempt began. Three rules
make sure of that, whatever has happened to the claim in the store:

    An attempt that began before the store was asked for the claim cannot have begun after a later grant to
    somebody else.

    So with an attempt that began before the store was asked again, and answered that this claim still
    stood: then no later grant can have been made before. The head asks, and gets such an answer when a
    holder of its own client is in the way. It joins the heirs if the store names that holder's claim as the
    only one ahead (so nobody else is overtaken), and takes those along who stood in line when it asked.

    So with an attempt that began before the store was asked to release the claim ahead, one of our own
    client's, and answered that this had still stood: until then it kept everybody else out.

A head that inherits has left a place in the store's queue. The next head stands there instead of making a new
one (`SharedPlace`), or the place is removed together with the claim. So at most one place of a client stands
behind its claim.

A turn ends after a number of tokens or milliseconds; then the claim goes back to the store, for other
clients. An attempt that has stood behind a head for that long asks the store for itself. So a client with
many waiters overtakes the waiters of other clients by at most two turns: the one that lasts when they come,
and that of the place ahead of theirs. And a lock that is held for long has its queue in the store.

A single assignment decides who has the claim (`Turn.holder`) and who stands in the place
(`SharedPlace.waiter`): code that is interrupted on either side of it looks there.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from interlock._core.removal import release_later
from interlock._core.runtime import BRIEF_S, Signal
from interlock._core.states import State
from interlock._core.timing import PASSED_ON_PART

if TYPE_CHECKING:
    from interlock._core.attempt import Attempt
    from interlock._core.client import Client
    from interlock._core.lease import Lease
    from interlock.model import Busy, Claim

# Tokens of one grant: as many leases, one after the other, before the store is asked again.
TOKENS_PER_GRANT = 16
TURN_S = BRIEF_S  # seconds for which one grant is passed on, and for which a newcomer stands behind the head


class Member:
    """The part of an attempt in its cohort: made when it first meets another attempt of its client."""

    __slots__ = ("ahead", "attempt", "called", "client_held_until", "inherited_by", "shared", "turn")

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.ahead = 0  # attempts and claims ahead when it came
        self.called: Signal | None = None  # while it waits in line: ends that wait
        self.turn: Turn | None = None  # whose heir it is
        self.client_held_until = 0.0  # until then a claim of our own client stood ahead of ours
        self.shared: SharedPlace | None = None  # the place in which it stands, or another attempt did before
        self.inherited_by = ""  # our own `who`, if the claim was made by another attempt

    @property
    def began(self) -> float:
        return self.attempt.began

    @property
    def ttl(self) -> float:
        return self.attempt.claim.ttl

    def waits(self) -> bool:
        """Whether it waits in line, and was not left behind on a loop that was closed."""
        return self.called is not None and self.attempt.runner.alive()

    def call(self) -> None:
        """End its wait in line."""
        if (called := self.called) is not None:
            called.set()


def member_of(attempt: Attempt) -> Member:
    """The part of this attempt in its cohort, from now on. Under the mutex."""
    if (member := attempt.member) is None:
        attempt.member = member = Member(attempt)
    return member


class SharedPlace:
    """The place of a client in the store's queue, behind the client's own claim: one attempt after the
    other stands there.
    """

    __slots__ = ("claim", "over", "waiter")

    def __init__(self, claim: Claim, waiter: Member) -> None:
        self.claim = claim
        # The attempt that stands there; None if the next head may; the turn, if that removes the place at its
        # end.
        self.waiter: Member | Turn | None = waiter
        self.over = False  # it was removed, or has become the claim of a new turn


class Turn:
    """One grant of the store, as it goes from lease to lease within a client.

    The client's mutex protects it.
    """

    __slots__ = ("answered", "began", "heir", "heirs", "holder", "lender", "passes", "place", "token")

    def __init__(self, lease: Lease, heirs: deque[Member]) -> None:
        self.began = lease._counts_from  # before the store was asked
        self.answered = self.began  # the store has answered all that it was asked about the claim up to then
        self.token = lease.token  # the first of its block, by which the store knows the claim
        self.place: SharedPlace | None = None  # behind this claim
        self.passes = lease._claim.block - 1  # how often the claim may still be passed on
        self.heirs = heirs  # the attempts that get it next, in order
        self.heir: Member | None = None  # the one that it was passed on to last
        self.lender = lease  # the lease that has the claim, or had it last
        # The lease that has the claim, or the heir that it is on its way to. See the head of this file.
        self.holder: Lease | Member = lease

    def lasts(self, now: float) -> bool:
        """Whether the claim may be passed on.

        A token must be left, the turn must last, and what is inherited must be no short time. And no renewal
        of the claim is under way: its answer would be told to the lender, which has nothing any more.
        """
        lender = self.lender
        return (
            self.passes > 0
            and lender._last_try <= self.answered
            and now - self.began < TURN_S
            and lender._deadline - now > lender._claim.place_ttl * PASSED_ON_PART
        )

    def free_place(self) -> Claim | None:
        """The place behind this claim, if no attempt stands there; from here on none will.

        Under the mutex.
        """
        place = self.place
        if place is None or place.over or not (place.waiter is None or place.waiter is self):
            return None
        place.waiter = self
        return place.claim


class Cohorts:
    """The cohorts of one client, by resource. Its client's mutex protects them."""

    def __init__(self) -> None:
        self._heads: dict[str, Attempt] = {}
        # The attempts behind each head; none where nobody has waited.
        self._lines: dict[str, deque[Member]] = {}
        self._passing: dict[Member, None] = {}  # heirs that have a claim and no lease yet
        # By resource, the lease with which the last turn began: it may be passed on while it is here.
        self.passable: dict[str, Lease] = {}

    # ---- waiting ------------------------------------------------------------

    def join(self, attempt: Attempt) -> Signal | None:
        """None if the attempt must ask the store; otherwise it stands in line until this signal is set."""
        # One step, which needs no mutex.
        if self._heads.setdefault(attempt.claim.resource, attempt) is attempt:
            if attempt.claim.resource in self.passable:
                if (called := self._stand_by(attempt)) is not None:
                    return called
                self.take_shared_place(attempt)
            return None
        return self._line_up(attempt)

    def _stand_by(self, attempt: Attempt) -> Signal | None:
        """Let a new head wait for its question until the heirs of its own client have had the claim; None
        if there are none.
        """
        client, resource = attempt.client, attempt.claim.resource
        with client.mutex:
            lease = self.passable.get(resource)
            turn = None if lease is None else lease._turn
            if turn is None or not turn.heirs or turn.lender._claim.ttl != attempt.claim.ttl:
                return None
            if client.closed or not turn.lasts(client.runtime.now()):
                return None
            member = member_of(attempt)
            member.ahead = 1 + len(turn.heirs)
            member.called = called = client.runtime.signal()
            return called

    def call_head(self, turn: Turn) -> None:
        """Let the head ask the store, now that no heir is left."""
        head = None if turn.heirs else self._heads.get(turn.lender._claim.resource)
        member = None if head is None else head.member
        if member is not None and member.turn is None:
            member.call()

    def _line_up(self, attempt: Attempt) -> Signal | None:
        client, resource = attempt.client, attempt.claim.resource
        with client.mutex:
            head = self._heads.setdefault(resource, attempt)
            if head is attempt:  # the one before it has gone meanwhile
                return None
            first: Member | None = None
            if not head.runner.alive():  # left behind on a closed loop: the first in line asks the store
                first = first_waiting(self._lines.get(resource))
                self._heads[resource] = head = attempt if first is None else first.attempt
            called: Signal | None = None
            # An heir gets its lender's ttl: an attempt that wants another asks for itself.
            if head is not attempt and head.claim.ttl == attempt.claim.ttl:
                member = member_of(attempt)
                member.called = called = client.runtime.signal()
                line = self._lines.setdefault(resource, deque())
                line.append(member)
                member.ahead = max(1, head.ahead) + len(line)
        if first is not None:
            first.call()
        return called

    def take_shared_place(self, attempt: Attempt) -> None:
        """Let a head that is about to ask the store stand in the place that the head before it has left
        there, if any.
        """
        resource = attempt.claim.resource
        with attempt.client.mutex:
            lease = self.passable.get(resource)
            place = None if lease is None or lease._turn is None else lease._turn.place
            if place is None or place.over or place.waiter is not None:
                return
            if place.claim.ttl == attempt.claim.ttl and self._heads.get(resource) is attempt:
                member = member_of(attempt)
                member.shared = place  # first: an attempt that is interrupted looks there
                place.waiter = member
                member.inherited_by, attempt.claim = attempt.claim.who, place.claim

    def join_heirs(self, attempt: Attempt, busy: Busy) -> Signal | None:
        """Let the head inherit from a holder of its own client: see the head of this file.

        The claim may be passed on to it until this signal is set; None if the store alone decides.
        """
        holder, client, resource = busy.holder, attempt.client, attempt.claim.resource
        if busy.ahead != 1 or holder is None or resource not in self.passable:
            return None
        with client.mutex:
            lease = self.passable.get(resource)
            if lease is None or client.closed or self._heads.get(resource) is not attempt:
                return None
            turn, claim = lease._turn, lease._claim
            stands = holder.id == claim.id and holder.token == lease._stands_as
            if not stands or claim.ttl != attempt.claim.ttl:
                return None
            if turn is None:
                if lease._state is not State.HELD:  # it is being released, and nobody would look for heirs
                    return None
                turn = lease._begin_turn(deque())
            member = member_of(attempt)
            if not turn.lasts(client.runtime.now()) or not self._have_place(turn, member):
                return None
            self._inherit_from(turn, member)
            return member.called

    def _have_place(self, turn: Turn, member: Member) -> bool:
        """Whether the place behind the turn's claim is this attempt's. Under the mutex."""
        place = turn.place
        if place is None or place.over:
            member.shared = turn.place = SharedPlace(member.attempt.claim, member)
            return True
        return place.waiter is member

    def _inherit_from(self, turn: Turn, head: Member) -> None:
        """Make the head an heir, and those who stood in line when it asked. Under the mutex."""
        line = self._lines.get(head.attempt.claim.resource)
        head.called = head.attempt.client.runtime.signal()
        heirs = [head]
        while line and len(heirs) < turn.passes:
            if line[0].began >= head.attempt.asked or line[0].ttl != head.ttl:
                break
            heirs.append(line.popleft())
        for heir in heirs:
            heir.turn = turn
        turn.heirs.extend(heirs)

    def decide(self, member: Member) -> Turn | None:
        """End the wait in line: the turn whose claim the attempt has inherited; None if it must ask the
        store.
        """
        attempt = member.attempt
        with attempt.client.mutex:
            member.called = None
            turn = member.turn
            line = self._lines.get(attempt.claim.resource) if turn is None else turn.heirs
            if line is not None and member in line:
                line.remove(member)
            if turn is not None and turn.holder is not member:  # or the lender was interrupted before that
                turn = member.turn = None
            return turn

    def leave(self, attempt: Attempt) -> None:
        """The attempt asks the store no longer: if it was the head, the next in line is."""
        if (member := attempt.member) is not None:
            self._passing.pop(member, None)
            place = member.shared
            if place is not None and place.waiter is member and not place.over:
                if attempt.claim is not place.claim:  # interrupted between the two: nobody else removes it
                    release_later(attempt.client, place.claim, 0.0, pause=0.0)
                place.over = True
        with attempt.client.mutex:
            if self._heads.get(attempt.claim.resource) is not attempt:
                return
            first = self._advance(attempt.claim.resource)
        if first is not None:
            first.call()

    def _advance(self, resource: str) -> Member | None:
        """Make the next in line the head, if there is one. Under the mutex; the caller calls the new head."""
        line = self._lines.get(resource)
        first = first_waiting(line) if line else None
        if first is None:
            del self._heads[resource]
            self._lines.pop(resource, None)
        else:
            self._heads[resource] = first.attempt
        return first

    # ---- passing on ----------------------------------------------------------

    def begin_turn(self, attempt: Attempt, lease: Lease) -> Member | None:
        """Note that the store has granted this lease.

        Under the mutex; returns the next head, for the caller to call.
        """
        resource = lease._claim.resource
        self.passable[resource] = lease
        before, member = lease._counts_from, attempt.member
        if member is not None:
            before = max(before, member.client_held_until)
            if member.shared is not None:
                member.shared.over = True  # the place is this turn's claim now
        line, leads = self._lines.get(resource), self._heads.get(resource) is attempt
        if line is None:  # nobody has stood behind the head
            if leads:
                del self._heads[resource]
            return None
        heirs: deque[Member] = deque()
        while line and len(heirs) < lease._claim.block - 1:
            if line[0].began >= before or line[0].ttl != lease._claim.ttl:
                break
            heirs.append(line.popleft())
        if heirs:
            turn = lease._begin_turn(heirs)
            for heir in heirs:
                heir.turn = turn
        first = self._advance(resource) if leads else None
        return None if heirs else first  # with heirs it stands by: see `call_head`

    def pass_on(self, lease: Lease, turn: Turn, now: float) -> None:
        """Give the claim of a lease that was let go to the next heir, unless it must go back to the store.

        Under the mutex; the caller wakes the heir (`Turn.heir`).
        """
        turn.lender = lease
        if lease._holding.client.closed or not turn.lasts(now):
            return
        heirs = turn.heirs
        while heirs:
            heir = heirs.popleft()
            if heir.waits():
                turn.passes -= 1
                turn.heir = heir
                self._passing[heir] = None
                turn.holder = heir  # from here on the claim is the heir's, whatever interrupts us
                return

    def lenders(self) -> list[Lease]:
        """The leases whose claims were passed on to heirs that have no lease yet. Under the mutex."""
        return [heir.turn.lender for heir in self._passing if heir.turn is not None]

    def take_place(self, lease: Lease) -> Claim | None:
        """The place that was left behind the claim of this lease, for its last holder to remove."""
        turn = lease._turn
        if turn is None or turn.place is None:
            return None
        with lease._holding.client.mutex:
            return turn.free_place()

    def place_removed(self, lease: Lease) -> None:
        """Note that the store has been asked to remove what `take_place` returned."""
        if lease._turn is not None:
            self._place_removed(lease._turn)

    def stood(self, claim: Claim, until: float) -> None:
        """Note that the store has removed this claim of ours, which still stood: until then it let nobody
        else in.

        So the next head, which stands behind it, may pass its own claim on to all that began before.
        """
        head = self._heads.get(claim.resource)
        if head is not None:
            with head.client.mutex:
                member_of(head).client_held_until = until

    def call_heir(self, lease: Lease) -> None:
        """Wake the heir of a lease that was passed on: the lender may have been interrupted before it did."""
        turn = lease._turn
        if turn is not None and turn.heir is not None:
            turn.heir.call()

    def withhold(self, lease: Lease) -> None:
        """From here on nobody inherits this lease, unless somebody has already: then it was released
        before.
        """
        resource = lease._claim.resource
        with lease._holding.client.mutex:
            turn = lease._turn
            if turn is None:
                # A head that asks the store later would begin one, and inherit: see `join_heirs`.
                if self.passable.get(resource) is lease:
                    del self.passable[resource]
            elif turn.holder is lease:
                turn.passes = 0

    def dissolve(self, lease: Lease) -> None:
        """End the turn, unless the lease was passed on: the heirs that are left go back to the front of
        the line.
        """
        turn = lease._turn
        if turn is not None and turn.holder is lease:
            self._scatter(turn)

    def _scatter(self, turn: Turn) -> None:
        """Put the heirs before those who came later; if nobody asks the store for them, their first one
        does.
        """
        claim, client = turn.lender._claim, turn.lender._holding.client
        with client.mutex:
            left = self._end_passing(turn)
            heirs, turn.heirs = turn.heirs, deque()
            for heir in heirs:
                heir.turn = None
            head, first = self._heads.get(claim.resource), None
            leader = None if head is None else head.member
            # If it is an heir, it stands in no line: it has its place in the store.
            if leader is not None and leader in heirs:
                heirs.remove(leader)
                first = leader
            elif head is None or not head.runner.alive() or head.claim.ttl != claim.ttl:
                first = first_waiting(heirs)
                if first is not None:
                    self._heads[claim.resource] = first.attempt
            elif leader is not None and leader.turn is None:
                first = leader  # perhaps it stands by
            if heirs:
                self._lines.setdefault(claim.resource, deque()).extendleft(reversed(heirs))
        if left is not None:
            release_later(client, left, 0.0, pause=0.0)
            self._place_removed(turn)
        if first is not None:
            first.call()

    def _end_passing(self, turn: Turn) -> Claim | None:
        """Nobody inherits from this turn any more.

        Under the mutex; returns the place behind it that must be removed.
        """
        resource = turn.lender._claim.resource
        latest = self.passable.get(resource)
        if latest is not None and latest._turn is turn:
            del self.passable[resource]
        return turn.free_place()

    def _place_removed(self, turn: Turn) -> None:
        if turn.place is not None:
            turn.place.over = True

    def arrived(self, heir: Member) -> Member | None:
        """Note that the heir's lease holds the claim.

        Under the mutex; returns the next head, for the caller to call.
        """
        self._passing.pop(heir, None)
        heirs = () if heir.turn is None else heir.turn.heirs
        heir.turn, place, first = None, heir.shared, None
        if place is not None:
            # A head has inherited: the next one in line is head now, and may stand in the place that it had
            # in the store.
            resource = place.claim.resource
            if place.waiter is heir:
                place.waiter = None
            if self._heads.get(resource) is heir.attempt:
                if resource in self._lines:
                    first = self._advance(resource)
                else:
                    del self._heads[resource]
        return None if heirs else first  # as in `begin_turn`

    def declined(self, heir: Member, turn: Turn) -> None:
        """Note that the claim was given back to the store, as the heir could not use it."""
        self._passing.pop(heir, None)
        self._scatter(turn)
        heir.turn = None

    # ---- the end ---------------------------------------------------------------

    def underway(self, client: Client) -> list[Claim]:
        """Claims that were passed on and that no lease holds yet, and places behind a claim of our own.

        Whoever ends the client gives them back.
        """
        with client.mutex:
            turns = [lease._turn for lease in self.passable.values() if lease._turn is not None]
            for turn in turns:
                turn.free_place()  # nobody stands there from here on, unless somebody does already
            places = [turn.place for turn in turns if turn.place is not None]
            return [place.claim for place in places if not place.over] + [
                heir.turn.lender._claim
                for heir in list(self._passing)
                if heir.turn is not None
                and (heir.turn.holder is heir or heir.turn.holder is heir.attempt.lease)
                and (heir.attempt.lease is None or heir.attempt.lease not in client.leases)
            ]

    def disband(self, client: Client) -> None:
        """The client closes: wake every attempt that stands in line, and every head that stands by."""
        with client.mutex:
            turns = [lease._turn for lease in client.leases] + [heir.turn for heir in self._passing]
            lines = [*self._lines.values(), *(turn.heirs for turn in turns if turn is not None)]
            heads = [head.member for head in self._heads.values() if head.member is not None]
            waiting = [*heads, *(member for line in lines for member in line)]
        for member in waiting:
            member.call()

    def after_fork(self) -> None:
        self._heads.clear()
        self._lines.clear()
        self._passing.clear()
        self.passable.clear()


def first_waiting(line: deque[Member] | None) -> Member | None:
    """Take the first attempt that still waits out of the line."""
    while line:
        if (member := line.popleft()).waits():
            return member
    return None
