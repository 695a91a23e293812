"""Conditions: waiters stand on a resource of their own, and to notify one is to remove it from there.

The resource `name` + WAITERS has room for everybody, so a waiter is admitted at once and stands in the
order it came, alive on the store's clock: one that died is not counted by `notify`. Removing a claim
happens once, so two who notify at the same time wake two waiters, never one twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from interlock._core import timing
from interlock._core.acquire import DONE, Acquiring, Place, removed
from interlock._core.client import Client
from interlock._core.holding import Holding
from interlock._core.names import checked_name
from interlock.errors import NotHeld, StoreUnavailable
from interlock.model import EVERYTHING, Claim, Gone, Renewal
from interlock.ports import WAITERS

R = TypeVar("R")


class Mutex(Protocol):
    """The lock of a condition: interlock's own, or any with acquire and release."""

    def owned(self) -> bool: ...
    async def release_save(self) -> Any: ...
    async def acquire_restore(self, saved: Any) -> None: ...
    def surely_owned(self) -> bool:
        """True only if the caller has it; where that cannot be told from another having it, False."""
        ...


class HoldingMutex:
    """A plain lock as the lock of a condition."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def owned(self) -> bool:
        return self._holding.owned()

    async def release_save(self) -> None:
        await self._holding.give_back(self._holding.current())

    async def acquire_restore(self, saved: None) -> None:
        attempt = self._holding.attempt()
        try:
            lease = await attempt.demand()
            self._holding.replace_entered(lease)
        except BaseException:  # held but not known, the next try would wait for it for ever
            await attempt.undo()
            raise

    def surely_owned(self) -> bool:
        return self._holding.owned()


class Waiting:
    """The waiting side and the waking side of one condition."""

    def __init__(self, client: Client, name: str, mutex: Mutex) -> None:
        client.open()
        self.client = client
        self.name = checked_name(name)
        self._resource = self.name + WAITERS
        self._mutex = mutex

    async def wait(self, timeout: float | None) -> bool:
        """Give the lock up, wait to be notified, take it again; False when the time was up."""
        timeout = timing.checked_timeout(timeout)
        if not self._mutex.owned():
            raise NotHeld(f"{self.name}: cannot wait on un-acquired lock")
        runtime, keeper = self.client.runtime, self.client.keeper
        claim, token = await self._stand()
        owed = True  # whoever notifies us until we return expects that somebody hears of it
        try:
            place = Place(claim, runtime.now(), runtime.owner())
            try:
                keeper.keep(place)
                # Standing before letting go: who notifies in between must meet us.
                saved = await self._mutex.release_save()
                try:
                    owed = notified = await self._until_removed(claim, token, timeout)
                except BaseException:
                    await runtime.finish(lambda: self._pass_on(claim))  # before we wait for the lock again
                    owed = False
                    raise
                finally:
                    await self._take_again(saved)
                return notified
            finally:
                place.left = True
                keeper.drop(place)
        except BaseException:
            if owed:
                await runtime.finish(lambda: self._pass_on(claim))
            raise

    async def _take_again(self, saved: Any) -> None:
        """The caller holds the lock when wait ends, also when it is interrupted: its `with` will release."""
        interrupted: BaseException | None = None
        while True:
            try:
                await self._mutex.acquire_restore(saved)
                break
            except Exception:
                raise
            except BaseException as error:
                if interrupted is not None:
                    raise  # asked twice
                interrupted = error
                if self._mutex.surely_owned():  # struck when it was done: we would wait for ourselves
                    break
        if interrupted is not None:
            raise interrupted

    async def _stand(self) -> tuple[Claim, int]:
        runtime = self.client.runtime
        ttl = max(timing.PLACE_TTL, self.client.store.traits.min_ttl)
        owner = runtime.owner()
        who = runtime.who(owner)
        claim = Claim(self._resource, runtime.fresh_id(), ttl, 1, EVERYTHING, False, ttl, "", who)
        granted = await Acquiring(self.client, claim, None, owner).granted()
        assert granted is not None
        return claim, granted.token

    async def _until_removed(self, claim: Claim, token: int, timeout: float | None) -> bool:
        runtime, store = self.client.runtime, self.client.store
        until = float("inf") if timeout is None else runtime.now() + timeout
        while (left := until - runtime.now()) > 0:
            try:
                await store.wait(claim, None, min(left, claim.ttl / 2))
                patience = timing.patience(until - runtime.now())
                answer = await self.client.renew_one(Renewal(claim.resource, claim.id, claim.ttl), patience)
                if isinstance(answer, Gone):
                    return True  # notified; or lapsed while the store was away: look at your predicate
                if not await self._stands(claim, token, timing.patience(until - runtime.now())):
                    await removed(self.client, claim)
                    return True
            except StoreUnavailable:
                await runtime.sleep(min(0.2, max(0.0, until - runtime.now())))
        # Whoever removes the claim decides: if it is gone, we were notified at the last moment.
        return await removed(self.client, claim, left=0.0) is not DONE

    async def _stands(self, claim: Claim, token: int, patience: float) -> bool:
        """Whether this is still the place we took: a late copy of our own request may have taken a new one."""
        queue = await self.client.store.inspect(claim.resource, patience)
        return any(standing.id == claim.id and standing.token == token for standing in queue.standings)

    async def _pass_on(self, claim: Claim) -> None:
        """Interrupted: stand no longer; if we had been notified already, someone else gets it."""
        try:
            if not await self.client.store.release(claim.resource, claim.id):
                await self._wake(1)
        except StoreUnavailable:
            pass  # it lapses by itself

    async def wait_for(self, predicate: Callable[[], R | Awaitable[R]], timeout: float | None) -> R:
        timeout = timing.checked_timeout(timeout)
        runtime = self.client.runtime
        until = None if timeout is None else runtime.now() + timeout
        while True:
            found: Any = predicate()
            if hasattr(found, "__await__"):
                found = await found
            result: R = found
            left = None if until is None else until - runtime.now()
            if result or (left is not None and left <= 0):
                return result
            await self.wait(left)

    async def notify(self, count: int) -> None:
        """Wake up to `count` of those who wait, the first come first."""
        if not self._mutex.owned():
            raise NotHeld(f"{self.name}: cannot notify on un-acquired lock")
        await self._wake(count)

    async def _wake(self, count: int) -> None:
        for standing in (await self.client.store.inspect(self._resource)).standings:
            if count <= 0:
                return
            count -= await self.client.store.release(self._resource, standing.id)

    async def notify_all(self) -> None:
        await self.notify(EVERYTHING)
