"""One interlock client for each connection pool of the user's, however many locks are made of it.

The maps are weak: a client goes with its pool. One of asyncio is closed when its event loop ends, too, since
nobody else would close its connection.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from interlock import aio, blocking
from interlock._core.client import Client
from interlock._core.lease import Lease

Residence = tuple[aio.Client, AsyncGenerator[None, None]]

_mutex = threading.Lock()
_blocking: WeakKeyDictionary[Any, blocking.Client] = WeakKeyDictionary()
_asyncio: WeakKeyDictionary[Any, dict[asyncio.AbstractEventLoop, Residence]] = WeakKeyDictionary()
_timed: WeakSet[Lease] = WeakSet()


def shared(redis: Any) -> Client:
    """The client for this pool, blocking. It connects when first used."""
    pool = getattr(redis, "connection_pool", redis)
    with _mutex:
        client = _blocking.get(pool)
        if client is None:
            client = _blocking[pool] = blocking.connect(redis)
    return client._core


async def shared_async(redis: Any) -> Client:
    """The client for this pool and the running loop."""
    pool, loop = getattr(redis, "connection_pool", redis), asyncio.get_running_loop()
    with _mutex:
        residences = _asyncio.setdefault(pool, {})
        found = residences.get(loop)
        if found is not None and not found[0]._core.closed:
            return found[0]._core
        for ended in [known for known in residences if known.is_closed()]:
            del residences[ended]
        client = aio.connect(redis)
        stay = residing(client)
        residences[loop] = client, stay
    await anext(stay)  # never suspends: from here on the loop knows of it
    return client._core


async def residing(client: aio.Client) -> AsyncGenerator[None, None]:
    """Close the client when its loop ends, which ends all generators that were begun on it; or when it is
    dropped.
    """
    try:
        yield
    finally:
        with suppress(Exception):  # the server may be gone by then
            await client.close()


def outlives_exit(lease: Lease) -> None:
    """Leave a lease alone when this process ends: redis-py's lock with a timeout then stands until that is
    over.
    """
    client = lease._holding.client
    with client.mutex:
        client.leases.pop(lease, None)
    _timed.add(lease)


def _after_fork() -> None:
    """In a forked child: what no client knows of must be forgotten here."""
    global _mutex
    _mutex = threading.Lock()
    for lease in list(_timed):
        lease._forget()
    _timed.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
