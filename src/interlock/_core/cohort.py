"""Those of one client who want one lock: the first stands in the store for all, and they pass it on among themselves.

    head        asks the store, or holds; others of the client that come within a turn stand behind it, in order
    heir        gets the claim of whoever releases, with the next of the tokens that were reserved with the grant;
                the store is not asked

A turn ends after so many tokens or so many milliseconds; then the claim goes back to the store, for others'
clients. Who stood behind a head for so long asks the store for itself. So a client with many waiters passes the
others only by one turn, and what is held for long is queued for in the store as if there were no cohorts.

One store of an attribute decides who has the claim (`Lease._heir`): whoever is interrupted on either side of it looks
there. Not done: lending the head's place in the store's queue to those behind it; it would have to be given back.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from interlock._core.acquire import Acquiring
from interlock.ports import Signal

if TYPE_CHECKING:
    from interlock._core.attempt import Attempt
    from interlock._core.client import Client
    from interlock._core.lease import Lease
    from interlock.model import Claim

BLOCK = 16  # tokens of one grant: as many may hold, one after the other, before the store is asked again
TURN = 0.1  # seconds for which one grant is passed on, and for which a newcomer stands behind the head


class Cohort:
    """The cohorts of one client, by resource. Its client's guard keeps them."""

    def __init__(self) -> None:
        self._heads: dict[str, Attempt] = {}
        self._passing: dict[Attempt, None] = {}  # heirs that have a claim, and no lease yet

    # ---- waiting ------------------------------------------------------------

    def join(self, attempt: Attempt) -> Signal | None:
        """None if the attempt must ask the store; otherwise it stands behind the head until this is set."""
        client, resource = attempt._client, attempt.claim.resource
        with client.guard:
            head = self._heads.setdefault(resource, attempt)
            if head is attempt:
                return None
            first: Attempt | None = None
            if _over(head, attempt.began):  # nobody gets it from there: whoever came first asks the store
                first = _next(head) or attempt
                self._lead(first, head)
                head = first
            turn: Signal | None = None
            if (
                head is not attempt and head.claim.ttl == attempt.claim.ttl
            ):  # or it would not get what it asked for
                attempt.turn = turn = client.runtime.signal()
                if head.followers is None:
                    head.followers = deque()
                head.followers.append(attempt)
        if first is not None:
            call(first)
        return turn

    def decide(self, attempt: Attempt) -> Lease | None:
        """The wait behind the head is over: the lease that is inherited; None if the store must be asked."""
        with attempt._client.guard:
            attempt.turn = None
            head = self._heads.get(attempt.claim.resource)
            if head is not None and head.followers and attempt in head.followers:
                head.followers.remove(attempt)
            lender = attempt.lender
            if lender is not None and lender._heir is not attempt:  # interrupted before it was done
                lender = attempt.lender = None
            return lender

    # ---- passing on ----------------------------------------------------------

    def passed(self, lease: Lease, sure: bool) -> bool | None:
        """Whether a lease that was let go is another's now; None if others stand behind it and cannot have it.

        `sure`: it was held until then, not doubtful.
        """
        client, resource = lease._holding.client, lease._claim.resource
        with client.guard:
            head = self._heads.get(resource)
            if head is None:
                return False
            ours = head.lease is lease
            if not head.followers:
                if ours:
                    del self._heads[resource]
                return False
            fits = ours or (head.lease is None and head.claim.ttl == lease._claim.ttl)
            may = sure and fits and not client.closed and _passable(lease, client.runtime.now())
            heir = _next(head) if may else None
            if heir is None:
                return None
            if ours:
                self._lead(heir, head)
            heir.lender = lease
            self._passing[heir] = None
            lease._heir = heir  # from here on it is the heir's, whatever interrupts us
        call(heir)
        return True

    def withhold(self, lease: Lease) -> None:
        """From here on nobody inherits this one, unless somebody has already."""
        with lease._holding.client.guard:
            lease._passes = 0

    def arrived(self, heir: Attempt) -> None:
        """What was passed on is held now, or was given back."""
        self._passing.pop(heir, None)
        heir.lender = None

    def underway(self, client: Client) -> list[Claim]:
        """Claims that were passed on and that nobody holds yet: who ends the client gives them back."""
        with client.guard:
            return [
                heir.lender._claim
                for heir in list(self._passing)
                if heir.lender is not None
                and heir.lender._heir is heir
                and (heir.lease is None or heir.lease not in client.leases)
            ]

    def leave(self, client: Client, who: Attempt | Lease) -> None:
        """This one holds no longer, or gave up: if it was the head, the next one is, and asks the store."""
        resource = who.claim.resource if isinstance(who, Acquiring) else who._claim.resource
        with client.guard:
            head = self._heads.get(resource)
            if head is None or (head is not who and head.lease is not who):
                return
            heir = _next(head)
            if heir is None:
                del self._heads[resource]
                return
            self._lead(heir, head)
        call(heir)

    def _lead(self, heir: Attempt, head: Attempt) -> None:
        heir.followers, head.followers = head.followers, None
        self._heads[heir.claim.resource] = heir

    def disband(self, client: Client) -> None:
        """The client closes: whoever stands behind a head must learn of it."""
        with client.guard:
            waiting = [follower for head in self._heads.values() for follower in head.followers or ()]
        for follower in waiting:
            call(follower)

    def after_fork(self) -> None:
        self._heads.clear()
        self._passing.clear()


def call(heir: Attempt) -> None:
    """Wake whose turn has come."""
    if (turn := heir.turn) is not None:
        turn.set()


def _next(head: Attempt) -> Attempt | None:
    """The first behind the head that still waits, and has not been left behind on a loop that was closed."""
    while head.followers:
        follower = head.followers.popleft()
        if follower.turn is not None and follower.owner.alive():
            return follower
    return None


def _over(head: Attempt, now: float) -> bool:
    """Whether nothing can be had from the head any more: its turn is over, or nobody is there to ask for it."""
    return not (head.owner.alive() if head.lease is None else _passable(head.lease, now))


def _passable(lease: Lease, now: float) -> bool:
    """Whether the next may have it: a token is left, the turn lasts, and what is inherited is no short time.

    And the store was not asked about it since: the answer would be told to the lender, who has nothing any more.
    """
    return (
        lease._passes > 0
        and lease._last_try <= lease._turn
        and now - lease._turn < TURN
        and lease._deadline - now > lease._claim.ttl / 2
    )
