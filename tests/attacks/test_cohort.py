"""Attacks on those who pass a lock on among themselves: no token twice, no claim lost on the way, nobody forgotten."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial

import pytest

from interlock import aio
from interlock._core.cohort import BLOCK, TURN
from interlock.blocking import Lease
from interlock.errors import ClientClosed, LeaseLost
from tests.attacks.stage import AsyncStage, Stage, eventually


def waiting(stage: Stage | AsyncStage, resource: str = "x") -> int:
    """How many stand behind the head."""
    head = stage.core.cohort._heads.get(resource)
    return 0 if head is None else len(head.followers or ())


def stands(stage: Stage, count: int) -> bool:
    return waiting(stage) == count


def crowd(stage: Stage, count: int, ttl: float = 30.0) -> tuple[list[threading.Thread], list[Lease]]:
    """Threads that take the lock one after the other, and the leases they had; all wait when this returns."""
    leases: list[Lease] = []

    def take() -> None:
        with stage.client.lock("x", ttl=ttl) as lease:
            leases.append(lease)

    threads = [threading.Thread(target=take, daemon=True) for _ in range(count)]
    for number, thread in enumerate(threads, 1):
        thread.start()
        eventually(partial(stands, stage, number))
    return threads, leases


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()


def test_those_who_wait_in_one_client_pass_the_claim_on_with_rising_tokens() -> None:
    stage = Stage()
    with stage.client.lock("x") as first:
        threads, leases = crowd(stage, 5)
        assert stage.store.asked == ["claim"], "who stands behind the head asks nobody"
    joined(threads)
    tokens = [first.token, *(lease.token for lease in leases)]
    assert tokens == list(range(first.token, first.token + 6))
    assert len({lease._claim.id for lease in leases} | {first._claim.id}) == 1
    assert stage.store.asked == ["claim", "release"]
    stage.client.close()


def test_a_turn_is_over_after_so_many_tokens_and_the_next_are_above_them() -> None:
    stage = Stage()
    with stage.client.lock("x") as first:
        threads, leases = crowd(stage, BLOCK + 3)
    joined(threads)
    tokens = [first.token, *(lease.token for lease in leases)]
    assert sorted(set(tokens)) == tokens
    assert tokens[BLOCK] >= tokens[0] + BLOCK, "the block was the first claim's alone"
    assert stage.store.asked.count("claim") == 2
    assert stage.store.asked.count("release") == 2
    stage.client.close()


def test_an_heir_inherits_what_is_left_not_a_whole_ttl() -> None:
    stage = Stage()
    with stage.client.lock("x", ttl=20.0) as first:
        threads, leases = crowd(stage, 1, ttl=20.0)
        deadline = first.deadline
    joined(threads)
    assert leases[0].deadline == deadline
    stage.client.close()


def test_what_is_held_for_long_is_queued_for_in_the_store() -> None:
    stage = Stage()
    with stage.client.lock("x"):
        threads, leases = crowd(stage, 1)
        eventually(lambda: stage.store.asked.count("claim") == 2, within=TURN + 2.0)
    joined(threads)
    assert leases
    stage.client.close()


def test_who_wants_another_ttl_asks_the_store_for_itself() -> None:
    stage = Stage()
    with stage.client.lock("x", ttl=20.0) as lease:
        assert stage.client.lock("x", ttl=10.0).acquire(timeout=0.01) is None
        lease.check()
    assert stage.store.asked[:2] == ["claim", "claim"]
    stage.client.close()


def test_a_lease_that_was_lost_is_not_passed_on() -> None:
    stage = Stage()
    lock = stage.client.lock("x")
    first = lock.acquire()
    assert first
    threads, leases = crowd(stage, 1)
    asyncio.run(stage.store.inner.evict("x", None, "maintenance"))
    with pytest.raises(LeaseLost):
        first.renew()
    assert not stage.core.cohort._heads or stage.core.cohort._heads["x"].lease is not first
    joined(threads)
    assert leases[0]._claim.id != first._claim.id
    with pytest.raises(LeaseLost):
        first.release()
    stage.client.close()


def test_a_release_after_it_was_passed_on_does_not_touch_the_heir() -> None:
    stage = Stage()
    first = stage.client.lock("x").acquire()
    assert first
    holds, go = threading.Event(), threading.Event()

    def take() -> None:
        with stage.client.lock("x") as lease:
            holds.set()
            assert go.wait(5)
            lease.check()

    heir = threading.Thread(target=take, daemon=True)
    heir.start()
    eventually(lambda: waiting(stage) == 1)
    first.release()
    assert holds.wait(5)
    with pytest.raises(RuntimeError, match="released before"):
        first.release()
    assert asyncio.run(stage.store.inner.inspect("x")).holders
    go.set()
    joined([heir])
    stage.client.close()


def test_closing_wakes_those_behind_the_head() -> None:
    stage = Stage()
    assert stage.client.lock("x").acquire()
    errors: list[BaseException] = []

    def take() -> None:
        try:
            stage.client.lock("x").acquire()
        except BaseException as error:
            errors.append(error)

    waiter = threading.Thread(target=take, daemon=True)
    waiter.start()
    eventually(lambda: waiting(stage) == 1)
    began = time.monotonic()
    stage.client.close()
    joined([waiter])
    assert time.monotonic() - began < 2.0
    assert isinstance(errors[0], ClientClosed)


def test_an_heir_that_is_cancelled_when_its_turn_comes_gives_the_claim_back() -> None:
    async def main() -> None:
        stage = AsyncStage()
        lease = await stage.client.lock("x").acquire()
        assert lease
        heir = asyncio.create_task(stage.client.lock("x").__aenter__())
        while not waiting(stage):
            await asyncio.sleep(0)
        await lease.release()  # the heir has it now, and does not know yet
        heir.cancel()
        with pytest.raises(asyncio.CancelledError):
            await heir
        assert not (await stage.store.inner.inspect("x")).standings
        assert await stage.client.lock("x").acquire(blocking=False)
        await stage.client.close()

    asyncio.run(main())


def test_one_of_the_cohort_that_gives_up_is_passed_over() -> None:
    async def main() -> None:
        stage = AsyncStage()
        lease = await stage.client.lock("x").acquire()
        assert lease
        tasks: list[asyncio.Task[aio.Lease | None]] = []
        for number in range(3):
            tasks.append(asyncio.create_task(stage.client.lock("x").acquire()))
            while waiting(stage) != number + 1:
                await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.sleep(0)
        await lease.release()
        second = await asyncio.wait_for(tasks[1], 2.0)
        assert second
        assert second.token == lease.token + 1
        await second.release()
        third = await asyncio.wait_for(tasks[2], 2.0)
        assert third
        await third.release()
        await stage.client.close()

    asyncio.run(main())
