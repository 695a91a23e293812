"""Many of everything on one store: waiters on one lock, readers at once, leases of one client, pairs one after the other.

    python -m tests.attacks.long.scale --store postgresql --waiters 5000 --readers 10000 --leases 60000 --pairs 100000

Held are: everybody who waits gets the lock once, no reader and no lease is lost, and memory and descriptors stay flat over the pairs.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import interlock
from interlock import aio
from tests.attacks.long.bystander import Bystander
from tests.attacks.long.names import process_size
from tests.attacks.long.stores import KINDS, opened

FLAT = 8.0  # MB by which memory may grow over the second half of the pairs
AT_ONCE = 200  # requests under way: a store is to be filled, not flooded
TTL = 30.0  # every store takes it


async def waiters(url: str, count: int) -> bool:
    """So many tasks of eight clients wait for one lock, which each holds for a moment; then as many leave when they are cancelled."""
    clients = [aio.connect(url, ttl=TTL) for _ in range(8)]
    first = await clients[0].lock("one").acquire()
    assert first
    got = 0

    async def wait(number: int) -> None:
        nonlocal got
        async with clients[number % 8].lock("one", timeout=None):
            got += 1

    tasks = [asyncio.create_task(wait(number)) for number in range(count)]
    began = time.monotonic()
    while not await _queued(clients[0], min(count, 8)):
        await asyncio.sleep(0.2)
    await asyncio.sleep(2.0)
    came, began = time.monotonic() - began, time.monotonic()
    await first.release()
    await asyncio.gather(*tasks)
    took = time.monotonic() - began
    print(
        f"  {count} waiters: queued in {came:.1f} s; {got} hand-overs in {took:.1f} s, {took / count * 1e3:.2f} ms each",
        flush=True,
    )
    again = await clients[0].lock("one").acquire()
    assert again
    tasks = [asyncio.create_task(wait(number)) for number in range(count)]
    await asyncio.sleep(2.0)
    began = time.monotonic()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(f"  as many, cancelled, are gone after {time.monotonic() - began:.1f} s", flush=True)
    await again.release()
    for client in clients:
        await client.close()
    return got == count


async def _queued(client: aio.Client, count: int) -> bool:
    """Whether so many places are taken. While a thousand connect, a store may be too busy to say."""
    try:
        return len((await client.inspect("one")).waiters) >= count
    except interlock.StoreUnavailable:
        return False


async def readers(url: str, count: int) -> bool:
    """So many readers of one client wait for a writer, and are let in at once."""
    lost: list[str] = []
    with Bystander(url) as bystander:
        alone = time.monotonic()
        await asyncio.sleep(1.0)
        let_in = await _readers(url, count, lost)
    print(
        f"  a bystander's pair took {bystander.seen(alone, alone + 1.0)}, while they were let in {bystander.seen(*let_in)}",
        flush=True,
    )
    return let_in[0] > 0 and not lost


async def _readers(url: str, count: int, lost: list[str]) -> tuple[float, float]:
    """When they began to be let in, and when the last one was; zeros if one was not."""
    async with aio.connect(url, ttl=TTL) as client, aio.connect(url, ttl=TTL) as writing:
        writer = await writing.rwlock("read").write().acquire()
        assert writer
        tasks = [
            asyncio.create_task(
                client.rwlock("read", on_lost=lambda lease: lost.append(lease.id)).read().acquire()
            )
            for _ in range(count)
        ]
        await asyncio.sleep(5.0)
        began = time.monotonic()
        await writer.release()
        leases = await asyncio.gather(*tasks)
        all_in = time.monotonic()
        held = sum(lease is not None for lease in leases)
        for lease in leases:
            if lease is not None:
                await lease.release()
        print(
            f"  {count} readers: let in within {all_in - began:.1f} s, {len(lost)} lost, released in {time.monotonic() - all_in:.1f} s",
            flush=True,
        )
    return (began, all_in) if held == count else (0.0, 0.0)


async def leases(url: str, count: int, seconds: float) -> bool:
    """So many leases of one client, renewed for a while: what that costs, and whether any is lost."""
    lost: list[str] = []
    room = asyncio.Semaphore(AT_ONCE)
    async with aio.connect(url, ttl=TTL) as client:

        async def take(number: int) -> aio.Lease | None:
            async with room:
                return await client.lock(
                    f"held/{number}", on_lost=lambda lease: lost.append(lease.id)
                ).acquire()

        began = time.monotonic()
        held: list[aio.Lease | None] = []
        for taking in asyncio.as_completed([take(number) for number in range(count)]):
            lease = await taking
            held.append(lease)
            if lease is not None:
                lease.adopt()  # at once: the task that took it has ended, and to take them all may take longer than a ttl
        taken, cpu = time.monotonic() - began, time.process_time()
        await asyncio.sleep(seconds)
        share = (time.process_time() - cpu) / seconds
        print(
            f"  {count} leases: taken in {taken:.1f} s, kept for {seconds:g} s with {share:.1%} of a core, {len(lost)} lost",
            flush=True,
        )
    return all(held) and not lost


def pairs(url: str, count: int) -> bool:
    """Pairs one after the other, each with a name of its own: memory and descriptors stay flat."""
    with interlock.connect(url) as client:
        sizes: list[tuple[float, int]] = []
        began = time.monotonic()
        for number in range(count):
            with client.lock(f"name-{number}"):
                pass
            if number % max(1, count // 10) == 0:
                sizes.append(process_size())
        took = time.monotonic() - began
    (half, files), (end, files_at_end) = sizes[len(sizes) // 2], sizes[-1]
    print(
        f"  {count} pairs with {count} names: {took / count * 1e6:.0f} us each; {half:.1f} MB at half, {end:.1f} MB at the end; "
        f"{files} and {files_at_end} descriptors",
        flush=True,
    )
    return end - half < FLAT and files_at_end <= files + 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.long.scale", description=__doc__)
    parser.add_argument("--store", choices=KINDS, default="sqlite")
    parser.add_argument("--waiters", type=int, default=1000)
    parser.add_argument("--readers", type=int, default=1000)
    parser.add_argument("--leases", type=int, default=10_000)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    print(options.store, flush=True)
    held = True
    with opened(options.store) as url:
        if options.waiters:
            held &= asyncio.run(waiters(url, options.waiters))
        if options.readers:
            held &= asyncio.run(readers(url, options.readers))
        if options.leases:
            held &= asyncio.run(leases(url, options.leases, options.seconds))
        if options.pairs:
            held &= pairs(url, options.pairs)
    print("held" if held else "DID NOT HOLD")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
