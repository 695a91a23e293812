"""From the call to the lease in hand: one attempt to take a lock object's lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock import events
from interlock._core import timing
from interlock._core.acquire import Acquiring
from interlock._core.lease import Lease
from interlock.errors import AcquireTimeout, InterlockError
from interlock.model import Claim
from interlock.ports import Owner

if TYPE_CHECKING:
    from interlock._core.holding import Holding


class Attempt(Acquiring):
    """A claim on its way to a lease. `undo` is for what interrupts the very last step."""

    __slots__ = ("_holding", "lease", "wait")

    def __init__(self, holding: Holding, claim: Claim, wait: float | None, owner: Owner) -> None:
        Acquiring.__init__(self, holding.client, claim, wait, owner)
        self._holding = holding
        self.wait = wait
        self.lease: Lease | None = None

    async def run(self) -> Lease | None:
        """The lease, or None if the time was up."""
        granted = await self.granted()
        holding, client = self._holding, self._client
        if granted is None:
            waited = client.runtime.now() - self.began
            client.emit(events.TimedOut(holding.resource, waited, self.ahead))
            return None
        try:
            lease = self.lease = client.lease_type(holding, self.claim, granted, self.asked, self.owner)
            holding.enrol(lease)
            if client.curious:
                client.emit(events.Acquired(holding.resource, granted.token, self.asked - self.began))
        except BaseException:
            await self.undo()
            raise
        return lease

    async def undo(self) -> None:
        """Nobody got hold of the result: let it go again."""
        if self.lease is not None:  # also if it was let go: the one who did may have been interrupted there
            self.lease._let_go()
            self._holding.discharge(self.lease)
        await self._take_back_quietly()

    async def timed_out(self) -> AcquireTimeout:
        """The error for who must not go on without the lease, naming the holders if the store can."""
        resource, store = self._holding.resource, self._client.store
        waited = self._client.runtime.now() - self.began
        try:
            queue = await store.inspect(resource, timing.patience(self.left()))
        except InterlockError:
            return AcquireTimeout(resource, waited, self.ahead)
        return AcquireTimeout(resource, waited, self.ahead, queue.holders)

    async def demand(self) -> Lease:
        """The lease; `AcquireTimeout` if the time was up."""
        lease = await self.run()
        if lease is None:
            raise await self.timed_out()
        return lease
