"""Mistakes that a type checker must find: each line names the mypy error it must raise.

Left out of the ordinary run of the type checkers; `test_misuse.py` compares what mypy says with the comments.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import interlock
from interlock import aio


def lost_in_a_thread(lease: interlock.Lease) -> None: ...


async def lost_on_a_loop(lease: aio.Lease) -> None: ...


def sync(client: interlock.Client) -> None:
    client.lock(42)  # error: arg-type
    client.lock("x", 10)  # error: call-arg
    client.lock("x", ttl="10")  # error: arg-type
    client.lock("x", time_out=5)  # error: call-arg
    client.lock("x").acquire().token  # error: union-attr
    client.lock("x", on_lost=lambda: None)  # error: arg-type, misc
    client.semaphore("x", capacity="3")  # error: arg-type
    client.multilock(["x"], min_hold=1)  # error: call-arg
    client.once("x", timeout=5)  # error: call-arg
    client.lock("x", on_lost=lost_on_a_loop)  # error: arg-type
    client.rwlock("x").read().aquire()  # error: attr-defined
    client.evict("x")  # error: call-arg
    client.lease("x")  # error: attr-defined
    interlock.connect(6379)  # error: arg-type
    interlock.conect("redis://localhost")  # error: attr-defined
    with client.lock("x") as lease:
        lease.token = 1  # error: misc

    @client.lock("x")
    def job(count: int) -> int:
        return count

    job("3")  # error: arg-type


async def awaited(client: aio.Client) -> None:
    client.lock("x").acquire()  # error: unused-coroutine
    client.lock("x").acquire().token  # error: attr-defined
    with client.lock("x"):  # error: attr-defined
        pass
    client.lock("x", time_out=5)  # error: call-arg
    client.semaphore("x", 3, ttl="10")  # error: arg-type
    client.lock("x", on_lost=lost_in_a_thread)  # error: arg-type
    aio.connect(keeper="process")  # error: arg-type

    @client.lock("x")  # error: arg-type
    def job() -> int:
        return 1

    @client.lock("x")  # error: arg-type
    def rows() -> Iterator[int]:
        yield 1

    @client.lock("x")  # error: arg-type
    async def each(count: int) -> AsyncIterator[int]:
        yield count


asyncio.run(awaited(interlock.connect()))  # error: arg-type
