"""Attacks on those who must not be held up: the keeper, callers that were cancelled, and whoever closes a client."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import aio, events
from interlock._core.drive import drive
from interlock._core.lease import Lease
from interlock.errors import ClientClosed, StoreUnavailable
from interlock.model import Renewal
from interlock.testing.lag import at_most
from tests.attacks.stage import AsyncStage, Stage, eventually
from tests.patience import PATIENCE


def hangs(name: str = "dead", hung: list[str] | None = None) -> Callable[..., object]:
    """A part of the store that does not answer: each request takes all the time it is given."""

    def call(resource: str, id: str, linger: float = 0.0, timeout: float = 5.0) -> None:
        if resource.startswith(name):
            if hung is not None:
                hung.append(resource)
            time.sleep(timeout)
            raise StoreUnavailable("no answer")

    return call


def test_pending_releases_to_a_part_that_hangs_cost_no_lease_on_another() -> None:
    stage = Stage()
    stage.store.inner.part = lambda resource: resource[:4]  # type: ignore[method-assign]
    healthy = stage.client.lock("healthy", ttl=1.5).acquire()
    assert healthy
    hung: list[str] = []
    dead = [stage.client.lock(f"dead{number}").acquire() for number in range(40)]
    stage.store.before["release"] = hangs(hung=hung)
    for lease in dead:
        assert lease
        with stage.core.mutex:  # handed to the keeper, all at once
            lease.release()
    eventually(lambda: len(hung) >= 3, PATIENCE)  # three rounds in which the part was asked in vain
    healthy.check()
    assert len(hung) < 40, "each claim waited for the part that hangs"
    stage.store.before.clear()
    eventually(lambda: not any(name.startswith("dead") for name in stage.client.scan()), PATIENCE)
    healthy.release()
    stage.client.close()


def test_a_cancelled_task_is_back_soon_though_the_store_hangs() -> None:
    stage = AsyncStage()

    async def hung(*args: Any, **options: Any) -> Any:
        timeout = options.get("timeout", args[-1] if isinstance(args[-1], float) else 5.0)
        await asyncio.sleep(timeout)
        raise StoreUnavailable("no answer")

    async def main() -> float:
        stage.store.instead["claim"] = stage.store.instead["release"] = hung
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await stage.client.lock("x").acquire()
        took = time.monotonic() - began
        stage.store.instead.clear()
        await stage.client.close()
        return took

    assert asyncio.run(main()) < 0.2 + 3.0  # it was 10 s; the promise is 0.5 s on a machine that is not busy


async def a_body(client: aio.Client, begun: asyncio.Event) -> None:
    async with client.lock("x"):
        begun.set()
        await asyncio.sleep(60)


async def a_reentrant_body(client: aio.Client, begun: asyncio.Event) -> None:
    lock = client.rlock("x")
    async with lock, lock:
        begun.set()
        await asyncio.sleep(60)


async def a_reader(client: aio.Client, begun: asyncio.Event) -> None:
    both = client.rwlock("x")
    async with both.read(), client.lock("y"):
        begun.set()
        await asyncio.sleep(60)


async def a_body_under_several(client: aio.Client, begun: asyncio.Event) -> None:
    async with client.multilock(["x", "y", "z"]):
        begun.set()
        await asyncio.sleep(60)


async def a_generator(client: aio.Client, begun: asyncio.Event) -> None:
    async def steps() -> AsyncIterator[int]:
        async with client.semaphore("x", 3):
            yield 1
            begun.set()
            await asyncio.sleep(60)

    async for _ in steps():
        pass


async def a_wait(client: aio.Client, begun: asyncio.Event) -> None:
    condition = client.condition("x")
    async with condition:
        asyncio.get_running_loop().call_later(0.1, begun.set)
        await condition.wait()


async def a_meeting(client: aio.Client, begun: asyncio.Event) -> None:
    asyncio.get_running_loop().call_later(0.1, begun.set)
    await client.barrier("x", 2).wait()


async def a_release(client: aio.Client, begun: asyncio.Event) -> None:
    semaphore = client.semaphore("x", 4)
    for _ in range(4):
        await semaphore.acquire()
    begun.set()
    await asyncio.sleep(0.05)
    await semaphore.release(4)


async def a_close(client: aio.Client, begun: asyncio.Event) -> None:
    for number in range(20):
        await client.lock(f"x{number}").acquire()
    begun.set()
    await asyncio.sleep(0.05)
    await client.close()


async def a_client(client: aio.Client, begun: asyncio.Event) -> None:
    async with client:
        await client.lock("x").acquire()
        begun.set()
        await asyncio.sleep(60)


CANCELLED = [
    a_body,
    a_reentrant_body,
    a_reader,
    a_body_under_several,
    a_generator,
    a_wait,
    a_meeting,
    a_release,
    a_close,
    a_client,
]


@pytest.mark.parametrize("work", CANCELLED)
def test_whatever_is_cancelled_is_over_soon_though_the_store_hangs(
    work: Callable[[aio.Client, asyncio.Event], Coroutine[Any, Any, None]],
) -> None:
    stage = AsyncStage()

    def hung(name: str) -> Callable[..., Coroutine[Any, Any, None]]:
        takes = inspect.signature(getattr(stage.store.inner, name))

        async def call(*args: Any, **options: Any) -> None:
            asked = takes.bind(*args, **options)
            asked.apply_defaults()
            await asyncio.sleep(asked.arguments["timeout"])
            raise StoreUnavailable("no answer")

        return call

    async def main() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(work(stage.client, begun))
        await begun.wait()
        for name in ("claim", "renew", "release", "inspect", "read", "compare_and_set"):
            stage.store.instead[name] = hung(name)
        await asyncio.sleep(0.1)
        with at_most(0.5 + 0.05, "a cancelled task was not back soon"):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        stage.store.instead.clear()
        await stage.client.close()

    asyncio.run(main())


def test_a_body_left_on_a_store_that_hangs_waits_no_longer_than_its_lease_could_live() -> None:
    stage = Stage()
    stage.store.before["release"] = hangs("x")
    with at_most(4.0):
        with stage.client.lock("x", ttl=0.5):
            pass
    stage.store.before.clear()
    stage.client.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_closing_beside_tasks_that_acquire_leaves_no_claim(kind: str, tmp_path: Path) -> None:
    url = f"memory://{tmp_path}" if kind == "memory" else f"sqlite:///{tmp_path}/locks.db"

    async def attack(number: int) -> None:
        client = aio.connect(url)
        tasks = [asyncio.create_task(client.lock(f"{number}-{each}").acquire()) for each in range(8)]
        for _ in range(number % 5):
            await asyncio.sleep(0)
        await client.close()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, ClientClosed | interlock.Lease | aio.Lease) for outcome in outcomes)

    async def main() -> list[str]:
        for number in range(20):
            await attack(number)
        async with aio.connect(url) as other:
            return [name async for name in other.scan()]

    assert asyncio.run(main()) == []


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_closing_beside_threads_that_acquire_leaves_no_claim(kind: str, tmp_path: Path) -> None:
    url = f"memory://{tmp_path}" if kind == "memory" else f"sqlite:///{tmp_path}/locks.db"

    def take(client: interlock.Client, name: str, odd: list[BaseException]) -> None:
        try:
            while True:
                client.lock(name).acquire()
                client.lock(f"{name}'").acquire(blocking=False)
                return
        except (ClientClosed, StoreUnavailable):  # the latter on a machine that runs nobody for 0.15 s
            pass
        except BaseException as error:
            odd.append(error)

    odd: list[BaseException] = []
    for number in range(20):
        client = interlock.connect(url)
        threads = [threading.Thread(target=take, args=(client, f"{number}-{n}", odd)) for n in range(6)]
        for thread in threads:
            thread.start()
        client.close()
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
    with interlock.connect(url) as other:
        assert list(other.scan()) == []
    assert not odd


def test_a_listener_that_hangs_costs_no_lease() -> None:
    stage = Stage()
    called, go_on = threading.Event(), threading.Event()

    def slow(event: events.Event) -> None:
        if isinstance(event, events.Lost):
            called.set()
            go_on.wait(PATIENCE)

    stage.core._listener = slow
    victim = stage.client.lock("victim", ttl=0.6).acquire()
    healthy = stage.client.lock("healthy", ttl=0.6).acquire()
    assert victim
    assert healthy
    stage.client.evict("victim", reason="attack")
    assert called.wait(PATIENCE)
    asked = len(stage.store.asked)
    eventually(lambda: stage.store.asked[asked:].count("renew") >= 4, PATIENCE)
    healthy.check()
    go_on.set()
    stage.client.close()


def test_a_keeper_that_is_a_task_goes_on_after_a_stranger_cancelled_it() -> None:
    async def main() -> None:
        async with aio.connect("memory://", keeper="task") as client, client.lock("x", ttl=0.6) as lease:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(1.5)
            lease.check()

    asyncio.run(main())


def test_a_lease_shorter_than_two_round_trips_costs_no_other() -> None:
    stage = Stage()

    def far(renewals: list[Renewal], timeout: float = 5.0) -> None:
        time.sleep(min(timeout, 0.15))
        if timeout < 0.15:
            raise StoreUnavailable("the answer had not come yet")

    long = stage.client.lock("long", ttl=30.0).acquire()
    assert long
    stage.store.before["renew"] = far
    deadline = long.deadline
    for number in range(8):  # each time beside a lease that is about to end
        stage.client.lock(f"short{number}", ttl=0.1, renew=False).acquire()
        stage.core.keeper.kept()
        drive(stage.core.keeper._renew([long]))
    assert long.deadline > deadline, "it was never given the time that the store needs"
    stage.store.before.clear()
    stage.client.close()


@pytest.mark.slow
def test_what_the_keeper_does_grows_linearly_with_what_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def deadline(lease: Lease) -> float:
        nonlocal looks
        looks += 1
        return lease._deadline

    def looks_for(count: int) -> int:
        """How often the keeper looks at a deadline until all leases were renewed."""
        nonlocal looks
        stage = Stage(ttl=6.0)
        leases = [stage.client.lock(f"{number}").acquire() for number in range(count)]
        looks, deadlines = 0, [lease._deadline for lease in leases if lease]
        eventually(lambda: leases[-1] and leases[-1]._deadline > max(deadlines), PATIENCE)
        found = looks
        assert all(lease and lease.state is interlock.State.HELD for lease in leases)
        stage.client.close()
        return found

    monkeypatch.setattr(Lease, "deadline", property(deadline))
    few, many = looks_for(300), looks_for(3000)
    assert many < 30 * few, (few, many)  # ten times as many leases; it was a hundred times the looks
