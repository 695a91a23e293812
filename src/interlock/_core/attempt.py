"""From the call to the lease in hand: one attempt to take a lock object's lease."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from interlock import events
from interlock._core import timing
from interlock._core.acquire import Acquiring
from interlock._core.cohort import TURN, Cohort
from interlock._core.lease import Lease
from interlock._core.signature import all_signed
from interlock.errors import AcquireTimeout, InterlockError
from interlock.model import Claim, Granted
from interlock.ports import Owner, Signal

if TYPE_CHECKING:
    from interlock._core.holding import Holding


NAMED = 16  # claims at the front of the queue that are asked for when an error names the holders


class Attempt(Acquiring):
    """A claim on its way to a lease. `undo` is for what interrupts the very last step."""

    __slots__ = ("_holding", "_who", "lease", "lender", "line", "over", "turn", "wait")

    def __init__(
        self, holding: Holding, claim: Claim, wait: float | None, owner: Owner, runner: Owner | None = None
    ) -> None:
        Acquiring.__init__(self, holding.client, claim, wait, owner, runner)
        self._holding = holding
        self.wait = wait
        self.lease: Lease | None = None
        self.over = False  # it has ended without a lease, and nothing of it is left
        # As one of a cohort: who stands behind the head, or where it stands itself; the signal that its turn has
        # come; and whose lease it inherits.
        self.line: deque[Attempt] | None = None
        self.turn: Signal | None = None
        self.lender: Lease | None = None
        self._who = ""

    async def run(self) -> Lease | None:
        """The lease, or None if the time was up."""
        holding, client = self._holding, self._client
        try:
            client.attempts[self] = None  # whoever closes the client waits for us
            granted = await (self.granted() if self.claim.block == 1 else self._in_cohort(client.cohort))
            if granted is None:
                self.over = True
                waited = client.runtime.now() - self.began
                client.emit(events.TimedOut(holding.resource, waited, self.ahead))
                return None
            asked = self.asked if granted.sent is None else granted.sent
            lease = client.lease_type(holding, self.claim, granted, asked, self.owner)
            if self.lender is not None:
                lease._inherit(self.lender, self._who)
            self.lease = lease
            holding.enrol(lease)
            if self.lender is not None:
                client.cohort.arrived(self)
            elif self.claim.block > 1:
                client.cohort.granted(self, lease)
            if client.curious():
                client.emit(events.Acquired(holding.resource, granted.token, self.asked - self.began))
        except BaseException:
            await self.undo()
            raise
        finally:
            client.attempts.pop(self, None)
            if client.closed:
                client.attempt_ended()
        return lease

    async def _in_cohort(self, cohort: Cohort) -> Granted | None:
        """The grant, or None if the time was up: as the head of our cohort, or by way of one that stands there."""
        try:
            behind = cohort.join(self)
            granted = await (self.granted() if behind is None else self._stand(cohort, behind))
        except BaseException:
            await self._leave(cohort)
            raise
        if granted is None:
            cohort.leave(self)
        return granted

    async def _stand(self, cohort: Cohort, behind: Signal) -> Granted | None:
        """Wait behind the head; but not long, or who came later elsewhere would be let in before us."""
        client = self._client
        called = await client.runtime.wait(behind, min(self.left(), TURN))
        if (lender := cohort.decide(self)) is not None:
            if lender._deadline - client.runtime.now() > self.claim.place_ttl * timing.TAKEN_OVER:
                return self._take_over(lender)
            await self._decline(cohort, lender)  # our loop was stuck: it would be lost before it is used
        client.open()
        if not called and self.left() <= 0:
            return None
        self.asked = client.runtime.now()
        return await self.granted()

    def _take_over(self, lender: Lease) -> Granted:
        """From here on the claim is ours to keep or to take back."""
        self.asked = self._runtime.now()
        self._who, self.claim = self.claim.who, lender._claim
        self._stands = True
        return Granted(lender._token + 1, lender._claim.ttl)

    async def _decline(self, cohort: Cohort, lender: Lease) -> None:
        """What was passed on to us goes back to the store."""
        mine = self.claim
        self._take_over(lender)
        try:
            await self._take_back_quietly()
        finally:  # cancelled once more, too: a claim that counts as passed on would be kept in mind for ever
            self.claim = mine
            cohort.arrived(self)

    async def _leave(self, cohort: Cohort) -> None:
        """We want it no longer; also when it had just become ours, and nobody had told us."""
        try:
            if (lender := cohort.decide(self)) is not None:
                await self._decline(cohort, lender)
        finally:  # interrupted again, too: nobody must stand behind one who is gone
            cohort.leave(self)

    async def undo(self) -> None:
        """Nobody got hold of the result: let it go again."""
        lease, cohort = self.lease, self._client.cohort
        if self._client.inside():
            self._client.keeper.hand_over(self)
            return
        try:
            if lease is not None:  # also if it was let go: the one who did may have been interrupted there
                lease._let_go()
                self._holding.discharge(lease)
                cohort.withhold(lease)
            if lease is None or lease._heir is None:  # what another thread released may be another's now
                await self._take_back_quietly()
        finally:
            if lease is not None:
                cohort.dissolve(lease)
            if self.claim.block > 1:
                await self._leave(cohort)
        self.over = True
        if lease is not None:
            lease._settled = True

    def _abandon(self) -> None:
        """The `with` statement has ended. If it was interrupted before it gave the lease back, the keeper does so.

        Never waits: it may be called in the midst of anything.
        """
        if not (self.over if self.lease is None else self.lease._settled):
            self._client.keeper.hand_over(self)

    def _clean_up(self) -> None:
        cohort = self._client.cohort
        if self.lease is not None:
            self._holding.clean_up(self.lease)
        elif not self.over:
            self.over = True
            if (lender := cohort.decide(self)) is not None:
                self._take_over(lender)
                cohort.arrived(self)
            if self.claim.block > 1:
                cohort.leave(self)
            Acquiring._clean_up(self)

    async def timed_out(self) -> AcquireTimeout:
        """The error for who must not go on without the lease, naming the holders if the store can."""
        resource, store = self._holding.resource, self._client.store
        waited = self._client.runtime.now() - self.began
        try:
            queue = await store.inspect(resource, timing.patience(self.left()), limit=NAMED)
        except InterlockError:
            return AcquireTimeout(resource, waited, self.ahead)
        return AcquireTimeout(resource, waited, self.ahead, all_signed(queue).holders)

    async def demand(self) -> Lease:
        """The lease; `AcquireTimeout` if the time was up."""
        lease = await self.run()
        if lease is None:
            raise await self.timed_out()
        return lease
