"""Connections that a pool or an engine of the user lends for one step each; no lease keeps one.

The keeper and the subscription do not borrow: they connect for themselves, with the settings of a connection that was lent.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, cast

from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql.dialect import Link
from interlock.errors import Unreached


class Lender(Protocol):
    """A pool or an engine. `lend` returns its own object, which it wants back, and the driver's connection in it."""

    async def lend(self, timeout: float) -> tuple[Any, Any]: ...
    async def give_back(self, lent: Any, sound: bool) -> None: ...


class Engine:
    """`sqlalchemy.Engine`, for threads. Its `pool_timeout` says how long a step may wait for a connection."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        lent = self._engine.raw_connection()
        return lent, lent.driver_connection

    async def give_back(self, lent: Any, sound: bool) -> None:
        if not sound:
            lent.invalidate()
        lent.close()


class AsyncEngine:
    """`sqlalchemy.ext.asyncio.AsyncEngine`, for tasks."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        import asyncio

        async with asyncio.timeout(timeout):
            lent = await self._engine.raw_connection()
        return lent, lent.driver_connection

    async def give_back(self, lent: Any, sound: bool) -> None:
        greenlet_spawn = import_module("sqlalchemy.util").greenlet_spawn
        if not sound:
            await greenlet_spawn(lent.invalidate)
        await greenlet_spawn(lent.close)


class LentLink(Link, Protocol):
    """A link over a connection that was lent."""

    lent: Any

    def leave(self) -> None:
        """Leave the connection to its lender, as it was."""
        ...


class UserSource:
    """See `dialect.Source`. `adopt` makes a link of a connection that was lent, or raises if the connection will not do."""

    def __init__(
        self,
        lender: Lender,
        adopt: Callable[[Any, Any], LentLink],
        runtime: WaitRuntime,
        place: Callable[[], str],
        connect_timeout: float,
    ) -> None:
        self._lender = lender
        self._adopt = adopt
        self._runtime = runtime
        self._place = place
        self._connect_timeout = connect_timeout

    async def borrow(self, until: float, patient: bool) -> tuple[Link, bool]:
        timeout = max(0.001, until - self._runtime.now())
        if patient:
            timeout = max(timeout, self._connect_timeout)
        try:
            lent, connection = await self._lender.lend(timeout)
        except Exception as error:  # whatever the lender and its driver raise: nothing was sent
            said = " ".join(str(error).split()) or type(error).__name__
            raise Unreached(f"{self._place()}: no connection from the pool: {said}") from None
        try:
            return self._adopt(lent, connection), True
        except BaseException:
            await self._lender.give_back(lent, False)
            raise

    async def give_back(self, link: Link, sound: bool) -> None:
        lent = cast("LentLink", link)
        lent.leave()
        await self._lender.give_back(lent.lent, sound)

    async def warm(self, timeout: float) -> None:
        link, _ = await self.borrow(self._runtime.now() + timeout, False)
        await self.give_back(link, True)

    def drain(self) -> None:
        """The user's pool looks after its own connections."""

    def inside(self) -> bool:
        return False

    def after_fork(self) -> None:
        """The pool is the user's: after a fork it is for the user to make another."""

    async def close(self) -> None:
        """The user's pool stays open."""
