"""A client that must work, whatever its URL was: it holds, another waits, and both are shown."""

from __future__ import annotations

import asyncio
import threading
from uuid import uuid4

import interlock
from interlock import aio
from tests.patience import PATIENCE


def enter(client: interlock.Client, name: str) -> None:
    with client.lock(name, timeout=PATIENCE):
        pass


def held_and_shown(client: interlock.Client) -> None:
    """The client works, waiting included."""
    name = uuid4().hex
    with client.lock(name):
        waiter = threading.Thread(target=enter, args=(client, name))
        waiter.start()
        while not client.inspect(name).waiters:
            pass
    waiter.join(PATIENCE)
    assert not waiter.is_alive()
    assert client.inspect(name).standings == ()
    client.close()


async def held_and_shown_async(client: aio.Client) -> None:
    name = uuid4().hex

    async def wait() -> None:
        async with client.lock(name, timeout=PATIENCE):
            pass

    async with client.lock(name):
        waiter = asyncio.create_task(wait())
        while not (await client.inspect(name)).waiters:
            await asyncio.sleep(0.001)
    await asyncio.wait_for(waiter, PATIENCE)
    assert (await client.inspect(name)).standings == ()
    await client.close()
