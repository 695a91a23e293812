"""How a link waits in an event loop: the task is suspended until the socket is ready."""

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
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[list[str]]] = loop.create_future()

        def look() -> None:
            try:
                found = resolver.addresses(hosts, timeout)
            except BaseException as error:
                _post(loop, _settle, done, None, error)
            else:
                _post(loop, _settle, done, found, None)

        resolver.start(look)
        return await done


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


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: object) -> None:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        pass  # the loop is closed, and nobody is left to tell
