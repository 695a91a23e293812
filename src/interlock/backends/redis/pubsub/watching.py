"""Watches a queue by polling it, because servers publish grants and not all changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from interlock.backends.redis.transport.interface import WaitRuntime
from interlock.backends.redis.wire import packing
from interlock.errors import StoreUnavailable
from interlock.model import Queue
from interlock.ports import IO_TIMEOUT

LOOK = 0.02  # seconds between the first polls
LOOK_AT_MOST = 0.25


async def until_changed(
    runtime: WaitRuntime, inspect: Callable[[str, float], Awaitable[Queue]], seen: Queue, timeout: float
) -> None:
    """Return when the queue differs from `seen`, or after `timeout` seconds."""
    until, pause, outline = runtime.now() + timeout, LOOK, packing.outline(seen)
    while (left := until - runtime.now()) > 0:
        try:
            if packing.outline(await inspect(seen.resource, min(left, IO_TIMEOUT))) != outline:
                return
        except StoreUnavailable:
            if runtime.now() < until:
                raise
            return  # the timeout passed before the answer came
        await runtime.wait(runtime.signal(), min(pause, left))
        pause = min(LOOK_AT_MOST, pause * 1.5)
