"""From the call to the lease in hand: one attempt to take a lock object's lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock import events
from interlock._core import timing
from interlock._core.acquire import Acquiring
from interlock._core.lease import Lease
from interlock.errors import AcquireTimeout, InterlockError
from interlock.model import Claim

if TYPE_CHECKING:
    from interlock._core.holding import Holding


class Attempt:
    """A claim on its way to a lease. `undo` is for what interrupts the very last step."""

    __slots__ = ("_acquiring", "_holding", "lease", "wait")

    def __init__(self, holding: Holding, claim: Claim, wait: float | None) -> None:
        self._holding = holding
        self.wait = wait
        self._acquiring = Acquiring(holding.client, claim, wait)
        self.lease: Lease | None = None

    async def run(self) -> Lease | None:
        """The lease, or None if the time was up."""
        acquiring, holding = self._acquiring, self._holding
        client = holding.client
        granted = await acquiring.run()
        if granted is None:
            waited = client.runtime.now() - acquiring.began
            client.emit(events.TimedOut(holding.resource, waited, acquiring.ahead))
            return None
        try:
            owner = client.runtime.owner()
            self.lease = client.lease_type(holding, acquiring.claim, granted, acquiring.asked, owner)
            holding.enrol(self.lease)
            if client.curious:
                waited = acquiring.asked - acquiring.began
                client.emit(events.Acquired(holding.resource, granted.token, waited))
        except BaseException:
            await self.undo()
            raise
        return self.lease

    async def undo(self) -> None:
        """Nobody got hold of the result: let it go again."""
        if self.lease is not None:  # also if it was let go: the one who did may have been interrupted there
            self.lease._let_go()
            self._holding.discharge(self.lease)
        await self._acquiring._take_back_quietly()

    async def timed_out(self) -> AcquireTimeout:
        """The error for who must not go on without the lease, naming the holders if the store can."""
        acquiring, resource = self._acquiring, self._holding.resource
        waited = self._holding.client.runtime.now() - acquiring.began
        try:
            patience = timing.patience(acquiring.left())
            queue = await self._holding.client.store.inspect(resource, patience)
        except InterlockError:
            return AcquireTimeout(resource, waited, acquiring.ahead)
        return AcquireTimeout(resource, waited, acquiring.ahead, queue.holders)

    async def demand(self) -> Lease:
        """The lease; `AcquireTimeout` if the time was up."""
        lease = await self.run()
        if lease is None:
            raise await self.timed_out()
        return lease
