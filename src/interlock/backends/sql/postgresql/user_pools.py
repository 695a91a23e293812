"""Connections that the user's own pool lends for one call: psycopg's pools, and engines of SQLAlchemy.

A connection is borrowed for one step and given back at once; no lease keeps one. The keeper and the listener do not use the pool: they
connect for themselves, with the settings of a connection that the pool has lent.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql.dialect import Link
from interlock.backends.sql.postgresql.address import Address
from interlock.backends.sql.postgresql.link import PostgresLink, Waits
from interlock.backends.sql.postgresql.statements import Statement
from interlock.errors import Unreached

IDLE = 0  # TransactionStatus


class UserPool(Protocol):
    """A pool of the user; `lend` returns the pool's own object and the connection of psycopg in it."""

    async def lend(self, timeout: float) -> tuple[Any, Any]: ...
    async def give_back(self, lent: Any, connection: Any, sound: bool) -> None: ...


class PsycopgPool:
    """`psycopg_pool.ConnectionPool`, for threads."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        connection = self._pool.getconn(timeout)
        return connection, connection

    async def give_back(self, lent: Any, connection: Any, sound: bool) -> None:
        if not sound:
            connection.close()
        self._pool.putconn(connection)


class AsyncPsycopgPool:
    """`psycopg_pool.AsyncConnectionPool`, for tasks."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        connection = await self._pool.getconn(timeout)
        return connection, connection

    async def give_back(self, lent: Any, connection: Any, sound: bool) -> None:
        if not sound:
            await connection.close()
        await self._pool.putconn(connection)


class Engine:
    """`sqlalchemy.Engine` over psycopg, for threads."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        lent = self._engine.raw_connection()
        return lent, lent.driver_connection

    async def give_back(self, lent: Any, connection: Any, sound: bool) -> None:
        if not sound:
            lent.invalidate()
        lent.close()


class AsyncEngine:
    """`sqlalchemy.ext.asyncio.AsyncEngine` over psycopg, for tasks."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        import asyncio

        async with asyncio.timeout(timeout):
            lent = await self._engine.raw_connection()
        return lent, lent.driver_connection

    async def give_back(self, lent: Any, connection: Any, sound: bool) -> None:
        greenlet_spawn = import_module("sqlalchemy.util").greenlet_spawn
        if not sound:
            await greenlet_spawn(lent.invalidate)
        await greenlet_spawn(lent.close)


class _Lent(PostgresLink):
    """A link over a lent connection, which remembers what to give back."""

    __slots__ = ("connection", "lent")

    def __init__(
        self,
        address: Address,
        statements: dict[str, Statement],
        waits: Waits,
        lent: Any,
        connection: Any,
    ) -> None:
        super().__init__(address, statements, waits)
        self.lent = lent
        self.connection = connection
        self.adopt(connection.pgconn)


class UserSource:
    """See `dialect.Source`."""

    def __init__(
        self,
        pool: UserPool,
        address: Address,
        statements: dict[str, Statement],
        runtime: WaitRuntime,
        waits: Waits,
    ) -> None:
        self._pool = pool
        self._address = address
        self._statements = statements
        self._runtime = runtime
        self._waits = waits

    async def borrow(self, until: float, patient: bool) -> tuple[Link, bool]:
        timeout = max(0.001, until - self._runtime.now())
        if patient:
            timeout = max(timeout, self._address.connect_timeout)
        try:
            lent, connection = await self._pool.lend(timeout)
        except Exception as error:  # whatever the pool and its driver raise: nothing was sent
            raise Unreached(
                f"{self._address.place}: no connection from the pool: {' '.join(str(error).split()) or type(error).__name__}"
            ) from None
        link = _Lent(self._address, self._statements, self._waits, lent, connection)
        if link.stale() or link.pgconn.transaction_status != IDLE:
            await self.give_back(link, False)
            raise Unreached(f"{self._address.place}: the pool lent a connection that is closed or in use")
        self._address.learn_from(link.pgconn)
        return link, True

    async def give_back(self, link: Link, sound: bool) -> None:
        assert isinstance(link, _Lent)
        link.abandon()  # the pool closes it
        await self._pool.give_back(link.lent, link.connection, sound)

    async def warm(self, timeout: float) -> None:
        link, _ = await self.borrow(self._runtime.now() + timeout, False)
        await self.give_back(link, True)

    def drain(self) -> None:
        """The pool looks after its own connections."""

    def inside(self) -> bool:
        return False

    def after_fork(self) -> None:
        """The pool is the user's: after a fork it is for the user to make another."""

    async def close(self) -> None:
        """The pool stays open."""
