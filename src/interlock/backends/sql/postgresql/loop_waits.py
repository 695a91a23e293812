"""How a connection waits in an event loop: the task is suspended until the socket is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from interlock.backends.sql import resolver


class LoopWaits:
    """Suspends the calling task."""

    async def readable(self, descriptor: int, timeout: float) -> bool:
        loop = asyncio.get_running_loop()
        return await _ready(loop, loop.add_reader, loop.remove_reader, descriptor, timeout)

    async def writable(self, descriptor: int, timeout: float) -> bool:
        loop = asyncio.get_running_loop()
        return await _ready(loop, loop.add_writer, loop.remove_writer, descriptor, timeout)

    async def resolve(self, hosts: Sequence[str], timeout: float) -> list[list[str]]:
        return await resolver.addresses_async(hosts, timeout)


async def _ready(
    loop: asyncio.AbstractEventLoop,
    add: Callable[..., Any],
    remove: Callable[[int], Any],
    descriptor: int,
    timeout: float,
) -> bool:
    ready: asyncio.Future[bool] = loop.create_future()
    add(descriptor, _settle, ready, True, None)
    timer = loop.call_later(timeout, _settle, ready, False, None)
    try:
        return await ready
    finally:
        timer.cancel()
        remove(descriptor)


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if not future.done():
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
