"""Where processes wait for each other: barriers and conditions."""

from __future__ import annotations

from typing import Any, ClassVar

from interlock.errors import BrokenBarrier, NotHeld, SettingsMismatch
from interlock.testing.conformance.face import Actor, ask, got, refused, within
from interlock.testing.conformance.suite import Suite


class Barriers(Suite):
    """`barrier`."""

    wanted: ClassVar[dict[str, object]] = {"registers": True}

    def arrive(self, parties: int, timeout: float | None = 10, **options: Any) -> Actor:
        barrier = self.client().barrier(self.name, parties, **options)
        return self.spawn(lambda: got(barrier.wait(timeout)))

    async def arrived(self, barrier: Any, count: int) -> None:
        async def so() -> bool:
            return bool(await ask(barrier, "n_waiting") == count)

        await self.until(so)

    async def test_nobody_passes_before_all_have_arrived(self) -> None:
        barrier = self.client().barrier(self.name, 3)
        assert barrier.parties == 3
        first = self.arrive(3)
        await self.arrived(barrier, 1)
        second = self.arrive(3)
        await self.arrived(barrier, 2)
        assert not first.ended()
        assert await got(barrier.wait(10)) == 2
        assert sorted([await first.result(), await second.result()]) == [0, 1]
        assert await ask(barrier, "n_waiting") == 0
        assert not await ask(barrier, "broken")

    async def test_it_can_be_passed_again_and_again(self) -> None:
        passed = list[int]()

        async def work() -> None:
            barrier = self.client().barrier(self.name, 3)
            for turn in range(4):
                await got(barrier.wait(10))
                passed.append(turn)
                await got(barrier.wait(10))
                assert passed.count(turn) == 3

        for actor in [self.spawn(work) for _ in range(3)]:
            await actor.result()

    async def test_the_last_to_arrive_runs_the_action_before_anybody_passes(self) -> None:
        ran = list[int]()
        barrier = self.client().barrier(self.name, 2, lambda: ran.append(1))
        first = self.spawn(lambda: got(barrier.wait(10)))
        await self.arrived(barrier, 1)
        assert ran == []
        await got(barrier.wait(10))
        assert ran == [1]
        await first.result()
        assert ran == [1]

    async def test_an_action_that_fails_breaks_the_barrier(self) -> None:
        def fail() -> None:
            raise KeyError("mine")

        first = self.arrive(2)
        barrier = self.client().barrier(self.name, 2, fail)
        await self.arrived(barrier, 1)
        await refused(KeyError, lambda: barrier.wait(10))
        await refused(BrokenBarrier, first.result)
        assert await ask(barrier, "broken")

    async def test_a_timeout_breaks_it_for_everybody(self) -> None:
        barrier = self.client().barrier(self.name, 3)
        patient = self.arrive(3)
        await self.arrived(barrier, 1)
        await refused(BrokenBarrier, lambda: barrier.wait(0.05))
        await refused(BrokenBarrier, patient.result)
        assert await ask(barrier, "broken")
        await refused(BrokenBarrier, lambda: barrier.wait(1))

    async def test_reset_throws_out_who_waits_and_mends_it(self) -> None:
        barrier = self.client().barrier(self.name, 2)
        thrown = self.arrive(2)
        await self.arrived(barrier, 1)
        await got(barrier.reset())
        await refused(BrokenBarrier, thrown.result)
        assert not await ask(barrier, "broken")
        again = self.arrive(2)
        assert await got(barrier.wait(10)) in (0, 1)
        await again.result()

    async def test_abort_breaks_it_until_it_is_reset(self) -> None:
        barrier = self.client().barrier(self.name, 2)
        waiting = self.arrive(2)
        await self.arrived(barrier, 1)
        await got(barrier.abort())
        await refused(BrokenBarrier, waiting.result)
        assert await ask(barrier, "broken")
        await got(barrier.reset())
        assert not await ask(barrier, "broken")

    async def test_those_who_disagree_on_the_parties_are_told(self) -> None:
        barrier = self.client().barrier(self.name, 2)
        waiting = self.arrive(2)
        await self.arrived(barrier, 1)
        await refused(SettingsMismatch, lambda: self.client().barrier(self.name, 3).wait(1))
        await got(barrier.wait(10))
        await waiting.result()


class Conditions(Suite):
    """`condition`. Its waiters are claims, so the trait that matters is `shares`."""

    def condition(self) -> Any:
        self.needs(shares=("any", "pairwise"))
        return self.client().condition(self.name)

    def waiting(self, timeout: float | None = 10) -> Actor:
        async def wait() -> bool:
            condition = self.condition()
            async with within(condition):
                return bool(await got(condition.wait(timeout)))

        return self.spawn(wait)

    async def waiters(self, count: int) -> None:
        """Once so many wait for a notification."""
        store = self.store()

        async def so() -> bool:
            names = [name for name in await store.scan(self.name, "", 10) if name != self.name]
            return count == sum([len((await store.inspect(name)).standings) for name in names])

        await self.until(so)

    async def test_one_notification_wakes_one_who_waits(self) -> None:
        condition = self.condition()
        waiting = [self.waiting() for _ in range(3)]
        await self.waiters(3)
        async with within(condition):
            await got(condition.notify())
        await self.until(lambda: sum(actor.ended() for actor in waiting) == 1)
        await self.waiters(2)
        async with within(condition):
            await got(condition.notify_all())
        assert [await actor.result() for actor in waiting] == [True] * 3

    async def test_the_first_to_wait_is_the_first_to_be_notified(self) -> None:
        condition = self.condition()
        first = self.waiting()
        await self.waiters(1)
        second = self.waiting()
        await self.waiters(2)
        async with within(condition):
            await got(condition.notify())
        assert await first.result() is True
        assert not second.ended()
        async with within(condition):
            await got(condition.notify(5))
        assert await second.result() is True

    async def test_a_notification_nobody_waits_for_is_not_kept(self) -> None:
        condition = self.condition()
        async with within(condition):
            await got(condition.notify())
            assert await got(condition.wait(0.05)) is False

    async def test_the_lock_is_held_again_when_a_wait_ends(self) -> None:
        condition = self.condition()
        waiting = list[bool]()

        async def wait() -> None:
            mine = self.condition()
            async with within(mine):
                await got(mine.wait(10))
                waiting.append(mine._lock.owned())

        actor = self.spawn(wait)
        await self.waiters(1)
        async with within(condition):
            await got(condition.notify())
            await self.waiters(0)
            assert waiting == []  # notified, but we still hold the lock
        await actor.result()
        assert waiting == [True]

    async def test_a_wait_gives_up_the_lock_however_deep_and_takes_it_back_as_deep(self) -> None:
        client = self.client()
        self.needs(shares=("any", "pairwise"))
        lock = client.rlock(self.name)
        condition = client.condition(self.name, lock)

        async def wait() -> None:
            async with within(lock), within(condition), within(lock):
                await got(condition.wait(10))
                assert lock.owned()
            assert not lock.owned()

        actor = self.spawn(wait)
        await self.waiters(1)
        other = self.condition()
        async with within(other):
            await got(other.notify())
        await actor.result()

    async def test_wait_for_waits_for_the_predicate(self) -> None:
        value = [0]

        async def wait() -> Any:
            condition = self.condition()
            async with within(condition):
                return await got(condition.wait_for(lambda: value[0] == 2, 10))

        actor = self.spawn(wait)
        condition = self.condition()
        for _ in range(2):
            await self.waiters(1)
            async with within(condition):
                value[0] += 1
                await got(condition.notify())
            await self.waiters(1 if value[0] < 2 else 0)
        assert await actor.result() is True

    async def test_a_plain_lock_will_do(self) -> None:
        self.needs(shares=("any", "pairwise"))
        client = self.client()

        async def wait() -> bool:
            condition = client.condition(self.name, client.lock(self.name))
            async with within(condition):
                return bool(await got(condition.wait(10)))

        actor = self.spawn(wait)
        await self.waiters(1)
        condition = client.condition(self.name, client.lock(self.name))
        async with within(condition):
            await got(condition.notify())
        assert await actor.result() is True

    async def test_who_does_not_hold_the_lock_can_neither_wait_nor_notify(self) -> None:
        condition = self.condition()
        await refused(NotHeld, lambda: condition.wait(1))
        await refused(NotHeld, condition.notify)
        await refused(NotHeld, condition.notify_all)
