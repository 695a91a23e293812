"""Many tasks of one loop, each with a lock of its own: what one pair costs then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from benchmarks import pace
from benchmarks.counting import counted
from benchmarks.question import Figure, Measure

Pair = Callable[[str], Awaitable[None]]
Opened = tuple[Pair, Callable[[], Awaitable[Any]]]
"""A pair by the name of its lock, and how to close what was opened."""


Address = TypeVar("Address")


def in_tasks(
    tasks: int,
    served: Callable[[], AbstractContextManager[Address]],
    open_pair: Callable[[Address], Awaitable[Opened]],
    whole: int = 800,
    spent: Callable[[Address], float] | None = None,
) -> Callable[[], AbstractContextManager[Measure]]:
    """A case: `tasks` tasks, each with a lock of its own, take turns with the loop; seconds for one pair.

    `served` starts the servers of this case and gives what `open_pair` needs to reach them. `spent` tells how many
    seconds of a core they have used so far, for stores that know.
    """

    @contextmanager
    def open() -> Iterator[Measure]:
        with served() as address, asyncio.Runner() as runner:
            times = max(2, pace.times(whole) // tasks)
            pair, close = runner.run(_awaited(open_pair(address)))

            async def work(name: str) -> None:
                for _ in range(times):
                    await pair(name)

            async def all_of_them() -> float:
                began = time.perf_counter()
                await asyncio.gather(*(work(f"bench/{number}") for number in range(tasks)))
                return (time.perf_counter() - began) / (tasks * times)

            def measure() -> Figure:
                before = spent(address) if spent else 0.0
                took = runner.run(all_of_them())
                if spent is None:
                    return Figure(took, python_calls=each)
                micros = 1e6 * (spent(address) - before) / (tasks * times)
                return Figure(took, µs_of_all_servers=micros, python_calls=each)

            runner.run(all_of_them())  # the first pairs connect
            with counted() as calls:
                runner.run(all_of_them())
            each = calls.seen / (tasks * times)
            yield measure
            runner.run(_awaited(close()))

    return open


async def _awaited(opening: Awaitable[Any]) -> Any:
    return await opening
