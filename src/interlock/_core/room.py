"""The room of a barrier or a condition: each waiter stands there with a claim that says only that it lives.

The room is one resource with capacity for everybody, so each claim is admitted at once. The keeper renews the
claims; the claim of a process that was killed lapses on the store's clock, and that is how the others learn
of it.
"""

from __future__ import annotations

from interlock._core import timing
from interlock._core.attempt import Attempt
from interlock._core.client import Client
from interlock._core.place import QueuePlace
from interlock._core.removal import FOR_EVER, GONE, Removal, remove
from interlock._core.runtime import Owner
from interlock.errors import StoreUnavailable
from interlock.model import EVERYTHING, Claim, Gone, RenewAnswer, Standing
from interlock.store import IO_TIMEOUT, WAITERS


class Presence(QueuePlace):
    """One waiter's claim.

    An id that was `gone` once is never used again: the others may have counted without it.
    """

    waiting = False  # all of them are admitted: there is nothing to tell them

    def __init__(self, claim: Claim, now: float, owner: Owner) -> None:
        super().__init__(claim, now, owner)
        self.claim = claim
        self.owner = owner
        self.token = 0
        self.stands = False  # the store may have it
        self.gone = False  # the store has forgotten it: we were paused or cut off for longer than it lives

    def _on_reply(self, asked: float, answer: RenewAnswer) -> None:
        super()._on_reply(asked, answer)
        if isinstance(answer, Gone):
            self.gone = True


class Room:
    """The resource on which the waiters stand, in the order they came."""

    def __init__(self, client: Client, resource: str) -> None:
        self.client = client
        self.resource = resource
        self.longest = max(timing.PLACE_TTL_S, client.store.traits.min_ttl)

    @property
    def ttl(self) -> float:
        """Seconds for which a waiter's claim lives without a renewal. A session may live for less."""
        return min(self.longest, self.client.store.traits.max_ttl)

    def claim(self, id: str, who: str) -> Claim:
        return Claim(self.resource, id, self.ttl, 1, EVERYTHING, False, self.ttl, "", who)

    def newcomer(self, owner: Owner) -> Presence:
        """Make the claim of a waiter that is about to enter.

        Made before the store is asked: an interrupt must find the claim to take back.
        """
        runtime = self.client.runtime
        return Presence(self.claim(runtime.fresh_id(), runtime.who(owner)), runtime.now(), owner)

    async def enter(self, presence: Presence, wait: float | None = None) -> None:
        """Stand here from now on; `StoreUnavailable` if the store could not be asked within `wait`
        seconds.
        """
        attempt = Attempt(self.client, None, presence.claim, wait, presence.owner)
        presence.stands = True
        try:
            granted = await attempt.granted()
        except BaseException:
            await attempt.undo()
            presence.stands = False
            raise
        if granted is None:
            presence.stands = False
            raise StoreUnavailable(f"{self.resource.partition(WAITERS)[0]}: the store did not answer in time")
        presence.token, presence.refreshed = granted.token, attempt.asked
        self.client.keeper.keep(presence)

    def gone(self, presence: Presence) -> None:
        """Note that the claim is no longer in the room: nothing is left to renew."""
        presence.left = True
        self.client.keeper.drop(presence)
        presence.stands = False

    async def leave(self, presence: Presence, left: float = FOR_EVER) -> Removal:
        """Take the claim out of the room; GONE if it was not there any more."""
        presence.left = True
        if not presence.stands:
            return GONE
        removal = await remove(self.client, presence.claim, until=self.client.runtime.now() + left)
        self.gone(presence)
        return removal

    async def standings(self, timeout: float = IO_TIMEOUT) -> dict[str, Standing]:
        """All waiters that stand here now, by id, in the order they came."""
        queue = await self.client.store.inspect(self.resource, timeout)
        return {standing.id: standing for standing in queue.standings}
