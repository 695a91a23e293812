"""Hand-off within one client, between two threads or two tasks, on any store."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import interlock
import interlock.aio
from benchmarks.ours import SETTLE
from benchmarks.pace import middle
from benchmarks.question import Measure


def between_threads(url: str) -> Iterator[Measure]:
    """From the call of release to the instant at which another thread of this client has the lock."""
    for once in once_between_threads(url):
        yield partial(middle, once, 30)


def between_tasks(url: str) -> Iterator[Measure]:
    """The same between two tasks of one loop."""
    for once in once_between_tasks(url):
        yield partial(middle, once, 30)


def once_between_threads(url: str) -> Iterator[Callable[[], float]]:
    with interlock.connect(url) as client:
        lock, go, got = client.lock("local"), threading.Semaphore(0), threading.Semaphore(0)
        instants: list[float] = []

        def wait() -> None:
            while True:
                go.acquire()
                with client.lock("local"):
                    instants.append(time.perf_counter())
                got.release()

        threading.Thread(target=wait, daemon=True).start()

        def once() -> float:
            lock.acquire()
            go.release()
            time.sleep(SETTLE)
            released = time.perf_counter()
            lock.release()
            got.acquire()
            return instants.pop() - released

        yield once


def once_between_tasks(url: str) -> Iterator[Callable[[], float]]:
    with asyncio.Runner() as runner:
        client = runner.run(_opened(url))

        async def once() -> float:
            async def wait() -> float:
                async with client.lock("local"):
                    return time.perf_counter()

            lock = client.lock("local")
            await lock.acquire()
            waiter = asyncio.create_task(wait())
            await asyncio.sleep(SETTLE)
            released = time.perf_counter()
            await lock.release()
            return await waiter - released

        yield lambda: runner.run(once())
        runner.run(client.close())


async def _opened(url: str) -> interlock.aio.Client:
    return interlock.aio.connect(url)
