"""Attacks on `with` and `async with`: whoever ends a body gives back that body's lease, whatever is raised."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import interlock
from interlock import aio, events
from interlock.errors import StoreUnfit
from tests.attacks.stage import AsyncStage, Stage, fresh, raises
from tests.patience import PATIENCE


def test_a_body_that_another_task_ends_is_given_back() -> None:
    async def main() -> None:
        async with aio.connect("memory://") as client:
            lock = client.lock("x")
            await asyncio.create_task(lock.__aenter__())
            await asyncio.create_task(lock.__aexit__(None, None, None))
            assert not await lock.locked()

    asyncio.run(main())


def test_bodies_that_another_task_ends_are_given_back_last_first() -> None:
    async def main() -> None:
        async with aio.connect("memory://") as client:
            semaphore = client.semaphore("x", 2)
            first = await asyncio.create_task(semaphore.__aenter__())
            second = await asyncio.create_task(semaphore.__aenter__())
            await semaphore.__aexit__(None, None, None)
            assert (first.state, second.state) == (interlock.State.HELD, interlock.State.RELEASED)
            await semaphore.__aexit__(None, None, None)

    asyncio.run(main())


KINDS = ["lock", "rlock", "write", "semaphore", "multilock"]

SLOWLY: dict[str, Any] = {"ttl": 0.2, "renew": False}


def slow_listener(event: events.Event) -> None:
    """Takes longer than the leases live that it hears of."""
    if isinstance(event, events.Acquired):
        time.sleep(0.3)


def contexts(client: Any) -> dict[str, Any]:
    return {
        "lock": client.lock("x", **SLOWLY),
        "rlock": client.rlock("x", **SLOWLY),
        "read": client.rwlock("x", **SLOWLY).read(),
        "write": client.rwlock("x", **SLOWLY).write(),
        "semaphore": client.semaphore("x", 2, **SLOWLY),
        "multilock": client.multilock(["x", "y"], **SLOWLY),
        "once": client.once("x", **SLOWLY),
    }


CONTEXTS = ["lock", "rlock", "read", "write", "semaphore", "multilock", "once"]


@pytest.mark.parametrize("kind", CONTEXTS)
def test_no_body_begins_under_a_lease_that_is_lost_already(kind: str) -> None:
    url, began = fresh(), []
    with interlock.connect(url, listener=slow_listener, log=False) as client, interlock.connect(url) as judge:
        with pytest.raises(interlock.LeaseLost), contexts(client)[kind]:
            began.append("under a `with`")

        @contexts(client)[kind]
        def decorated() -> None:
            began.append("under a decorator")

        with pytest.raises(interlock.LeaseLost):
            decorated()
        assert began == []
        assert not judge.inspect("x").standings
        with judge.lock("x", timeout=0.0):
            pass


@pytest.mark.parametrize("kind", CONTEXTS)
def test_no_async_body_begins_under_a_lease_that_is_lost_already(kind: str) -> None:
    async def main() -> None:
        url, began = fresh(), []
        async with (
            aio.connect(url, listener=slow_listener, log=False) as client,
            aio.connect(url) as judge,
        ):
            with pytest.raises(interlock.LeaseLost):
                async with contexts(client)[kind]:
                    began.append("under an `async with`")

            @contexts(client)[kind]
            async def decorated() -> None:
                began.append("under a decorator")

            with pytest.raises(interlock.LeaseLost):
                await decorated()
            assert began == []
            assert not (await judge.inspect("x")).standings
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            await asyncio.sleep(0.01)  # nor does the loss cancel what comes after

    asyncio.run(main())


@pytest.mark.parametrize("way", ["with", "acquire"])
def test_a_multilock_that_loses_its_first_lease_while_it_waits_for_its_second_takes_none(way: str) -> None:
    url = fresh()
    with interlock.connect(url) as client, interlock.connect(url) as judge:
        held = judge.lock("y").acquire_or_raise()
        threading.Timer(0.6, held.release).start()
        lock = client.multilock(["x", "y"], ttl=0.3, renew=False)
        with pytest.raises(interlock.LeaseLost, match=r"^x:"):
            if way == "acquire":
                lock.acquire()
            else:
                with lock:
                    raise AssertionError("the body runs, and another may hold x")
        assert not judge.inspect("x").standings
        assert not judge.inspect("y").standings


def test_an_async_multilock_that_loses_its_first_lease_while_it_waits_for_its_second_takes_none() -> None:
    async def main() -> None:
        url = fresh()
        async with aio.connect(url) as client, aio.connect(url) as judge:
            held = await judge.lock("y").acquire_or_raise()

            async def taken() -> None:
                async with client.multilock(["x", "y"], ttl=0.3, renew=False):
                    raise AssertionError("the body runs, and another may hold x")

            task = asyncio.create_task(taken())
            while (await judge.inspect("x")).standings or not (await judge.inspect("y")).waiters:
                await asyncio.sleep(0.01)
            await held.release()
            with pytest.raises(interlock.LeaseLost, match=r"^x:"):
                await task
            assert not (await judge.inspect("y")).standings

    asyncio.run(main())


def made(client: interlock.Client, kind: str) -> interlock.Lock:
    made: object
    if kind == "write":
        made = client.rwlock("x").write()
    elif kind == "multilock":
        made = client.multilock(["x", "y"])
    else:
        made = getattr(client, kind)("x")
    return made  # type: ignore[return-value]


def fail_on_a_full_disk(stage: Stage, kind: str) -> None:
    with made(stage.client, kind):
        stage.store.before["release"] = raises(StoreUnfit("the disk is full"))
        raise KeyError("the body's own")


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_became_unfit_does_not_mask_what_the_body_raised(kind: str) -> None:
    stage = Stage()
    with pytest.raises(KeyError) as caught:
        fail_on_a_full_disk(stage, kind)
    assert any("full" in note for note in caught.value.__notes__)
    stage.store.before.clear()
    stage.client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_unfit_store_could_not_take_back_is_taken_back_once_it_is_fit(kind: str) -> None:
    stage = Stage()
    with pytest.raises(KeyError):
        fail_on_a_full_disk(stage, kind)
    stage.store.before.clear()
    assert made(Stage(shared=stage.store.inner._space).client, kind).acquire(timeout=PATIENCE)
    stage.client.close()


def test_a_release_cancelled_together_with_all_tasks_of_its_loop_is_finished() -> None:
    stage = AsyncStage()
    held, step = asyncio.Event(), asyncio.Event()

    async def slowly(*args: object, **options: object) -> bool:
        step.set()
        await asyncio.sleep(0.05)
        return await stage.store.inner.release(*args, **options)  # type: ignore[arg-type]

    async def hold() -> None:
        async with stage.client.lock("x"):
            held.set()
            await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(hold())
        await held.wait()
        stage.store.instead["release"] = slowly
        task.cancel()
        await step.wait()
        task.cancel()  # in the middle of the first release: now the clean-up runs in a task of its own
        step.clear()
        await step.wait()
        for each in asyncio.all_tasks() - {asyncio.current_task()}:
            each.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not (await stage.store.inner.inspect("x")).standings
        await stage.client.close()

    asyncio.run(main())
