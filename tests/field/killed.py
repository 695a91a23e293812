"""Those who wait for each other are killed: at a barrier, in its action, on a condition, with a notification in hand."""

from __future__ import annotations

from typing import Any

from interlock._core import timing
from interlock.errors import BrokenBarrier
from interlock.testing.conformance import Suite, ask, got, refused, within
from interlock.testing.lag import stretched
from tests.field.process import Process, Told

TTL = 1.0  # seconds that those who wait live on after their death, on a quiet machine; otherwise 10
PATIENCE = 60.0
SHORTER = "from interlock._core import timing; timing.PLACE_TTL_S = {ttl}"


class Meeting(Suite):
    """What all who wait for each other need."""

    def prepare(self) -> None:
        self._usual = timing.PLACE_TTL_S
        timing.PLACE_TTL_S = stretched(TTL)

    async def tidy(self) -> None:
        timing.PLACE_TTL_S = self._usual

    def process(self) -> Process:
        self.needs(reach=("machine", "network"), registers=True)
        process = Process(self.face.name, self.place)
        process.tell(SHORTER.format(ttl=timing.PLACE_TTL_S))
        return process

    async def arrived(self, barrier: Any, count: int) -> None:
        async def so() -> bool:
            return bool(await ask(barrier, "n_waiting") == count)

        await self.until(so, PATIENCE)

    async def waiting(self, count: int) -> None:
        """Once so many stand on the condition, and none of them has the lock."""
        store = self.store()

        async def so() -> bool:
            names = await store.scan(self.name, "", 10)
            if self.name in names:
                return False
            return count == sum([len((await store.inspect(name)).standings) for name in names])

        await self.until(so, PATIENCE)


class Killed(Meeting):
    """The dead do not count, and they keep nothing that others wait for."""

    async def test_a_death_in_the_action_breaks_the_barrier_for_the_others(self) -> None:
        barrier = self.client().barrier(self.name, 2)
        first = self.spawn(lambda: got(barrier.wait()))
        await self.arrived(barrier, 1)
        with self.process() as dead:
            dead.send(f"await got(client.barrier({self.name!r}, 2, lambda: time.sleep(60)).wait())")
            await self.arrived(barrier, 0)  # all are there, and the action runs
            assert not first.ended()
            dead.kill()
        await refused(BrokenBarrier, first.result)
        assert await ask(barrier, "broken")
        await got(barrier.reset())

    async def test_a_notification_that_met_a_killed_waiter_goes_to_the_next(self) -> None:
        condition = self.client().condition(self.name)

        async def wait() -> bool:
            mine = self.client().condition(self.name)
            async with within(mine):
                return bool(await got(mine.wait(90)))

        with self.process() as dead:
            dead.send(WAIT.format(name=self.name))
            await self.waiting(1)
            second = self.spawn(wait)
            await self.waiting(2)
            dead.kill()
        async with within(condition):
            await got(condition.notify())
        assert await second.result() is True


class KilledAndPaused(Meeting):
    """Deaths and pauses at other moments: the algorithm is the same on every store, so one is enough."""

    async def test_a_killed_party_is_withdrawn_from_its_barrier(self) -> None:
        barrier = self.client().barrier(self.name, 2)
        with self.process() as dead:
            dead.send(f"await got(client.barrier({self.name!r}, 2).wait())")
            await self.arrived(barrier, 1)
            dead.kill()
        await self.arrived(barrier, 0)
        first = self.spawn(lambda: got(barrier.wait(90)))
        await self.arrived(barrier, 1)
        assert not first.ended()
        last = await got(self.client().barrier(self.name, 2).wait(90))
        assert sorted([await first.result(), last]) == [0, 1]

    async def test_a_party_that_was_paused_does_not_pass_with_those_who_counted_without_it(self) -> None:
        barrier = self.client().barrier(self.name, 2)
        with self.process() as paused:
            paused.send(f"await got(client.barrier({self.name!r}, 2).wait(90))")
            await self.arrived(barrier, 1)
            paused.stop()
            await self.arrived(barrier, 0)
            first = self.spawn(lambda: got(barrier.wait(90)))
            await self.arrived(barrier, 1)
            second = self.spawn(lambda: got(self.client().barrier(self.name, 2).wait(90)))
            assert sorted([await first.result(), await second.result()]) == [0, 1]
            paused.resume()
            assert (await refused(Told, lambda: paused.answer(PATIENCE))).kind == "BrokenBarrier"

    async def test_a_party_that_was_paused_arrives_again(self) -> None:
        barrier = self.client().barrier(self.name, 3)
        with self.process() as paused:
            paused.send(f"await got(client.barrier({self.name!r}, 3).wait(90))")
            await self.arrived(barrier, 1)
            paused.stop()
            await self.arrived(barrier, 0)
            first = self.spawn(lambda: got(barrier.wait(90)))
            await self.arrived(barrier, 1)
            paused.resume()
            await self.arrived(barrier, 2)
            last = await got(self.client().barrier(self.name, 3).wait(90))
            assert sorted([await first.result(), paused.answer(PATIENCE), last]) == [0, 1, 2]

    async def test_a_waiter_that_is_killed_before_it_has_the_lock_again_keeps_no_notification(self) -> None:
        condition = self.client().condition(self.name)

        async def wait() -> bool:
            mine = self.client().condition(self.name)
            async with within(mine):
                return bool(await got(mine.wait(90)))

        with self.process() as dead:
            dead.send(WAIT.format(name=self.name))
            await self.waiting(1)
            second = self.spawn(wait)
            await self.waiting(2)
            async with within(condition):
                await got(condition.notify())
                await self.standing(self.client(), 1, 1)  # it was woken, and waits for the lock
                dead.kill()
        assert await second.result() is True


WAIT = """
condition = client.condition({name!r})
async with within(condition):
    await got(condition.wait())
"""
