"""Connections that an engine of SQLAlchemy lends for one call each; no lease keeps one.

The keeper and the subscription do not use the engine's pool: they connect for themselves, with the settings of a connection that the engine has lent.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql.dialect import Link
from interlock.backends.sql.mysql.address import Address, session
from interlock.backends.sql.mysql.driver import BlockingDriver, Driver
from interlock.backends.sql.mysql.link import MysqlLink
from interlock.errors import Unreached


class Lender(Protocol):
    """An engine: `lend` returns its own object and the driver's connection in it."""

    async def lend(self, timeout: float) -> tuple[Any, Any]: ...
    async def give_back(self, lent: Any, sound: bool) -> None: ...
    def driver(self, place: str, connection: Any) -> Driver: ...
    def settings(self, connection: Any) -> dict[str, Any]:
        """How this connection was made, as our own connections take it."""
        ...


class Engine:
    """`sqlalchemy.Engine` over PyMySQL, for threads. Its `pool_timeout` says how long a call may wait for a connection."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        lent = self._engine.raw_connection()
        return lent, lent.driver_connection

    async def give_back(self, lent: Any, sound: bool) -> None:
        if not sound:
            lent.invalidate()
        lent.close()

    def driver(self, place: str, connection: Any) -> Driver:
        return BlockingDriver(place, connection)

    def settings(self, connection: Any) -> dict[str, Any]:
        named = {name: getattr(connection, name) for name in ("host", "port", "user", "unix_socket")}
        # By default PyMySQL uses TLS where the server has it, and then so do we; this is about an engine that demands it.
        demanded = getattr(connection, "_ssl_required", connection.ssl)
        return _plain(named, connection.password, connection.db, connection.ctx if demanded else None)


class AsyncEngine:
    """`sqlalchemy.ext.asyncio.AsyncEngine` over aiomysql or asyncmy, for tasks."""

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

    def driver(self, place: str, connection: Any) -> Driver:
        from interlock.backends.sql.mysql.loop_driver import LoopDriver  # here, not above: it needs asyncio

        return LoopDriver(place, connection)

    def settings(self, connection: Any) -> dict[str, Any]:
        named = {name: getattr(connection, f"_{name}") for name in ("host", "port", "user", "unix_socket")}
        return _plain(named, connection._password, connection._db, getattr(connection, "_ssl_context", None))


def _plain(named: dict[str, Any], password: Any, database: Any, tls: Any) -> dict[str, Any]:
    def text(value: Any) -> Any:
        return value.decode("latin1") if isinstance(value, bytes) else value

    found = {name: text(value) for name, value in named.items() if value is not None}
    found |= {"password": text(password) or "", "database": text(database)}
    return found | ({} if tls is None else {"ssl": tls}) | session()


class _Lent(MysqlLink):
    """A link over a lent connection, which remembers what to give back, and how patient the connection was."""

    def __init__(self, driver: Driver, address: Address, lent: Any, connection: Any) -> None:
        super().__init__(driver, address.schema, address.place, None)
        self.lent = lent
        self._connection = connection
        self._patience = {
            name: getattr(connection, name)
            for name in ("_read_timeout", "_write_timeout")
            if hasattr(connection, name)
        }

    def leave(self) -> None:
        """Leave the connection to its engine as it was."""
        self._opened = False
        for name, value in self._patience.items():
            setattr(self._connection, name, value)


class EngineSource:
    """See `interlock.backends.sql.dialect.Source`."""

    def __init__(
        self, lender: Lender, address: Address, runtime: WaitRuntime, connect_timeout: float
    ) -> None:
        self._lender = lender
        self._address = address
        self._runtime = runtime
        self._connect_timeout = connect_timeout

    async def borrow(self, until: float, patient: bool) -> tuple[Link, bool]:
        timeout = max(0.001, until - self._runtime.now())
        if patient:
            timeout = max(timeout, self._connect_timeout)
        address = self._address
        try:
            lent, connection = await self._lender.lend(timeout)
        except Exception as error:  # whatever the engine and its driver raise: nothing was sent
            said = " ".join(str(error).split()) or type(error).__name__
            raise Unreached(f"{address.place}: no connection from the engine: {said}") from None
        if not address.settings:
            address.settings.update(self._lender.settings(connection))
        return _Lent(self._lender.driver(address.place, connection), address, lent, connection), True

    async def give_back(self, link: Link, sound: bool) -> None:
        assert isinstance(link, _Lent)
        link.leave()
        await self._lender.give_back(link.lent, sound)

    async def warm(self, timeout: float) -> None:
        link, _ = await self.borrow(self._runtime.now() + timeout, False)
        await self.give_back(link, True)

    def drain(self) -> None:
        """The engine looks after its own connections."""

    def inside(self) -> bool:
        return False

    def after_fork(self) -> None:
        """The engine is the user's: after a fork it is for the user to dispose of it."""

    async def close(self) -> None:
        """The engine stays open."""
