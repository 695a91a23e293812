"""Somebody else releases the lease of a body that still runs: the body is told, at the latest at its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock._runtime import lifetimes
from tests.attacks.stage import fresh
from tests.patience import PATIENCE

Shape = Callable[[interlock.Client], Any]

SHAPES: dict[str, Shape] = {
    "lock": lambda client: client.lock("x"),
    "rlock": lambda client: client.rlock("x"),
    "reader": lambda client: client.rwlock("x").read(),
    "writer": lambda client: client.rwlock("x").write(),
    "semaphore": lambda client: client.semaphore("x", capacity=1),
    "multilock": lambda client: client.multilock(["x", "y"]),
    "once": lambda client: client.once("x"),
    "lease": lambda client: client.lock("x").acquire(),
    "election": lambda client: client.election("x").campaign("me"),
}
RELEASED_BY_OTHERS = ("lock", "semaphore", "multilock")  # the others belong to a thread, or have no release


def elsewhere(call: Callable[[], object]) -> None:
    """Run something in another thread, to its end."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="stranger")
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert not raised


def first_of(held: Any) -> Any:
    """A lease, or the first of several."""
    return held.leases[0] if isinstance(held, interlock.MultiLease) else held


@pytest.mark.parametrize("shape", SHAPES)
def test_a_body_whose_client_another_thread_closes_is_told_at_its_end(shape: str) -> None:
    client = interlock.connect(fresh())
    with (
        pytest.raises(interlock.NotHeld, match="thread stranger released") as raised,
        SHAPES[shape](client) as held,
    ):
        elsewhere(client.close)
        with pytest.raises(interlock.NotHeld):
            held.check()
    assert not isinstance(raised.value, interlock.LeaseLost)


@pytest.mark.parametrize("shape", RELEASED_BY_OTHERS)
def test_a_body_whose_lock_another_thread_releases_is_told_at_its_end(shape: str) -> None:
    with interlock.connect(fresh()) as client:
        lock = SHAPES[shape](client)
        with pytest.raises(interlock.NotHeld, match="thread stranger released"), lock:
            elsewhere(lock.release)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_body_whose_lease_another_thread_releases_is_told_at_its_end(shape: str) -> None:
    with interlock.connect(fresh()) as client:
        with (
            pytest.raises(interlock.NotHeld, match="thread stranger released"),
            SHAPES[shape](client) as held,
        ):
            elsewhere(first_of(held).release)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_bodys_own_error_comes_first(shape: str) -> None:
    client = interlock.connect(fresh())
    with pytest.raises(KeyError, match="mine") as raised, SHAPES[shape](client):
        elsewhere(client.close)
        raise KeyError("mine")
    assert "thread stranger released" in raised.value.__notes__[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("how", ["release", "close", "the end of the program"])
def test_a_body_that_releases_by_itself_ends_in_peace(
    shape: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = interlock.connect(fresh())
    with SHAPES[shape](client) as held:
        if how == "release":
            first_of(held).release()
        elif how == "close":
            client.close()
        else:
            monkeypatch.setattr(lifetimes, "_clients", [client._core])
            elsewhere(lifetimes.give_back_everything)
    client.close()


def test_a_body_that_hands_its_lease_over_ends_in_peace() -> None:
    with interlock.connect(fresh()) as client, client.lock("x") as lease:

        def take_over() -> None:
            lease.adopt()
            lease.release()

        elsewhere(take_over)


def test_a_job_that_runs_once_is_told_that_its_client_was_closed() -> None:
    client = interlock.connect(fresh())

    @client.once("x")
    def job() -> str:
        elsewhere(client.close)
        return "done"

    with pytest.raises(interlock.NotHeld):
        job()


# ---- tasks --------------------------------------------------------------------------

ASYNC_SHAPES: dict[str, Callable[[aio.Client], Any]] = {
    "lock": lambda client: client.lock("x"),
    "rlock": lambda client: client.rlock("x"),
    "semaphore": lambda client: client.semaphore("x", capacity=1),
    "multilock": lambda client: client.multilock(["x", "y"]),
    "once": lambda client: client.once("x"),
}


@pytest.mark.parametrize("how", ["close", "release", "close by a thread"])
@pytest.mark.parametrize("shape", ASYNC_SHAPES)
def test_an_async_body_whose_lease_is_taken_away_is_cancelled(shape: str, how: str) -> None:
    async def main() -> None:
        client = aio.connect(fresh())
        inside = asyncio.Event()
        taken: list[Any] = []

        async def body() -> None:
            async with ASYNC_SHAPES[shape](client) as held:
                taken.append(held.leases[0] if isinstance(held, aio.MultiLease) else held)
                inside.set()
                await asyncio.sleep(PATIENCE)

        task = asyncio.create_task(body())
        await inside.wait()
        if how == "close":
            await client.close()
        elif how == "release":
            await taken[0].release()
        else:
            await asyncio.to_thread(lambda: asyncio.run(client.close()))
        with pytest.raises(interlock.NotHeld, match="released the lease"):
            await asyncio.wait_for(task, PATIENCE / 2)
        assert not task.cancelling()
        await client.close()

    asyncio.run(main())


WAYS: dict[str, Callable[[aio.Client, aio.Lock, aio.Lease], Awaitable[object]]] = {
    "lease.release": lambda client, lock, lease: lease.release(),
    "lease.release in a task": lambda client, lock, lease: asyncio.create_task(lease.release()),
    "lease.release, shielded": lambda client, lock, lease: asyncio.shield(lease.release()),
    "lock.release in a task": lambda client, lock, lease: asyncio.create_task(lock.release()),
    "lock.release, bounded": lambda client, lock, lease: asyncio.wait_for(lock.release(), PATIENCE),
    "close": lambda client, lock, lease: client.close(),
    "close in a group of tasks": lambda client, lock, lease: asyncio.gather(client.close()),
    "close, bounded": lambda client, lock, lease: asyncio.wait_for(client.close(), PATIENCE),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_async_body_that_releases_by_itself_ends_in_peace(way: str) -> None:
    async def main() -> None:
        client = aio.connect(fresh())
        lock = client.lock("x")
        async with lock as lease:
            await WAYS[way](client, lock, lease)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await client.close()

    asyncio.run(main())


def test_a_task_that_the_end_of_the_loop_cancels_is_only_cancelled() -> None:
    """A program that closes its client and returns: its other tasks are cancelled, as ever."""
    ended: list[BaseException] = []

    async def main() -> None:
        client = aio.connect(fresh())
        inside = asyncio.Event()

        async def body() -> None:
            try:
                async with client.lock("x"):
                    inside.set()
                    await asyncio.sleep(PATIENCE)
            except BaseException as error:
                ended.append(error)
                raise

        tasks.append(asyncio.create_task(body()))
        await inside.wait()

    tasks: list[asyncio.Task[None]] = []
    asyncio.run(main())
    assert [type(error) for error in ended] == [asyncio.CancelledError]
    with suppress(asyncio.CancelledError):
        tasks[0].result()
