"""Those of one client who want one lock: the first asks the store for all, and they pass it on among themselves.

    head        asks the store; others of the client that come meanwhile stand behind it, in order
    turn        begins with a grant: those behind the head who came before the store was asked are its heirs, and the
                next behind them is the head of those who come later
    heir        gets the claim of whoever releases, with the next of the tokens that were reserved with the grant;
                the store is not asked

Who came before the store was asked had not begun after anybody's later grant: so no token is below one that was
granted before its attempt began, whatever has happened to the claim in the store since.

A turn ends after so many tokens or so many milliseconds; then the claim goes back to the store, for others'
clients. Who stood behind a head for so long asks the store for itself. So a client with many waiters passes the
others only by one turn, and what is held for long is queued for in the store as if there were no cohorts.

One store of an attribute decides who has the claim (`Lease._heir`): whoever is interrupted on either side of it looks
there. Not done: lending the head's place in the store's queue to those behind it; it would have to be given back.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from interlock._core.timing import PASSED_ON
from interlock.ports import Signal

if TYPE_CHECKING:
    from interlock._core.attempt import Attempt
    from interlock._core.client import Client
    from interlock._core.lease import Lease
    from interlock.model import Claim

BLOCK = 16  # tokens of one grant: as many may hold, one after the other, before the store is asked again
TURN = 0.1  # seconds for which one grant is passed on, and for which a newcomer stands behind the head


class Passing(Enum):
    """What became of a lease that was let go."""

    NO_HEIR = "nobody waits for it here"
    DONE = "it is the next heir's"
    REFUSED = "its turn is over: it goes back to the store, and those who waited ask there, see `dissolve`"


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
            if not head.runner.alive():  # left behind on a closed loop: whoever came first asks the store
                first = _next(head.line) or attempt
                self._lead(first, head.line)
                head = first
            turn: Signal | None = None
            # An heir gets its lender's ttl: whoever wants another asks for itself.
            if head is not attempt and head.claim.ttl == attempt.claim.ttl:
                attempt.turn = turn = client.runtime.signal()
                if head.line is None:
                    head.line = deque()
                head.line.append(attempt)
                attempt.line = head.line
                attempt.ahead = max(1, head.ahead) + len(head.line)
        if first is not None:
            call(first)
        return turn

    def decide(self, attempt: Attempt) -> Lease | None:
        """The wait behind others is over: the lease that is inherited; None if the store must be asked."""
        with attempt._client.guard:
            leads = self._heads.get(attempt.claim.resource) is attempt
            attempt.turn = None
            if not leads and attempt.line is not None:
                if attempt in attempt.line:
                    attempt.line.remove(attempt)
                attempt.line = None
            lender = attempt.lender
            if lender is not None and lender._heir is not attempt:  # interrupted before it was done
                lender = attempt.lender = None
            return lender

    def leave(self, attempt: Attempt) -> None:
        """This one asks the store no longer: if it was the head, the next one is."""
        with attempt._client.guard:
            if self._heads.get(attempt.claim.resource) is not attempt:
                return
            first = self._advance(attempt)
        if first is not None:
            call(first)

    def _advance(self, head: Attempt) -> Attempt | None:
        first = _next(head.line)
        if first is None:
            del self._heads[head.claim.resource]
        else:
            self._lead(first, head.line)
        head.line = None
        return first

    def _lead(self, first: Attempt, line: deque[Attempt] | None) -> None:
        first.line = line
        self._heads[first.claim.resource] = first

    # ---- passing on ----------------------------------------------------------

    def granted(self, attempt: Attempt, lease: Lease) -> None:
        """A turn begins: see above who are its heirs, and who asks the store next."""
        with lease._holding.client.guard:
            head = self._heads.get(lease._claim.resource)
            if head is None:
                return
            line = head.line
            if line is None:  # nobody stands behind it
                if head is attempt:
                    del self._heads[attempt.claim.resource]
                return
            heirs: deque[Attempt] = deque()
            fits = head.claim.ttl == lease._claim.ttl
            while fits and line and len(heirs) < lease._passes and line[0].began < lease._turn:
                heir = line.popleft()
                heirs.append(heir)
                heir.line = heirs
            if heirs:
                lease._heirs = heirs
            first = self._advance(attempt) if head is attempt else None
        if first is not None:
            call(first)

    def pass_on(self, lease: Lease, sure: bool) -> Passing:
        """Make a lease that was let go its next heir's. `sure`: it was held until then, not doubtful."""
        if lease._heirs is None:
            return Passing.NO_HEIR
        client = lease._holding.client
        with client.guard:
            may = sure and not client.closed and _passable(lease, client.runtime.now())
            heir = _next(lease._heirs) if may else None
            if heir is None:
                return Passing.REFUSED
            heir.lender = lease
            self._passing[heir] = None
            lease._heir = heir  # from here on it is the heir's, whatever interrupts us
        call(heir)
        return Passing.DONE

    def withhold(self, lease: Lease) -> None:
        """From here on nobody inherits this one, unless somebody has already."""
        with lease._holding.client.guard:
            lease._passes = 0

    def dissolve(self, lease: Lease) -> None:
        """The turn is over: heirs that are left go before those who came later, or one of them asks the store."""
        if lease._heirs is not None and lease._heir is None:  # or they are its heir's
            self._scatter(lease)

    def _scatter(self, lease: Lease) -> None:
        with lease._holding.client.guard:
            heirs, lease._heirs = lease._heirs, None
            if heirs is None:
                return
            head, first = self._heads.get(lease._claim.resource), None
            if head is None or not head.runner.alive() or head.claim.ttl != lease._claim.ttl:
                if (first := _next(heirs)) is not None:
                    heirs += (head and head.line) or ()
                    self._lead(first, heirs)
            else:
                heirs += head.line or ()
                head.line = heirs
            for waiting in heirs:
                waiting.line = heirs
        if first is not None:
            call(first)

    def arrived(self, heir: Attempt) -> None:
        """What was passed on is held now, or was given back."""
        self._passing.pop(heir, None)
        if heir.lease is None and heir.lender is not None:
            self._scatter(heir.lender)
        heir.lender = None

    # ---- the end ---------------------------------------------------------------

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

    def disband(self, client: Client) -> None:
        """The client closes: whoever stands behind another must learn of it."""
        with client.guard:
            lines = [head.line for head in self._heads.values()] + [lease._heirs for lease in client.leases]
            lines += [heir.lender._heirs for heir in self._passing if heir.lender is not None]
            waiting = [attempt for line in lines for attempt in line or ()]
        for attempt in waiting:
            call(attempt)

    def after_fork(self) -> None:
        self._heads.clear()
        self._passing.clear()


def call(attempt: Attempt) -> None:
    """Wake whose turn has come."""
    if (turn := attempt.turn) is not None:
        turn.set()


def _next(line: deque[Attempt] | None) -> Attempt | None:
    """The first that still waits, and has not been left behind on a loop that was closed."""
    while line:
        attempt = line.popleft()
        if attempt.turn is not None and attempt.runner.alive():
            return attempt
    return None


def _passable(lease: Lease, now: float) -> bool:
    """Whether the next may have it: a token is left, the turn lasts, and what is inherited is no short time.

    And the store was not asked about it since: the answer would be told to the lender, who has nothing any more.
    """
    return (
        lease._passes > 0
        and lease._last_try <= lease._turn
        and now - lease._turn < TURN
        and lease._deadline - now > lease._claim.place_ttl * PASSED_ON
    )
