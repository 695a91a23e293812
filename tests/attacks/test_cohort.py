"""Attacks on those who pass a lock on among themselves: no token twice, no claim lost on the way, nobody forgotten."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

import pytest

from interlock import aio, events
from interlock._core.cohort import BLOCK, TURN
from interlock._core.drive import drive
from interlock._runtime import lifetimes
from interlock.blocking import Lease
from interlock.errors import ClientClosed, LeaseLost, StoreUnavailable
from interlock.model import Gone
from tests.attacks.stage import AsyncStage, Stage, eventually, space


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


# ---- what once broke it ------------------------------------------------------------


async def behind(stage: AsyncStage, count: int, *, ttl: float = 30.0) -> asyncio.Task[aio.Lease | None]:
    """One more who stands behind the head, as the last of `count`."""
    task = asyncio.create_task(stage.client.lock("x", ttl=ttl).acquire())
    while waiting(stage) != count:
        await asyncio.sleep(0)
    return task


async def held(stage: AsyncStage, ttl: float = 30.0) -> aio.Lease:
    lease = await stage.client.lock("x", ttl=ttl).acquire()
    assert lease
    return lease


def test_an_heir_that_is_cancelled_twice_is_no_head_any_more() -> None:
    async def main() -> None:
        stage = AsyncStage()
        lease = await held(stage)
        heir = await behind(stage, 1)
        reached, go = asyncio.Event(), asyncio.Event()

        async def slowly(*args: Any, **options: Any) -> bool:
            reached.set()
            await go.wait()
            return await stage.store.inner.release(*args, **options)

        await lease.release()  # passed on
        stage.store.instead["release"] = slowly
        heir.cancel()
        await asyncio.wait_for(reached.wait(), 2.0)
        heir.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await heir
        assert not stage.core.cohort._heads, "all who come later would stand behind it for nothing"
        await stage.client.close()

    asyncio.run(main())


def test_nobody_inherits_a_lease_of_another_ttl_from_one_who_came_between() -> None:
    async def main() -> None:
        stage = AsyncStage()
        first = await held(stage, ttl=20.0)
        patient = await behind(stage, 1, ttl=20.0)
        first._turn -= TURN  # the turn is over: whoever comes now does not stand behind it
        hasty = asyncio.create_task(stage.client.lock("x", ttl=10.0).acquire())
        await asyncio.sleep(0)
        await first.release()

        async def ttl_of(task: asyncio.Task[aio.Lease | None]) -> float:
            lease = await task
            assert lease
            await lease.release()
            return lease.ttl

        ttls = await asyncio.wait_for(asyncio.gather(ttl_of(patient), ttl_of(hasty)), 2.0)
        assert [*ttls] == [20.0, 10.0]
        await stage.client.close()

    asyncio.run(main())


def test_who_came_first_asks_first_when_the_turn_is_over() -> None:
    async def main() -> None:
        stage = AsyncStage()
        first = await held(stage)
        early = await behind(stage, 1)
        first._turn -= TURN
        late = asyncio.create_task(stage.client.lock("x").acquire())
        for _ in range(5):
            await asyncio.sleep(0)
        await first.release()
        done, _pending = await asyncio.wait({early, late}, timeout=2.0, return_when="FIRST_COMPLETED")
        assert done == {early}
        late.cancel()
        await stage.client.close()

    asyncio.run(main())


def test_what_is_on_its_way_to_an_heir_when_the_client_closes_is_given_back() -> None:
    async def main() -> None:
        stage = AsyncStage()
        lease = await held(stage)
        heir = await behind(stage, 1)

        async def over_the_wire(*args: Any, **options: Any) -> bool:
            await asyncio.sleep(0.01)
            if "close" in stage.store.asked:
                raise StoreUnavailable("the connection was closed")
            return await stage.store.inner.release(*args, **options)

        stage.store.instead["release"] = over_the_wire
        await lease.release()
        await stage.client.close()
        with pytest.raises(ClientClosed):
            await heir
        assert not (await stage.store.inner.inspect("x")).standings

    asyncio.run(main())


def test_what_is_on_its_way_to_an_heir_when_the_process_ends_is_given_back() -> None:
    async def main() -> None:
        stage = AsyncStage()
        lease = await held(stage)
        heir = await behind(stage, 1)
        await lease.release()
        lifetimes._give_back(stage.core, stage.core.runtime.now() + 1.0)
        assert not (await stage.store.inner.inspect("x")).standings
        heir.cancel()
        await stage.client.close()

    asyncio.run(main())


def test_one_whose_event_loop_is_gone_inherits_nothing() -> None:
    stage = AsyncStage()
    here, there = asyncio.new_event_loop(), asyncio.new_event_loop()
    lease = here.run_until_complete(held(stage))
    left_behind = there.run_until_complete(behind(stage, 1))
    there.close()
    here.run_until_complete(lease.release())
    assert not here.run_until_complete(stage.store.inner.inspect("x")).standings
    here.run_until_complete(stage.client.close())
    here.close()
    assert not left_behind.done()


def test_nobody_stands_behind_a_head_whose_event_loop_is_gone() -> None:
    shared = space()
    stage, other = AsyncStage(ttl=0.3, shared=shared), Stage(shared=shared)
    here, there = asyncio.new_event_loop(), asyncio.new_event_loop()
    lease = other.client.lock("x").acquire()
    assert lease
    head = there.create_task(stage.client.lock("x").acquire())

    async def it_waits() -> None:
        while "wait" not in stage.store.asked:
            await asyncio.sleep(0)

    there.run_until_complete(it_waits())
    there.close()
    lease.release()
    eventually(lambda: not asyncio.run(other.store.inner.inspect("x")).standings)
    got = here.run_until_complete(stage.client.lock("x").acquire(timeout=TURN / 2))
    assert got
    here.run_until_complete(stage.client.close())
    here.close()
    other.client.close()
    assert not head.done()


def test_an_heir_that_wakes_too_late_does_not_get_what_has_lapsed() -> None:
    async def main() -> None:
        stage = AsyncStage(ttl=0.2)
        lease = await held(stage, ttl=0.2)
        heir = await behind(stage, 1, ttl=0.2)
        await lease.release()
        time.sleep(0.3)  # the event loop is stuck, and nobody renews what is on its way
        got = await asyncio.wait_for(heir, 2.0)
        assert got
        got.check()
        assert got.token >= lease.token + BLOCK
        await stage.client.close()

    asyncio.run(main())


def test_a_lease_is_not_passed_on_while_the_store_is_asked_about_it() -> None:
    stage = Stage()
    first = stage.client.lock("x").acquire()
    assert first
    asked, go = threading.Event(), threading.Event()

    async def gone(*args: Any, **options: Any) -> list[Gone]:
        asked.set()
        assert go.wait(5)
        return [Gone()]

    stage.store.instead["renew"] = gone
    failures: list[BaseException] = []

    def renew() -> None:
        try:
            first.renew()
        except BaseException as error:
            failures.append(error)

    threads, leases = crowd(stage, 1)
    renewing = threading.Thread(target=renew, daemon=True)
    renewing.start()
    assert asked.wait(5)
    first.release()
    go.set()
    joined([renewing, *threads])
    assert leases[0]._claim.id != first._claim.id, "nobody would have told the heir of the answer"
    stage.client.close()


def test_a_doubt_while_a_lease_is_on_its_way_is_the_heirs() -> None:
    async def main() -> None:
        stage = AsyncStage()
        lease = await held(stage)
        heir = await behind(stage, 1)
        await lease.release()
        stage.core.keeper.doubt()  # another server took over
        eventually(lambda: stage.core.keeper._verified >= stage.core.keeper._doubted)
        assert "renew" not in stage.plain.asked, "nobody had it"
        assert await asyncio.wait_for(heir, 2.0)
        eventually(lambda: "renew" in stage.plain.asked, within=2.0)
        await stage.client.close()

    asyncio.run(main())


def test_one_interrupted_before_it_had_its_lease_does_not_take_it_from_the_heir() -> None:
    stage = Stage()
    lock = stage.client.lock("x")
    attempt = lock._core.attempt()
    first = drive(attempt.run())
    assert first
    holds, go = threading.Event(), threading.Event()

    def take() -> None:
        with stage.client.lock("x"):
            holds.set()
            assert go.wait(5)

    heir = threading.Thread(target=take, daemon=True)
    heir.start()
    eventually(lambda: waiting(stage) == 1)
    other = threading.Thread(target=lock.release, daemon=True)  # as threading: any thread may
    other.start()
    assert holds.wait(5)
    joined([other])
    drive(attempt.undo())  # Ctrl-C, before `acquire` has returned
    assert asyncio.run(stage.store.inner.inspect("x")).holders
    go.set()
    joined([heir])
    stage.client.close()


def test_how_long_an_heir_waited_is_reported() -> None:
    stage = Stage()
    with stage.client.lock("x"):
        threads, _ = crowd(stage, 1)
        time.sleep(TURN / 4)
    joined(threads)
    waits = [event.waited for event in stage.events if isinstance(event, events.Acquired)]
    assert waits[1] >= TURN / 4
    stage.client.close()
