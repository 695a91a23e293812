"""A million pairs over a hundred thousand names: what stays in the process, and what is left in the store.

    python -m tests.attacks.long.names --store postgresql --pairs 1000000 --names 100000 --tasks 64

Held are: memory and descriptors are as large at the end as at half, and once all is idle the store keeps next to nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from pathlib import Path

from interlock import aio
from tests.field.kinds import Kind

KINDS = {
    "memory": ("tests.field.kinds", "MEMORY"),
    "sqlite": ("tests.field.kinds", "SQLITE"),
    "redis": ("tests.redis.stores", "KIND"),
    "etcd": ("tests.etcd.stores", "KIND"),
    "zookeeper": ("tests.zookeeper.stores", "KIND"),
    "postgresql": ("tests.postgresql.stores", "KIND"),
    "mysql": ("tests.mysql.stores", "KIND"),
}
FLAT = 8.0  # MB by which memory may grow over the second half
FEW = 50  # keys, rows or nodes that may be left, as in tests/field/crowds.py
POOL = 16  # descriptors that a pool of connections may still add: a leak would be one for each of many pairs
LOOKS = 10  # at the process, over the whole run


async def pairs(url: str, total: int, names: int, tasks: int) -> bool:
    """Tasks of one client take and give back, each time under the next name."""
    numbers, sizes, began = count(), list[tuple[float, int]](), time.monotonic()

    async def work(client: aio.Client) -> None:
        for number in _until(total, numbers):
            if number % (total // LOOKS) == 0:
                sizes.append(process_size())
                print(
                    f"  {number} pairs after {time.monotonic() - began:.0f} s: {sizes[-1][0]:.1f} MB, "
                    f"{sizes[-1][1]} descriptors",
                    flush=True,
                )
            async with client.lock(f"name-{number % names}", timeout=None):
                pass

    async with aio.connect(url, ttl=30) as client:
        await asyncio.gather(*(work(client) for _ in range(tasks)))
        (half, files), (end, files_at_end) = sizes[len(sizes) // 2], process_size()
    each = (time.monotonic() - began) / total * 1e6
    print(
        f"  {total} pairs over {names} names: {each:.0f} us for a pair; {half:.1f} MB at half, {end:.1f} MB at the end; "
        f"{files} and {files_at_end} descriptors",
        flush=True,
    )
    return end - half < FLAT and files_at_end <= files + POOL


def _until(total: int, numbers: Iterator[int]) -> Iterator[int]:
    while (number := next(numbers)) < total:
        yield number


def process_size() -> tuple[float, int]:
    """The memory of this process, in MB, and how many descriptors it has open."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, len(os.listdir("/proc/self/fd"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.long.names", description=__doc__)
    parser.add_argument("--store", choices=KINDS, default="sqlite")
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--names", type=int, default=100_000)
    parser.add_argument("--tasks", type=int, default=64)
    options = parser.parse_args()
    print(options.store, flush=True)
    module, name = KINDS[options.store]
    kind: Kind = getattr(import_module(module), name)
    url = kind.fresh()
    held = asyncio.run(pairs(url, options.pairs, options.names, options.tasks))
    left = kind.keys(url)
    print(f"  {left} keys, rows or nodes are left in the store", flush=True)
    held &= left < FEW
    print("held" if held else "DID NOT HOLD")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
