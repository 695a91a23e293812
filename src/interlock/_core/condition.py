"""Conditions: waiters stand in a `Room` of their own, and to notify one is to remove it from there.

They stand in the order in which they came, and the store's clock decides which of them are still alive. A
claim can be removed only once, so two threads that notify at the same time wake two waiters, never one twice.

A waiter that was killed a moment ago still stands there. So that it does not swallow a notification, `notify`
leaves a call beside it, a second claim in the same room, if others wait who were not notified:

    called    the waiter has not answered yet
    taken     the waiter lives, and renews the call until it has the lock again; then it removes the call

The waiters read the room every few seconds. A call that is not taken soon, or no longer renewed, is removed
by the first waiter that sees it, and the first of those who waited when the call was made is notified
instead. A mistake does no harm: at worst a slow waiter is woken for nothing, which conditions allow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from interlock._core import timing
from interlock._core.attempt import Attempt
from interlock._core.client import Client
from interlock._core.holding import Holding
from interlock._core.names import checked_name
from interlock._core.removal import DONE, FOR_EVER, GONE, PENDING
from interlock._core.room import Presence, Room
from interlock._core.runtime import Owner
from interlock._support.record import replaced
from interlock.errors import InterlockError, NotHeld, StoreUnavailable, Unreached
from interlock.model import EVERYTHING, Claim, Gone, NoAnswer, Renewal, Renewed, Standing
from interlock.store import WAITERS

R = TypeVar("R")

CALL = "-call"  # after a waiter's id: the id of its call
CALLED, TAKEN = "called", "taken"
ANSWER_PART = 1 / 5  # of a presence's ttl: the time in which a living waiter takes its call
# Presences' ttls that a call lives unrenewed: others must see it when it is no longer renewed.
CALL_LIFE_TTLS = 2


class Mutex(Protocol):
    """The lock of a condition: interlock's own, or any with acquire and release."""

    def owned(self, owner: Owner) -> bool: ...
    async def release_save(self, owner: Owner) -> Any: ...
    async def acquire_restore(self, saved: Any, owner: Owner) -> None: ...
    def surely_owned(self, owner: Owner) -> bool:
        """True only if the owner certainly has the lock; False if another owner may have it instead."""
        ...


class HoldingMutex:
    """A plain lock as the lock of a condition."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def owned(self, owner: Owner) -> bool:
        return self._holding.owned(owner)

    async def release_save(self, owner: Owner) -> list[Attempt]:
        """Give it up; the attempts of the `with` statements over it."""
        lease = self._holding.current(owner)
        entered = [attempt for attempt in list(self._holding.entered) if attempt.lease is lease]
        await lease._give_back()
        return entered

    async def acquire_restore(self, saved: list[Attempt], owner: Owner) -> None:
        attempt = self._holding.attempt(owner=owner)
        try:
            lease = await attempt.acquire_or_raise()
            for each in saved:  # their bodies go on under the new lease
                each.lease = lease
            if saved and not any(each in self._holding.entered for each in saved):
                await attempt.undo()  # the statements are over: the waiter was called away for good
        except BaseException:  # held but not known, the next try would wait for it for ever
            await attempt.undo()
            raise

    def surely_owned(self, owner: Owner) -> bool:
        return self._holding.owned(owner)


class ConditionCore:
    """The waiting side and the waking side of one condition."""

    def __init__(self, client: Client, name: str, mutex: Mutex) -> None:
        client.check_open()
        self.client = client
        self.name = checked_name(name)
        self.room = Room(client, self.name + WAITERS)
        self.mutex = mutex

    async def wait(self, timeout: float | None, owner: Owner | None = None) -> bool:
        """Give the lock up, wait to be notified, take it again; False when the time was up."""
        timeout = timing.checked_timeout(timeout)
        owner = owner or self.client.runtime.owner()
        if not self.mutex.owned(owner):
            raise NotHeld(f"{self.name}: cannot wait on un-acquired lock")
        return await Wait(self, owner).run(timeout)

    async def wait_for(
        self,
        predicate: Callable[[], R | Awaitable[R]],
        timeout: float | None,
        owner: Owner | None = None,
    ) -> R:
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
            await self.wait(left, owner)

    async def notify(self, count: int, owner: Owner | None = None) -> None:
        """Wake up to `count` waiters, the first come first."""
        if not self.mutex.owned(owner or self.client.runtime.owner()):
            raise NotHeld(f"{self.name}: cannot notify on un-acquired lock")
        await self.wake(count)

    async def notify_all(self, owner: Owner | None = None) -> None:
        await self.notify(EVERYTHING, owner)

    async def wake(self, count: int, before: float = float("inf")) -> None:
        """Wake up to `count` waiters whose token is below `before`: the notification is not for those that
        came later.
        """
        standings = (await self.room.standings()).values()
        waiting = [one for one in standings if not one.id.endswith(CALL) and one.token < before]
        others = len(waiting) > count  # to whom it can be passed on
        left = count
        for standing in waiting:
            if left <= 0:
                return
            try:
                left -= await self._wake_one(standing, others)
            except StoreUnavailable as error:
                if isinstance(error, Unreached) and left == count:
                    raise
                raise StoreUnavailable(
                    f"{error}; some who wait for {self.name} may have been notified"
                ) from None

    async def _wake_one(self, standing: Standing, others: bool) -> bool:
        """Notify one waiter; False if it waits no longer."""
        store, resource = self.client.store, self.room.resource
        if not others:
            return await store.release(resource, standing.id)
        call = self.call(standing.id, standing.who)
        woken = False
        try:
            await store.claim(call)  # first: it must be there when the waiter wakes
            woken = await store.release(resource, standing.id)
        finally:
            if not woken:
                await self.client.runtime.finish(lambda: self._call_off(call.id))
        return woken

    async def _call_off(self, id: str) -> None:
        with suppress(InterlockError):  # it lapses by itself
            await self.client.store.release(self.room.resource, id, 0.0, timing.GRACE_S)

    def call(self, id: str, who: str) -> Claim:
        """The call of the waiter with this id."""
        ttl = min(CALL_LIFE_TTLS * self.room.ttl, self.client.store.traits.max_ttl)
        return replaced(self.room.claim(id + CALL, who), ttl=ttl, place_ttl=ttl, note=CALLED)


class Wait:
    """One waiter of a condition, from letting the lock go until it has it again."""

    def __init__(self, condition: ConditionCore, owner: Owner) -> None:
        self._condition, self._room, self._client = condition, condition.room, condition.client
        self._runtime = condition.client.runtime
        self._owner = owner
        self._me = self._room.newcomer(self._runtime.owner())
        self._call = Presence(condition.call(self._me.id, ""), self._runtime.now(), self._me.owner)
        self._owed = False  # we were notified, and nobody has heard of it yet
        self._silent = False  # the store did not answer when we left
        self._seen: dict[str, float] = {}  # calls that were not taken when we last looked, since when

    async def run(self, timeout: float | None) -> bool:
        mutex = self._condition.mutex
        try:
            await self._room.enter(self._me)  # before letting go: a notification in between must find us
            saved = await mutex.release_save(self._owner)
            try:
                self._owed = notified = await self._until_notified(timeout)
            except BaseException as error:
                await self._runtime.finish(self._pass_on)  # before we wait for the lock again
                await self._take_again_after(error, saved)
                raise
            await self._take_again(saved)
            await self._runtime.finish(self._answer)
        except BaseException:
            await self._runtime.finish(self._pass_on)
            raise
        return notified

    async def _answer(self) -> None:
        """Remove the call: its waiter has heard it and has the lock, so nobody must pass it on."""
        with suppress(InterlockError):  # a call that cannot be removed lapses by itself
            await self._room.leave(self._call)

    async def _take_again_after(self, error: BaseException, saved: Any) -> None:
        """As `_take_again`; but an interrupted waiter does not wait for a store that is away, and its own
        error comes first.
        """
        try:
            if timing.time_for(error) < FOR_EVER and self._silent:
                # Asking once more would begin with a new connection, and that may take as long as
                # `connect_timeout`.
                raise StoreUnavailable(f"{self._condition.name}: the store did not answer")
            await self._take_again(saved)
        except InterlockError as failure:
            error.add_note(f"and the lock was not taken again: {failure}")

    async def _take_again(self, saved: Any) -> None:
        """The caller holds the lock when wait ends, also when it is interrupted: its `with` will release."""
        mutex = self._condition.mutex
        interrupted: BaseException | None = None
        while True:
            try:
                await mutex.acquire_restore(saved, self._owner)
                break
            except InterlockError:
                raise
            except BaseException as error:
                if interrupted is not None:
                    raise  # the second interrupt is obeyed at once
                interrupted = error
                # The interrupt came after the lock had been taken: asking again would wait for ourselves.
                if mutex.surely_owned(self._owner):
                    break
        if interrupted is not None:
            raise interrupted

    async def _until_notified(self, timeout: float | None) -> bool:
        runtime, store, me = self._runtime, self._client.store, self._me
        until = float("inf") if timeout is None else runtime.now() + timeout
        while (left := until - runtime.now()) > 0:
            pause = me.claim.ttl * ANSWER_PART if self._seen else me.claim.ttl / 2
            try:
                await store.wait(me.claim, None, min(left, pause))
                if await self._notified(timing.patience(until - runtime.now())):
                    return True
                if not await self._check_room(timing.patience(until - runtime.now())):
                    await self._room.leave(me)
                    return True
            except StoreUnavailable:
                await runtime.sleep(min(0.2, max(0.0, until - runtime.now())))
        # The removal of the claim decides: if it was gone already, we were notified at the last moment.
        if await self._room.leave(me, 0.0) is DONE:
            return False
        with suppress(StoreUnavailable):
            await self._notified(timing.GRACE_S)
        return True

    async def _notified(self, patience: float) -> bool:
        """Whether our claim has left the room: we were notified, or the claim lapsed while the store was
        away. In both cases the caller must look at its predicate.

        If there is a call for us, it is ours from here on: the keeper renews it until we have the lock.
        """
        me, call, asked = self._me, self._call, self._runtime.now()
        if self._client.session is not None:
            return await self._notified_in_session(patience)
        ask = [
            Renewal(me.resource, me.id, me.claim.ttl),
            Renewal(me.resource, call.id, call.claim.ttl, TAKEN),
        ]
        standing, called = await self._client.store.renew(ask, patience)
        if isinstance(called, Renewed) and not call.stands:
            call.stands, call.refreshed = True, asked
            self._client.keeper.keep(call)
        if isinstance(standing, NoAnswer):
            raise StoreUnavailable(standing.why)
        if isinstance(standing, Gone):
            self._owed = True
            self._room.gone(me)
        return isinstance(standing, Gone)

    async def _notified_in_session(self, patience: float) -> bool:
        """The same on a store with sessions, where a call belongs to the session of the client that notified.

        Nobody else can renew it, so it is removed. A waiter that dies before it has the lock again therefore
        takes its notification along.
        """
        me, call = self._me, self._call
        (standing,) = await self._client.store.renew([Renewal(me.resource, me.id, me.claim.ttl)], patience)
        if isinstance(standing, NoAnswer):
            raise StoreUnavailable(standing.why)
        if isinstance(standing, Gone):
            self._owed = True
            self._room.gone(me)
            await self._client.store.release(call.resource, call.id, 0.0, patience)
        return isinstance(standing, Gone)

    async def _check_room(self, patience: float) -> bool:
        """Return whether our claim is still the one we entered with; a late copy of our own request may have
        entered anew.

        Also look after the calls of other waiters: the calls of dead ones are passed on.
        """
        standings = await self._room.standings(patience)
        now, calls = self._runtime.now(), [one for id, one in standings.items() if id.endswith(CALL)]
        self._seen = {one.id: self._seen.get(one.id, now) for one in calls if one.note == CALLED}
        for one in calls:
            taken = one.id not in self._seen
            late = (
                one.lapses_in < self._room.ttl
                and self._client.session is None  # the dead leave with their session
                if taken
                else now - self._seen[one.id] >= ANSWER_PART * self._room.ttl
            )
            if late and self._me.token < one.token and one.id != self._call.id:
                if await self._client.store.release(self._room.resource, one.id):
                    await self._condition.wake(1, one.token)
        mine = standings.get(self._me.id)
        return mine is not None and mine.token == self._me.token

    async def _pass_on(self) -> None:
        """Leave the room after an interrupt; if we had been notified already, notify another waiter."""
        with suppress(StoreUnavailable):  # it lapses by itself
            if self._me.stands:
                left = await self._room.leave(self._me, timing.INTERRUPTED_RELEASE_S)
                self._silent = left is PENDING
                if left is GONE:
                    self._owed = self._call.stands = (
                        True  # perhaps there is a call, and we had not heard of it
                    )
            if self._owed:
                await self._condition.wake(1)
                self._owed = False
        with suppress(StoreUnavailable):
            await self._room.leave(self._call, 0.0)
