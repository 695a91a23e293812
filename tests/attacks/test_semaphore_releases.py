"""Attacks on `Semaphore.release`: several at once give back what they say together, and no permit stays behind."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

import interlock
from interlock import aio
from interlock.errors import StoreUnavailable
from interlock.testing.lag import at_most, stretched
from tests.attacks.stage import AsyncStage, Stage, eventually, fresh, raises
from tests.patience import PATIENCE


def test_two_tasks_that_release_two_of_four_leases_each_give_back_all_four(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.connect(f"sqlite:///{tmp_path}/locks.db") as client:
            semaphore = client.semaphore("x", 4)
            for _ in range(4):
                assert await semaphore.acquire()
            await asyncio.gather(semaphore.release(2), semaphore.release(2))
            assert not (await client.inspect("x")).standings
            assert "value=4" in repr(semaphore)  # given back, not given to us

    asyncio.run(main())


class Crossing:
    """Holds a request of the first to come until a second release has been decided and sent."""

    def __init__(self) -> None:
        self.first, self.second = threading.Event(), threading.Event()

    def __call__(self, *args: object, **options: object) -> None:
        if not self.first.is_set():
            self.first.set()
            assert self.second.wait(10)


@pytest.mark.parametrize("permits", [2, 3])
def test_two_threads_that_give_back_a_permit_each_of_one_lease_give_back_two(permits: int) -> None:
    stage, crossing = Stage(), Crossing()
    semaphore = stage.client.semaphore("x", 4)
    lease = semaphore.acquire(permits=permits)
    assert lease
    failures: list[BaseException] = []

    def release() -> None:
        try:
            semaphore.release(1)
        except BaseException as failure:
            failures.append(failure)

    stage.store.before["renew"] = crossing
    first = threading.Thread(target=release)
    first.start()
    assert crossing.first.wait(10)  # it has decided what to give back, and its request is under way
    second = threading.Thread(target=release)
    second.start()
    second.join(10)
    crossing.second.set()
    first.join(10)
    assert failures == []
    assert sum(standing.permits for standing in stage.client.inspect("x").standings) == permits - 2
    if permits == 2:
        assert lease.state is interlock.State.RELEASED
    else:
        semaphore.release()
    assert "value=4" in repr(semaphore)
    stage.client.close()


def test_of_two_releases_of_all_there_is_a_bounded_semaphore_refuses_one(tmp_path: Path) -> None:
    async def main() -> tuple[BaseException | None, BaseException | None]:
        async with aio.connect(f"sqlite:///{tmp_path}/locks.db") as client:
            semaphore = client.bounded_semaphore("x", 2)
            await semaphore.acquire()
            await semaphore.acquire()
            told = await asyncio.gather(semaphore.release(2), semaphore.release(2), return_exceptions=True)
            assert not (await client.inspect("x")).standings
            return told

    first, second = asyncio.run(main())
    assert first is None
    assert isinstance(second, ValueError)


def test_many_threads_on_one_object_leave_no_permit_behind() -> None:
    with interlock.connect(fresh()) as client:
        semaphore = client.bounded_semaphore("x", 12)
        for _ in range(12):
            assert semaphore.acquire()
        assert not semaphore.acquire(blocking=False)
        together = threading.Barrier(6)

        def release() -> None:
            together.wait(10)
            semaphore.release(2)

        threads = [threading.Thread(target=release) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert not client.inspect("x").standings
        with pytest.raises(ValueError, match="too many"):
            semaphore.release()


@pytest.mark.parametrize("taken", [[1, 1, 1], [3], [2, 2]])
def test_a_release_that_is_cancelled_gives_back_everything_it_was_asked_to(taken: list[int]) -> None:
    async def main() -> None:
        stage, asked = AsyncStage(), asyncio.Event()
        semaphore = stage.client.semaphore("x", 4)
        for permits in taken:
            assert await semaphore.acquire(permits=permits)

        async def hangs(*args: object, **options: object) -> None:
            asked.set()
            stage.store.instead.clear()
            await asyncio.sleep(60)

        stage.store.instead["release"] = stage.store.instead["renew"] = hangs
        release = asyncio.create_task(semaphore.release(3))
        await asked.wait()
        release.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(release, 10)
        left = sum(standing.permits for standing in (await stage.client.inspect("x")).standings)
        assert left == sum(taken) - 3
        await stage.client.close()

    asyncio.run(main())


def test_a_part_whose_release_got_no_answer_is_not_counted_twice() -> None:
    stage = Stage(ttl=stretched(0.6))
    semaphore = stage.client.semaphore("x", 3)
    assert semaphore.acquire(permits=3)
    stage.store.before["renew"] = raises(StoreUnavailable("no answer"))
    with pytest.raises(StoreUnavailable):
        semaphore.release()
    stage.store.before.clear()
    semaphore.release(2)
    assert not stage.client.inspect("x").standings
    assert "value=3" in repr(semaphore)
    stage.client.close()


HELD_FOR = 0.5  # seconds of min_hold


@pytest.mark.parametrize("renew", [True, False])
@pytest.mark.parametrize("how", ["a part", "a part, then the rest"])
def test_what_is_given_back_early_stays_taken_until_min_hold_is_over(how: str, renew: bool) -> None:
    url = fresh()
    with interlock.connect(url) as client, interlock.connect(url) as other:
        pool = client.semaphore("x", capacity=3, min_hold=HELD_FOR, renew=renew)
        assert pool.acquire(permits=3)
        granted = time.monotonic()
        pool.release(2)
        if "rest" in how:
            pool.release()
        assert other.semaphore("x", capacity=3).acquire(timeout=PATIENCE, permits=2)
        assert time.monotonic() - granted > HELD_FOR - 0.05


def test_a_part_that_is_given_back_early_is_free_when_min_hold_is_over() -> None:
    stage = Stage()
    pool = stage.client.semaphore("x", capacity=3, min_hold=HELD_FOR)
    lease = pool.acquire(permits=3)
    assert lease
    with at_most(HELD_FOR + 1.0):
        pool.release(2)
        assert stage.store.asked == ["claim"]
        eventually(lambda: stage.client.inspect("x").standings[0].permits == 1)
    lease.check()
    pool.release()
    stage.client.close()
