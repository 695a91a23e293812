"""A few words with a server before its connection is used: written once, for threads and for tasks.

For what is asked rarely, when a connection is made. The hot path has leaves of its own (`pool`, `link`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from interlock.backends.redis.address import Address

T = TypeVar("T")


class Dialling(Protocol):
    """Opens a connection, asks on it, closes it; each answers or raises within its time."""

    async def connect(self, address: Address, timeout: float) -> Any: ...
    async def ask(self, address: Address, connection: Any, timeout: float, *words: bytes) -> Any: ...
    async def close(self, connection: Any) -> None: ...


class OnThread:
    """Blocks: nothing here ever suspends, see `stepped`."""

    async def connect(self, address: Address, timeout: float) -> Any:
        return address.connect(timeout)

    async def ask(self, address: Address, connection: Any, timeout: float, *words: bytes) -> Any:
        try:
            connection._sock.settimeout(timeout)  # not what was left when it was opened
            connection.send_command(*words)
            return connection.read_response()
        except Exception as error:
            raise address._refused(error, timeout) from None

    async def close(self, connection: Any) -> None:
        connection.disconnect()


class OnLoop:
    """Awaits."""

    async def connect(self, address: Address, timeout: float) -> Any:
        return await address.connect_async(timeout)

    async def ask(self, address: Address, connection: Any, timeout: float, *words: bytes) -> Any:
        import asyncio

        try:
            await connection.send_command(*words)
            return await asyncio.wait_for(connection.read_response(), timeout)
        except Exception as error:
            raise address._refused(error, timeout) from None

    async def close(self, connection: Any) -> None:
        await connection.disconnect(nowait=True)


def stepped(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run what never suspends from end to end."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking dialogue suspended")
