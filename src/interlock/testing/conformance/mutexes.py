"""What every exclusive lock promises, whatever it is called.

A semaphore of 1, the write side of a read-write lock, a multilock of one name and an election run the
same tests as a lock: each is the same rule over the same queue.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar
from uuid import uuid4

from interlock._core.states import State
from interlock.errors import Evicted, LeaseLost
from interlock.model import EVERYTHING, Claim, Granted
from interlock.testing.conformance.face import Actor, got, refused
from interlock.testing.conformance.suite import Clocked, Suite
from interlock.testing.lag import at_most


class Mutexes(Suite):
    """Contenders are different clients, so that re-entry does not let them in."""

    permits: ClassVar[int] = 1
    capacity: ClassVar[int] = 1
    refusal: ClassVar[type[Exception]] = RuntimeError  # of a release without a hold

    def make(self, client: Any, name: str) -> Any:
        raise NotImplementedError

    def mutex(self, client: Any = None, name: str = "") -> Any:
        return self.make(client or self.client(), name or self.name)

    async def take(self, mutex: Any, **how: Any) -> Any:
        """Its lease, or something false."""
        return await got(mutex.acquire(**how))

    async def give(self, mutex: Any) -> None:
        await got(mutex.release())

    def lease(self, taken: Any) -> Any:
        return taken

    async def test_a_second_try_is_refused_while_it_is_held(self) -> None:
        ours, theirs, see = self.mutex(), self.mutex(), self.client()
        assert await self.take(ours)
        assert not await self.take(theirs, blocking=False)
        await self.standing(see, holders=1, waiters=0)
        await self.give(ours)
        assert await self.take(theirs, blocking=False)
        await self.give(theirs)

    async def test_a_wait_ends_after_its_timeout_and_leaves_no_place(self) -> None:
        ours, theirs, see = self.mutex(), self.mutex(), self.client()
        await self.take(ours)
        began = self.runtime.now()
        with at_most(0.1 + 0.25):
            assert not await self.take(theirs, timeout=0.1)
        assert self.runtime.now() - began > 0.09
        await self.standing(see, holders=1, waiters=0)
        await self.give(ours)

    async def test_a_waiter_gets_in_as_soon_as_the_holder_lets_go(self) -> None:
        ours, theirs, see = self.mutex(), self.mutex(), self.client()
        await self.take(ours)
        waiter = self.spawn(lambda: self._once(theirs))
        await self._one_waits(see)
        with at_most(3.0):
            await self.give(ours)
            await waiter.result()

    async def _once(self, mutex: Any) -> int:
        taken = await self.take(mutex)
        token: int = self.lease(taken).token
        await self.give(mutex)
        return token

    async def _one_waits(self, see: Any) -> None:
        if self.traits.fair:
            await self.standing(see, holders=1, waiters=1)

    async def test_the_first_to_wait_is_the_first_to_get_in(self) -> None:
        self.needs(fair=True)
        holder, see, order = self.mutex(), self.client(), list[int]()

        async def enter(number: int) -> None:
            mutex = self.mutex()
            await self.take(mutex)
            order.append(number)
            await self.give(mutex)

        await self.take(holder)
        waiters = list[Actor]()
        for number in range(4):
            waiters.append(self.spawn(partial(enter, number)))
            await self.standing(see, holders=1, waiters=number + 1)
        await self.give(holder)
        for waiter in waiters:
            await waiter.result()
        assert order == [0, 1, 2, 3]

    async def test_never_two_at_a_time_and_tokens_rise_in_the_order_of_holding(self) -> None:
        inside, tokens = list[int](), list[int]()

        async def work() -> None:
            mutex = self.mutex()
            for _ in range(6):
                taken = await self.take(mutex)
                inside.append(1)
                assert len(inside) == 1
                tokens.append(self.lease(taken).token)
                await self.runtime.sleep(0.0005)
                inside.pop()
                await self.give(mutex)

        for worker in [self.spawn(work) for _ in range(4)]:
            await worker.result()
        assert len(tokens) == 24
        assert tokens == sorted(set(tokens))

    async def test_a_waiter_gets_in_when_the_holder_is_dead(self) -> None:
        store = self.store()
        dead = Claim(self.name, uuid4().hex, self.short, self.permits, self.capacity)
        answer = await store.claim(dead)
        assert isinstance(answer, Granted)
        self.crash(store)
        with at_most(self.short + 3.0):
            assert await self._once(self.mutex()) > answer.token

    async def test_what_is_held_outlives_its_ttl(self) -> None:
        await self.with_a_ttl_that_the_machine_can_keep(self._outlives)

    async def _outlives(self, ttl: float, clocked: Clocked) -> bool:
        """Whether nobody else gets in within two ttls."""
        ours, theirs = self.mutex(self.client(ttl=ttl)), self.mutex()
        taken = await self.take(ours)
        end = self.runtime.now() + 2 * ttl
        while self.runtime.now() < end:
            if await clocked(lambda: self.take(theirs, blocking=False)):
                await self.give(theirs)
                return False
            await self.runtime.sleep(ttl / 10)
        if self.lease(taken).state is not State.HELD:
            return False
        await self.give(ours)
        return True

    async def test_releasing_what_is_not_held_is_refused(self) -> None:
        mutex = self.mutex()
        await refused(self.refusal, lambda: self.give(mutex))
        await self.take(mutex)
        await self.give(mutex)
        await refused(self.refusal, lambda: self.give(mutex))

    async def test_two_names_never_share(self) -> None:
        client = self.client()
        one, other = self.mutex(client), self.mutex(client, self.name + "x")
        await self.take(one)
        assert await self.take(other, blocking=False)
        await self.give(one)
        await self.give(other)

    async def test_an_evicted_holder_is_told_why(self) -> None:
        ours, see = self.mutex(self.client(ttl=3 * self.short)), self.client()
        lease = self.lease(await self.take(ours))
        (met,) = await got(see.evict(self.name, reason="moving house"))
        assert (met.token, met.admitted) == (lease.token, True)
        await self.until(lambda: lease.state is State.LOST)
        loss = await refused(LeaseLost, lease.check)
        assert (loss.resource, loss.token, loss.cause) == (self.name, lease.token, "evicted")
        assert "moving house" in str(loss)
        await refused(LeaseLost, lambda: self.give(ours))

    async def test_releasing_a_lost_lease_says_so_and_touches_nobody(self) -> None:
        ours, theirs, see = self.mutex(), self.mutex(), self.client()
        await self.take(ours)
        await got(see.evict(self.name, reason="a drill"))
        second = self.lease(await self.take(theirs))
        await refused(LeaseLost, lambda: self.give(ours))
        queue = await self.standing(see, holders=1, waiters=0)
        assert queue.holders[0].token == second.token
        await self.give(theirs)

    async def test_an_evicted_waiter_is_told_why(self) -> None:
        self.needs(fair=True)
        ours, theirs, see = self.mutex(), self.mutex(), self.client()
        await self.take(ours)
        waiter = self.spawn(lambda: self.take(theirs))
        queue = await self.standing(see, holders=1, waiters=1)
        await got(see.evict(self.name, id=queue.waiters[0].id, reason="not today"))
        assert "not today" in str(await refused(Evicted, waiter.result))
        await self.give(ours)

    async def test_the_queue_says_who_holds_and_who_waits(self) -> None:
        ours, see = self.mutex(), self.client()
        token = self.lease(await self.take(ours)).token
        (holder,) = (await self.queue(see)).holders
        who = holder.caller
        assert holder.token == token
        assert who.host
        assert who.pid > 0
        assert who.thread
        assert ":" in who.site
        await self.give(ours)

    async def test_closing_the_client_gives_it_back(self) -> None:
        client, see = self.client(), self.client()
        await self.take(self.mutex(client))
        await got(client.close())
        await self.standing(see, holders=0, waiters=0)
        await refused(RuntimeError, lambda: self.take(self.make(client, self.name)))


class LockAsMutex(Mutexes):
    """`lock`."""

    def make(self, client: Any, name: str) -> Any:
        return client.lock(name)


class UnfairLockAsMutex(Mutexes):
    """`lock(fair=False)`: without a queue, so what is about order does not apply."""

    test_the_first_to_wait_is_the_first_to_get_in = None  # type: ignore[assignment]
    test_an_evicted_waiter_is_told_why = None  # type: ignore[assignment]

    async def _one_waits(self, see: Any) -> None:
        await self.runtime.sleep(0.05)  # it stands nowhere that could be looked at

    def make(self, client: Any, name: str) -> Any:
        return client.lock(name, fair=False)


class RLockAsMutex(Mutexes):
    """`rlock`, between different owners."""

    def make(self, client: Any, name: str) -> Any:
        return client.rlock(name)


class WriteLockAsMutex(Mutexes):
    """The write side of `rwlock`."""

    permits = EVERYTHING
    capacity = EVERYTHING

    def make(self, client: Any, name: str) -> Any:
        self.needs(shares=("any", "pairwise"))
        return client.rwlock(name).write()


class SemaphoreAsMutex(Mutexes):
    """`bounded_semaphore` of 1."""

    refusal = ValueError  # as `threading.BoundedSemaphore`

    def make(self, client: Any, name: str) -> Any:
        return client.bounded_semaphore(name)


class MultiLockAsMutex(Mutexes):
    """`multilock` of one name."""

    def make(self, client: Any, name: str) -> Any:
        return client.multilock([name])

    def lease(self, taken: Any) -> Any:
        return taken.leases[0]


class ElectionAsMutex(Mutexes):
    """`election`."""

    def make(self, client: Any, name: str) -> Any:
        return client.election(name)

    async def take(self, mutex: Any, **how: Any) -> Any:
        return await got(mutex.campaign("candidate", **how))

    async def give(self, mutex: Any) -> None:
        await got(mutex.resign())


MUTEXES: list[type[Suite]] = [
    LockAsMutex,
    UnfairLockAsMutex,
    RLockAsMutex,
    WriteLockAsMutex,
    SemaphoreAsMutex,
    MultiLockAsMutex,
    ElectionAsMutex,
]
