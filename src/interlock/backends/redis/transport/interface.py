"""What a Redis store needs of a transport, which carries its requests."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from interlock.backends.redis.address import Route


class Transport(Protocol):
    """Carries requests to a server, blocking (`pool`) or on an event loop (`multiplexed`)."""

    def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Awaitable[Any]: ...
    async def warm(self, route: Route, timeout: float) -> None:
        """Connect to the server of this route, if there is no connection yet."""
        ...

    def inside(self) -> bool:
        """Whether the calling thread is in the middle of a change here, so that it must not send a
        request.
        """
        ...

    def after_fork(self) -> None: ...
    async def close(self) -> None: ...
