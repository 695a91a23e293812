"""Many tasks of one loop, each with a lock of its own: what one pair costs then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from benchmarks import pace
from benchmarks.question import Figure, Measure
from benchmarks.redis_server import Bare, all_served, busy

Pair = Callable[[str], Awaitable[None]]
OpenPair = Callable[[list[int]], Awaitable[tuple[Pair, Callable[[], Awaitable[Any]]]]]
"""From the servers' ports to a pair by the name of its lock, and how to close what was opened."""


def in_tasks(
    tasks: int, open_pair: OpenPair, servers: int = 1, whole: int = 800
) -> Callable[[], AbstractContextManager[Measure]]:
    """A case: `tasks` tasks, each with a lock of its own, take turns with the loop; seconds for one pair."""

    @contextmanager
    def open() -> Iterator[Measure]:
        with all_served(servers) as running, asyncio.Runner() as runner:
            times = max(2, pace.times(whole) // tasks)
            pair, close = runner.run(_opened(running))

            async def work(name: str) -> None:
                for _ in range(times):
                    await pair(name)

            async def all_of_them() -> float:
                began = time.perf_counter()
                await asyncio.gather(*(work(f"bench/{number}") for number in range(tasks)))
                return (time.perf_counter() - began) / (tasks * times)

            def measure() -> Figure:
                spent = sum(map(busy, probes))
                took = runner.run(all_of_them())
                micros = 1e6 * (sum(map(busy, probes)) - spent) / (tasks * times)
                return Figure(took, µs_of_all_servers=micros)

            probes = [Bare(port) for port in running]
            yield measure
            runner.run(_closed(close))
            for probe in probes:
                probe.close()

    async def _opened(ports: list[int]) -> tuple[Pair, Callable[[], Awaitable[Any]]]:
        return await open_pair(ports)

    async def _closed(close: Callable[[], Awaitable[Any]]) -> None:
        await close()

    return open
