"""Losing a lease in the middle of an `async with` body, and who is told what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from interlock import State, aio, events
from interlock.errors import LeaseLost
from interlock.testing.lag import at_most, stretched
from tests.patience import PATIENCE

TTL = stretched(0.3)
LONG = PATIENCE


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{uuid4().hex}" if request.param == "memory" else f"sqlite:///{tmp_path}/locks.db"


def run(url: str, main: Callable[[aio.Client], Awaitable[None]], **options: Any) -> None:
    async def connected() -> None:
        async with aio.connect(url, **options) as client, asyncio.timeout(2 * PATIENCE):
            await main(client)

    asyncio.run(connected())


def test_a_body_is_cancelled_when_its_lease_is_lost_and_the_loss_leaves(url: str) -> None:
    async def main(client: aio.Client) -> None:
        met: list[str] = []
        with pytest.raises(LeaseLost) as loss:
            async with client.lock("x", ttl=TTL):
                await client.evict("x", reason="a drill")
                try:
                    await asyncio.sleep(LONG)
                except asyncio.CancelledError:
                    met.append("cancelled")
                    raise
        assert met == ["cancelled"]
        assert loss.value.cause == "evicted"
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        await asyncio.sleep(0)  # nothing is left of the cancellation

    run(url, main)


def test_a_body_is_cancelled_before_the_lease_can_end(url: str) -> None:
    async def main(client: aio.Client) -> None:
        with at_most(2.0), pytest.raises(LeaseLost) as loss:
            async with client.lock("x", ttl=2.0, renew=False):
                await asyncio.sleep(LONG)
        assert loss.value.cause == "lapsed"

    run(url, main)


def test_the_users_own_cancellation_wins_over_the_loss(url: str) -> None:
    async def main(client: aio.Client) -> None:
        inside = asyncio.Event()

        async def body() -> None:
            async with client.lock("x", ttl=TTL):
                inside.set()
                try:
                    await asyncio.sleep(LONG)
                except asyncio.CancelledError:
                    await client.evict(
                        "x", reason="a drill"
                    )  # lost while the user's cancellation is on its way
                    raise

        task = asyncio.create_task(body())
        await inside.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    run(url, main)


def test_cancelled_by_both_at_once_it_is_cancelled(url: str) -> None:
    async def main(client: aio.Client) -> None:
        inside = asyncio.Event()

        async def body() -> None:
            async with client.lock("x", ttl=TTL) as lease:
                inside.set()
                try:
                    await asyncio.sleep(LONG)
                finally:
                    assert lease.state is State.LOST
                    asyncio.current_task().cancel()  # type: ignore[union-attr]

        task = asyncio.create_task(body())
        await inside.wait()
        await client.evict("x", reason="a drill")
        await asyncio.wait([task])
        assert task.cancelled()

    run(url, main)


def test_a_body_with_its_own_error_keeps_it(url: str) -> None:
    async def main(client: aio.Client) -> None:
        with pytest.raises(KeyError) as error:
            async with client.lock("x", ttl=TTL):
                await client.evict("x", reason="a drill")
                try:
                    await asyncio.sleep(LONG)
                finally:
                    raise KeyError("mine")
        assert any("is lost" in note for note in error.value.__notes__)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    run(url, main)


def test_the_loss_of_an_outer_lease_leaves_the_outer_body(url: str) -> None:
    async def main(client: aio.Client) -> None:
        met: list[str] = []
        leases: list[aio.Lease] = []
        with pytest.raises(LeaseLost) as loss:
            async with client.lock("outer", ttl=TTL):
                try:
                    async with client.lock("inner", ttl=TTL) as inner:
                        leases.append(inner)
                        await client.evict("outer", reason="a drill")
                        await asyncio.sleep(LONG)
                except asyncio.CancelledError:
                    met.append("inner body was cancelled")
                    raise
        assert loss.value.resource == "outer"
        assert met == ["inner body was cancelled"]
        assert leases[0].state is State.RELEASED
        assert [name async for name in client.scan()] == []

    run(url, main)


def test_the_loss_of_an_inner_lease_leaves_the_inner_body_alone(url: str) -> None:
    async def main(client: aio.Client) -> None:
        async with client.lock("outer", ttl=TTL) as outer:
            with pytest.raises(LeaseLost) as loss:
                async with client.lock("inner", ttl=TTL):
                    await client.evict("inner", reason="a drill")
                    await asyncio.sleep(LONG)
            assert loss.value.resource == "inner"
            outer.check()
            await asyncio.sleep(0)

    run(url, main)


def test_the_loss_of_both_leaves_both(url: str) -> None:
    async def main(client: aio.Client) -> None:
        with pytest.raises(LeaseLost):
            async with client.lock("outer", ttl=TTL):
                async with client.lock("inner", ttl=TTL):
                    await client.evict("outer", reason="a drill")
                    await client.evict("inner", reason="a drill")
                    await asyncio.sleep(LONG)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        await asyncio.sleep(0.01)

    run(url, main)


def test_a_timeout_around_the_body_is_still_a_timeout(url: str) -> None:
    async def main(client: aio.Client) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                async with client.lock("x"):
                    await asyncio.sleep(LONG)
        assert [name async for name in client.scan()] == []

    run(url, main)


def test_a_loss_inside_a_timeout_is_a_loss(url: str) -> None:
    async def main(client: aio.Client) -> None:
        with pytest.raises(LeaseLost):
            async with asyncio.timeout(LONG):
                async with client.lock("x", ttl=TTL):
                    await client.evict("x", reason="a drill")
                    await asyncio.sleep(LONG)

    run(url, main)


def test_a_loss_in_one_task_of_a_group_ends_the_group_with_the_loss(url: str) -> None:
    async def main(client: aio.Client) -> None:
        async def body() -> None:
            async with client.lock("x", ttl=TTL):
                await client.evict("x", reason="a drill")
                await asyncio.sleep(LONG)

        with pytest.raises(ExceptionGroup) as group:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(body())
                tasks.create_task(asyncio.sleep(LONG))
        assert group.group_contains(LeaseLost)

    run(url, main)


def test_a_multilock_body_is_cancelled_when_one_of_its_leases_is_lost(url: str) -> None:
    async def main(client: aio.Client) -> None:
        with pytest.raises(LeaseLost) as loss:
            async with client.multilock(["a", "b", "c"], ttl=TTL):
                await client.evict("b", reason="a drill")
                await asyncio.sleep(LONG)
        assert loss.value.resource == "b"
        assert [name async for name in client.scan()] == []

    run(url, main)


def test_a_lease_taken_by_hand_cancels_nobody(url: str) -> None:
    async def main(client: aio.Client) -> None:
        lease = await client.lock("x", ttl=TTL).acquire()
        assert lease is not None
        await client.evict("x", reason="a drill")
        assert await lease.lost.wait(PATIENCE)
        await asyncio.sleep(0.05)
        with pytest.raises(LeaseLost):
            lease.check()

    run(url, main)


def test_on_lost_may_be_a_coroutine_function(url: str) -> None:
    async def main(client: aio.Client) -> None:
        told: asyncio.Future[aio.Lease] = asyncio.get_running_loop().create_future()

        async def on_lost(lease: aio.Lease) -> None:
            await asyncio.sleep(0)
            told.set_result(lease)

        lease = await client.lock("x", ttl=TTL, on_lost=on_lost).acquire()
        await client.evict("x", reason="a drill")
        assert await told is lease

    run(url, main)


def test_a_coroutine_callback_that_fails_is_reported(url: str) -> None:
    heard: list[events.Event] = []

    async def on_lost(lease: aio.Lease) -> None:
        raise ValueError("a bug in a callback")

    async def main(client: aio.Client) -> None:
        await client.lock("x", ttl=TTL, on_lost=on_lost).acquire()
        await client.evict("x", reason="a drill")
        while not any(isinstance(event, events.CallbackFailed) for event in heard):
            await asyncio.sleep(0.01)

    run(url, main, listener=heard.append)


def test_a_task_can_be_the_keeper(url: str) -> None:
    import threading

    def keepers() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "interlock-keeper"}

    others = keepers()  # of clients that earlier tests left to the garbage collector

    async def main(client: aio.Client) -> None:
        async with client.lock("x", ttl=TTL) as lease:
            await asyncio.sleep(3 * TTL)
            lease.check()
        with pytest.raises(LeaseLost):
            async with client.lock("x", ttl=TTL):
                await client.evict("x", reason="a drill")
                await asyncio.sleep(LONG)
        assert not keepers() - others

    run(url, main, keeper="task")


def test_one_client_may_serve_one_loop_after_another(url: str) -> None:
    client = aio.connect(url)

    async def use(end: bool) -> None:
        async with client.lock("x", timeout=PATIENCE) as lease:
            lease.check()
            assert not await client.lock("x").acquire(timeout=0.01)
        if end:
            await client.close()

    asyncio.run(use(False))
    asyncio.run(use(True))


def test_a_body_entered_and_left_by_different_tasks_is_given_back(url: str) -> None:
    async def main(client: aio.Client) -> None:
        lock = client.lock("x")

        async def enter() -> None:
            await lock.__aenter__()

        async def leave() -> None:
            await lock.__aexit__(None, None, None)

        await asyncio.create_task(enter())
        await asyncio.create_task(leave())
        assert [name async for name in client.scan()] == []

    run(url, main)
