"""Tasks that are cancelled while Redis hangs: acquiring, waiting, releasing, leaving a body, closing.

Each must be back within half a second, and when the server goes on, nothing may be left there.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from interlock import aio
from interlock.testing.lag import Lag
from interlock.testing.servers.redis import Server, running

BOUND = 0.5
AFTER = 0.2  # seconds after which a task is cancelled


HANDLES: list[asyncio.TimerHandle] = []
OTHERS: list[aio.Client] = []


def freeze_soon(server: Server) -> None:
    HANDLES.append(asyncio.get_running_loop().call_later(AFTER / 2, server.freeze))


async def acquire(client: aio.Client, server: Server) -> None:
    server.freeze()
    await client.lock("acquire").acquire()


async def wait(client: aio.Client, server: Server) -> None:
    OTHERS.append(aio.connect(server.url(), ttl=1))
    await OTHERS[-1].lock("wait").acquire()
    freeze_soon(server)
    await client.lock("wait").acquire()


async def body(client: aio.Client, server: Server) -> None:
    async with client.lock("body", ttl=5):
        server.freeze()
        await asyncio.sleep(60)


async def reader(client: aio.Client, server: Server) -> None:
    async with client.rwlock("reader", ttl=5).read():
        server.freeze()
        await asyncio.sleep(60)


async def several(client: aio.Client, server: Server) -> None:
    async with client.multilock(["several:1", "several:2", "several:3"], ttl=5):
        server.freeze()
        await asyncio.sleep(60)


async def permits(client: aio.Client, server: Server) -> None:
    semaphore = client.semaphore("permits", 4, ttl=5)
    await semaphore.acquire(permits=3)
    server.freeze()
    await semaphore.release(3)


async def release(client: aio.Client, server: Server) -> None:
    lease = await client.lock("release", ttl=30).acquire()
    assert lease
    server.freeze()
    await lease.release()


async def campaign(client: aio.Client, server: Server) -> None:
    server.freeze()
    await client.election("campaign").campaign("me")


async def event(client: aio.Client, server: Server) -> None:
    freeze_soon(server)
    await client.event("event").wait()


async def condition(client: aio.Client, server: Server) -> None:
    condition = client.condition("condition")
    async with condition:
        freeze_soon(server)
        await condition.wait()


async def client_body(client: aio.Client, server: Server) -> None:
    async with client:
        await client.lock("client", ttl=5).acquire()
        server.freeze()
        await asyncio.sleep(60)


async def close(client: aio.Client, server: Server) -> None:
    await client.lock("close", ttl=5).acquire()
    server.freeze()
    await client.close()


WAYS: tuple[Callable[[aio.Client, Server], Awaitable[None]], ...] = (
    *(acquire, wait, body, reader, several, permits, release, campaign, event, condition, close, client_body),
)


async def attack(
    server: Server, way: Callable[[aio.Client, Server], Awaitable[None]], twice: bool
) -> tuple[float, float, int]:
    """How long the task took to end after it was cancelled, the machine's lag in it, and the names left in the end."""
    client = aio.connect(server.url(), ttl=5)
    try:
        await client.lock("warm").acquire(timeout=5)
        task = asyncio.ensure_future(way(client, server))
        await asyncio.sleep(AFTER)
        with Lag() as lag:
            began = time.monotonic()
            task.cancel()
            if twice:
                await asyncio.sleep(0.05)
                task.cancel()
            await asyncio.wait([task])
            took = time.monotonic() - began
        if not task.cancelled():
            print(f"{way.__name__}: not cancelled, but {task.exception()!r}")
    finally:
        while HANDLES:
            HANDLES.pop().cancel()
        server.thaw()
    async with aio.connect(server.url()) as judge:
        until = time.monotonic() + (
            6.0 if way in (close, client_body) else 3.0
        )  # a closed client leaves it to the ttl
        while left := [name async for name in judge.scan() if name != "warm"]:
            if time.monotonic() > until:
                break
            await asyncio.sleep(0.01)
    for each in (client, *OTHERS):
        await each.close()
    OTHERS.clear()
    return took, lag.seconds, len(left)


def main() -> int:
    argparse.ArgumentParser(prog="python -m tests.attacks.long.cancelled", description=__doc__).parse_args()
    broken = 0
    for way in WAYS:
        for twice in (False, True):
            with running() as server:
                took, lag, left = asyncio.run(attack(server, way, twice))
            bad = took - lag > BOUND or left
            broken += bool(bad)
            words = "cancelled twice" if twice else "cancelled"
            print(
                f"{way.__name__:>10}, {words}: back after {took:.3f} s (lag {lag:.3f}), {left} left {'BROKEN' if bad else ''}"
            )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
