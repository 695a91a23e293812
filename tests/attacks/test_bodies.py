"""Attacks on `with` and `async with`: whoever ends a body gives back that body's lease, whatever is raised."""

from __future__ import annotations

import asyncio

import pytest

import interlock
from interlock import aio
from interlock.errors import StoreUnfit
from tests.attacks.stage import AsyncStage, Stage, raises
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
