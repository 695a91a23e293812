"""A user's program over the async face. Never run: mypy and pyright read it, as strictly as users may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Literal, assert_type

import interlock
from interlock import aio, events


async def lost(lease: aio.Lease) -> None:
    print(lease.resource, lease.token)


def heard(event: events.Event) -> None:
    print(event)


async def connects() -> None:
    async with interlock.aio.connect("memory://") as client:
        assert_type(client, aio.Client)
    assert_type(aio.connect("sqlite:///locks.db", ttl=10, listener=heard, keeper="task"), aio.Client)
    assert_type(client.traits, interlock.Traits)
    assert_type(await client.close(), None)


async def locks(client: aio.Client) -> None:
    lock = client.lock("x", ttl=10, timeout=5, renew=True, fair=True, max_hold=60, min_hold=1, on_lost=lost)
    assert_type(lock, aio.Lock)
    client.lock("x", on_lost=lambda lease: print(lease.token))
    assert_type(await lock.acquire(), aio.Lease | None)
    assert_type(await lock.acquire(blocking=True, timeout=2.5), aio.Lease | None)
    assert_type(await lock.release(), None)
    assert_type(await lock.locked(), bool)
    assert_type(lock.owned(), bool)
    async with lock as lease:
        assert_type(lease, aio.Lease)
    if taken := await lock.acquire(timeout=1):
        assert_type(taken, aio.Lease)
    managed: AbstractAsyncContextManager[aio.Lease] = lock
    async with AsyncExitStack() as stack:
        assert_type(await stack.enter_async_context(managed), aio.Lease)
    assert_type(client.rlock("x"), aio.RLock)
    assert_type(client.rwlock("x").read(), aio.ReadLock)
    assert_type(client.rwlock("x").write(), aio.WriteLock)


async def leases(lease: aio.Lease) -> None:
    assert_type(lease.token, int)
    assert_type(lease.remaining(), float)
    assert_type(lease.state, interlock.State)
    assert_type(lease.check(), None)
    assert_type(await lease.renew(), None)
    assert_type(await lease.release(), None)
    assert_type(lease.lost.is_set(), bool)
    assert_type(await lease.lost.wait(), bool)
    async with lease as same:
        assert_type(same, aio.Lease)


async def decorators(client: aio.Client) -> None:
    @client.lock("job")
    async def job(count: int, *, fast: bool = False) -> list[str]:
        return ["fast" if fast else "slow"] * count

    @client.semaphore("job", 3)
    async def limited(text: str) -> int:
        return len(text)

    @client.multilock(["a", "b"])
    async def both() -> None: ...

    @client.once("job:{text}", ttl=10, min_hold=5, max_hold=60)
    async def once(text: str) -> int:
        return len(text)

    assert_type(await once("x"), int | interlock.Skipped)
    async with client.once("job") as lease:
        assert_type(lease, aio.Lease)
    assert_type(client.once("job"), aio.Once)

    assert_type(await job(3, fast=True), list[str])
    assert_type(await limited("x"), int)
    assert_type(await both(), None)
    # What it returns is still a coroutine, which tasks and `asyncio.run` ask for.
    assert_type(await asyncio.create_task(job(3)), list[str])
    assert_type(await asyncio.create_task(limited("x")), int)
    assert_type(await asyncio.create_task(both()), None)


async def semaphores(client: aio.Client) -> None:
    semaphore = client.semaphore("x", capacity=3)
    assert_type(semaphore, aio.Semaphore)
    assert_type(await semaphore.acquire(permits=2), aio.Lease | Literal[False])
    assert_type(await semaphore.release(2), None)
    assert_type(client.bounded_semaphore("x", 3), aio.BoundedSemaphore)
    async with semaphore as lease:
        assert_type(lease, aio.Lease)


async def multilocks(client: aio.Client) -> None:
    multilock = client.multilock(["a", "b"])
    assert_type(await multilock.acquire(timeout=1), aio.MultiLease | None)
    async with multilock as both:
        assert_type(both, aio.MultiLease)
        assert_type(both.tokens, dict[str, int])
        assert_type(both.leases, tuple[aio.Lease, ...])


async def elections(client: aio.Client) -> None:
    election = client.election("x", on_lost=lost)
    assert_type(await election.campaign("10.0.0.1:80", timeout=3), aio.Lease | None)
    assert_type(await election.leader(), interlock.Leader | None)
    assert_type(election.leading(), bool)
    assert_type(await election.resign(), None)
    async for leader in election.observe():
        assert_type(leader, interlock.Leader | None)


async def registers(client: aio.Client) -> None:
    register = client.register("x")
    read = await register.read()
    assert_type(read, interlock.Value[Any])
    assert_type(await register.compare_and_set(read, {"a": 1}), interlock.Value[Any] | None)
    assert_type(await register.update(lambda value: (value or 0) + 1), interlock.Value[Any])
    assert_type(register.watch(timeout=1), AsyncIterator[interlock.Value[Any]])


async def signals(client: aio.Client) -> None:
    event = client.event("x")
    assert_type(await event.wait(1), bool)
    assert_type(await event.is_set(), bool)
    assert_type(await client.latch("x", 3).count_down(), int)
    barrier = client.barrier("x", 2)
    assert_type(await barrier.wait(), int)
    assert_type(barrier.parties, int)
    assert_type(await barrier.broken(), bool)
    condition = client.condition("x")
    async with condition:
        assert_type(await condition.wait(timeout=1), bool)
        assert_type(await condition.wait_for(lambda: True), bool)
        assert_type(await condition.notify_all(), None)


async def operators(client: aio.Client, lease: aio.Lease) -> None:
    assert_type(await client.guard("x").accept(lease), int)
    assert_type(await client.inspect("x"), interlock.Queue)
    assert_type(client.scan("orders/"), AsyncIterator[str])
    async for queue in client.watch("x", timeout=5):
        assert_type(queue, interlock.Queue)
    assert_type(await client.evict("x", reason="stuck since noon"), list[interlock.Standing])
