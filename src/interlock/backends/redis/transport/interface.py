"""What a Redis store needs: a transport that carries requests, and the part of a runtime that waits."""

from __future__ import annotations

import threading
from collections.abc import Awaitable
from typing import Any, Protocol

from interlock.backends.redis.address import Route
from interlock.ports import Signal


class Transport(Protocol):
    """Carries requests to a server, blocking (`pool`) or on an event loop (`multiplexed`)."""

    def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Awaitable[Any]: ...
    async def warm(self, route: Route, timeout: float) -> None:
        """Connect to the server of this route, if there is no connection yet."""
        ...

    def inside(self) -> bool:
        """Whether the calling thread is in the middle of a change here, so that it must not send a request."""
        ...

    def after_fork(self) -> None: ...
    async def close(self) -> None: ...


class WaitRuntime(Protocol):
    """The part of a runtime that waits for signals."""

    def now(self) -> float: ...
    def signal(self) -> Signal: ...
    async def wait(self, signal: Any, timeout: float | None) -> bool: ...


class ThreadRuntime:
    """Waits by blocking the calling thread; for the blocking twin of an asyncio store."""

    def __init__(self, runtime: WaitRuntime) -> None:
        self.now = runtime.now

    def signal(self) -> threading.Event:
        return threading.Event()

    async def wait(self, signal: threading.Event, timeout: float | None) -> bool:
        return signal.wait(timeout)
