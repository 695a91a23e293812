"""One test for both colours: a coroutine over a store, driven on a thread or run on an event loop."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from interlock._core.drive import drive
from interlock._runtime.tasks import Tasks
from interlock._runtime.threads import Threads
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.transport.aio import AsyncQuorumTransport
from interlock.backends.redlock.transport.blocking import BlockingQuorumTransport
from interlock.backends.redlock.transport.connections import NodeConnection
from interlock.errors import StoreUnavailable
from interlock.model import Claim, Granted
from interlock.urls import open_store
from tests.patience import PATIENCE

T = TypeVar("T")
Main = Callable[[RedlockStore], Coroutine[Any, Any, None]]

COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])


def run(colour: str, url: str | list[str], main: Main) -> None:
    """Run `main` with a store of this colour; closed afterwards."""
    if colour == "sync":
        drive(_within(opened(url), main))
    else:
        asyncio.run(_on_loop(url, main))


def opened(url: str | list[str]) -> RedlockStore:
    """A blocking store."""
    store = open_store(url, Threads(), asynchronous=False)
    assert isinstance(store, RedlockStore)
    return store


async def _on_loop(url: str | list[str], main: Main) -> None:
    store = open_store(url, Tasks(), asynchronous=True)
    assert isinstance(store, RedlockStore)
    await _within(store, main)


async def _within(store: RedlockStore, main: Main) -> None:
    try:
        await main(store)
    finally:
        await store.close()


async def until(store: RedlockStore, fact: Callable[[], Awaitable[object]], timeout: float = PATIENCE) -> Any:
    """What the fact is once it is one."""
    end = time.monotonic() + timeout
    while not (found := await fact()):
        assert time.monotonic() < end, "it does not happen"
        await store._runtime.wait(store._runtime.signal(), 0.01)
    return found


async def patiently(store: RedlockStore, call: Callable[[], Awaitable[T]], timeout: float = PATIENCE) -> T:
    """What the call returns once enough nodes answer in time: on a busy machine they may all be late for a while."""
    end = time.monotonic() + timeout
    while True:
        try:
            return await call()
        except StoreUnavailable:
            if time.monotonic() >= end:
                raise
        await store._runtime.wait(store._runtime.signal(), 0.01)


async def started(store: RedlockStore) -> None:
    """Wait until new nodes have their votes. How soon they get them is another test's matter."""

    async def claimed() -> bool:
        claim = Claim("started", uuid4().hex, 30.0)
        granted = isinstance(await store.claim(claim), Granted)
        await store.release(claim.resource, claim.id)
        return granted

    await until(store, partial(patiently, store, claimed))


async def answered(store: RedlockStore) -> None:
    """Wait until every node has answered every request, whether or not the answer was read."""
    transport, until = store._quorum.transport, time.monotonic() + PATIENCE
    if isinstance(transport, AsyncQuorumTransport):
        while any(one is not None and one._pending for one in transport._connections):
            assert time.monotonic() < until
            await asyncio.sleep(0.001)
    else:
        for one in connections(store):
            poll = select.poll()  # a process of many tests may have more descriptors than select() knows
            poll.register(one.sock, select.POLLIN)
            assert not one.due or poll.poll(PATIENCE * 1000)


def connections(store: RedlockStore) -> Sequence[NodeConnection]:
    """Those that were used last."""
    assert isinstance(store._quorum.transport, BlockingQuorumTransport)
    return [one for one in store._quorum.transport._idle[-1].connections if one is not None]


def holders(client: interlock.Client, name: str, timeout: float = PATIENCE) -> list[int]:
    """The tokens of who holds it, once somebody is seen: a node that is late may not have heard of it yet."""
    end = time.monotonic() + timeout
    while not (found := client.inspect(name).holders) and time.monotonic() < end:
        time.sleep(0.005)
    return [standing.token for standing in found]


async def holders_async(client: aio.Client, name: str, timeout: float = PATIENCE) -> list[int]:
    end = time.monotonic() + timeout
    while not (found := (await client.inspect(name)).holders) and time.monotonic() < end:
        await asyncio.sleep(0.005)
    return [standing.token for standing in found]
