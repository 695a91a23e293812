"""What semaphores promise: so many permits and no more, weighed, given back in parts."""

from __future__ import annotations

from functools import partial
from typing import Any

from interlock._core.states import State
from interlock.errors import InvalidSetting, SettingsMismatch
from interlock.testing.conformance.face import PATIENCE, got, refused, within
from interlock.testing.conformance.suite import Suite


class Semaphores(Suite):
    """`semaphore` and `bounded_semaphore`."""

    def semaphore(self, capacity: int, client: Any = None, **options: Any) -> Any:
        self.needs(shares="any")
        return (client or self.client()).semaphore(self.name, capacity, **options)

    async def test_as_many_hold_as_there_are_permits(self) -> None:
        semaphores = [self.semaphore(3) for _ in range(4)]
        leases = [await got(semaphore.acquire(blocking=False)) for semaphore in semaphores]
        assert [bool(lease) for lease in leases] == [True, True, True, False]
        assert leases[3] is False
        assert await got(semaphores[3].locked())
        await got(semaphores[0].release())
        assert not await got(semaphores[3].locked())
        for semaphore in semaphores[1:3]:
            await got(semaphore.release())

    async def test_a_heavy_claim_takes_several_permits_at_once(self) -> None:
        ours, theirs = self.semaphore(5), self.semaphore(5)
        lease = await got(ours.acquire(permits=4))
        assert lease.permits == 4
        assert not await got(theirs.acquire(blocking=False, permits=2))
        assert await got(theirs.acquire(blocking=False))
        await got(ours.release(4))
        await got(theirs.release())

    async def test_a_part_can_be_given_back_under_the_same_token(self) -> None:
        ours, theirs = self.semaphore(4), self.semaphore(4)
        lease = await got(ours.acquire(permits=4))
        token = lease.token
        await got(ours.release(3))
        assert (lease.permits, lease.token, lease.state) == (1, token, State.HELD)
        assert await got(theirs.acquire(blocking=False, permits=3))
        await got(theirs.release(3))
        await got(ours.release())
        assert lease.state is State.RELEASED

    async def test_giving_a_part_back_lets_a_waiter_in(self) -> None:
        self.needs(fair=True)
        ours, theirs, see = self.semaphore(3), self.semaphore(3), self.client()
        await got(ours.acquire(permits=3))

        async def take() -> None:
            assert await got(theirs.acquire(timeout=PATIENCE))
            await got(theirs.release())

        waiter = self.spawn(take)
        await self.standing(see, holders=1, waiters=1)
        await got(ours.release())
        await waiter.result()
        await got(ours.release(2))

    async def test_min_hold_keeps_those_out_who_wait_already(self) -> None:
        await self.keeps_min_hold(
            lambda client, min_hold: self.semaphore(2, client, min_hold=min_hold), capacity=2
        )

    async def test_a_heavy_waiter_is_not_starved_by_light_ones(self) -> None:
        self.needs(fair=True)
        light, see = self.semaphore(2), self.client()
        await got(light.acquire())
        heavy = self.semaphore(2)

        async def take() -> None:
            assert await got(heavy.acquire(permits=2, timeout=PATIENCE))
            await got(heavy.release(2))

        waiter = self.spawn(take)
        await self.standing(see, holders=1, waiters=1)
        assert not await got(self.semaphore(2).acquire(timeout=0.05))
        await got(light.release())
        await waiter.result()

    async def test_contenders_that_disagree_on_the_capacity_are_told(self) -> None:
        ours, theirs = self.semaphore(3), self.semaphore(4)
        await got(ours.acquire())
        error = await refused(SettingsMismatch, theirs.acquire)
        assert (error.asked, error.standing) == (4, 3)
        await refused(SettingsMismatch, self.client().lock(self.name).acquire)
        await got(ours.release())
        assert await got(theirs.acquire())
        await got(theirs.release())

    async def test_more_permits_than_there_are_can_never_be_had(self) -> None:
        semaphore = self.semaphore(2)
        for permits in (3, 0, -1):
            await refused(ValueError, partial(semaphore.acquire, permits=permits))
        await refused(TypeError, lambda: semaphore.acquire(permits=1.5))
        await refused(InvalidSetting, lambda: self.semaphore(0))

    async def test_a_body_holds_one_permit(self) -> None:
        semaphore, see = self.semaphore(2), self.client()
        async with within(semaphore) as one, within(semaphore) as other:
            assert one.token != other.token
            assert semaphore.owned()
            assert not await got(semaphore.acquire(blocking=False))
        await self.standing(see, holders=0, waiters=0)

    async def test_a_permit_too_many_is_kept_for_the_object_it_was_given_to(self) -> None:
        client = self.client()
        ours, theirs = self.semaphore(1, client), self.semaphore(1)
        await got(ours.release())
        assert await got(ours.acquire(blocking=False))
        assert await got(ours.acquire(blocking=False))
        assert not await got(ours.acquire(blocking=False))
        assert not await got(theirs.acquire(blocking=False))
        await got(ours.release(2))

    async def test_a_bounded_semaphore_refuses_permits_it_never_gave_out(self) -> None:
        self.needs(shares="any")
        semaphore = self.client().bounded_semaphore(self.name, 2)
        await got(semaphore.acquire())
        await refused(ValueError, lambda: semaphore.release(2))
        await got(semaphore.release())
        await refused(ValueError, semaphore.release)

    async def test_never_more_inside_than_permits(self) -> None:
        inside, most = list[int](), list[int]()

        async def work() -> None:
            semaphore = self.semaphore(2)
            for _ in range(5):
                async with within(semaphore):
                    inside.append(1)
                    most.append(len(inside))
                    await self.runtime.sleep(0.0005)
                    inside.pop()

        for worker in [self.spawn(work) for _ in range(5)]:
            await worker.result()
        assert max(most) <= 2
