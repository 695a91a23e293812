"""Connections that the user's own pool lends for one call: psycopg's pools, and engines of SQLAlchemy.

See `user_connections`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any
from weakref import WeakSet

from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql.postgresql.address import Address
from interlock.backends.sql.postgresql.connection import PostgresConnection, Waits
from interlock.backends.sql.postgresql.statements import Statement
from interlock.backends.sql.user_connections import Lender, OneDatabase, UserSource, unless_cancelled
from interlock.errors import StoreUnfit, Unreached

IDLE = 0  # TransactionStatus
OF_PARENT = (
    "this client was made from a pool of psycopg that another process opened before it forked this one, "
    "and a "
    "connection serves only one process; make a pool in the child, and connect to it there"
)


class PsycopgPool:
    """`psycopg_pool.ConnectionPool`, for threads."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        connection = self._pool.getconn(timeout)
        return connection, connection

    async def give_back(self, lent: Any, sound: bool) -> None:
        if not sound:
            lent.close()
        self._pool.putconn(lent)

    def show_new(self, learn: Callable[[Any], None]) -> None:
        pool = self._pool
        conninfo, settings = _told(pool.conninfo), _told(pool.kwargs)
        with pool.connection_class.connect(conninfo or "", **(settings or {})) as connection:
            learn(connection)

    def after_fork(self) -> str:
        return _after_fork(self._pool)


def refuse_parents(pool: Any) -> None:
    """Raise `StoreUnfit` if a blocking pool was opened before this process was forked: its threads are
    gone.
    """
    threads = [worker for worker in getattr(pool, "_workers", ()) if hasattr(worker, "is_alive")]
    if threads and not pool.closed and not any(thread.is_alive() for thread in threads):
        raise StoreUnfit(OF_PARENT)


def _after_fork(pool: Any) -> str:
    """Only a pool that was not open yet has nothing of the parent's. Its threads are gone, too."""
    return "" if pool.closed else OF_PARENT


class AsyncPsycopgPool:
    """`psycopg_pool.AsyncConnectionPool`, for tasks."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        connection = await unless_cancelled(self._pool.getconn(timeout), self._pool.putconn)
        return connection, connection

    async def give_back(self, lent: Any, sound: bool) -> None:
        if not sound:
            await lent.close()
        await self._pool.putconn(lent)

    def show_new(self, learn: Callable[[Any], None]) -> None:
        import asyncio

        async def show() -> None:
            pool = self._pool
            conninfo, settings = _told(pool.conninfo), _told(pool.kwargs)
            conninfo = await conninfo if isawaitable(conninfo) else conninfo
            settings = await settings if isawaitable(settings) else settings
            made = await pool.connection_class.connect(conninfo or "", **(settings or {}))
            async with made as connection:
                learn(connection)

        asyncio.run(show())

    def after_fork(self) -> str:
        return _after_fork(self._pool)


def _told(setting: Any) -> Any:
    """A setting of a pool, which may be a function that returns it, such as one that asks for a password."""
    return setting() if callable(setting) else setting


class _Lent(PostgresConnection):
    """A lent connection, which remembers what to give back."""

    __slots__ = ("lent",)

    def __init__(
        self, address: Address, statements: dict[str, Statement], waits: Waits, lent: Any, connection: Any
    ) -> None:
        super().__init__(address, statements, waits)
        self.lent = lent
        self.adopt(connection.pgconn)

    async def learn(self, timeout: float) -> None:
        await self.learn_role(time.monotonic() + timeout)

    def leave(self) -> None:
        self.abandon()  # the pool closes it


def source(
    pool: Lender, address: Address, statements: dict[str, Statement], runtime: WaitRuntime, waits: Waits
) -> UserSource:
    """Steps run on connections of this pool."""

    known: WeakSet[Any] = WeakSet()
    database = OneDatabase()

    def adopt(lent: Any, connection: Any) -> _Lent:
        adopted = _Lent(address, statements, waits, lent, connection)
        if adopted.stale() or adopted.pgconn.transaction_status != IDLE:
            adopted.leave()
            raise Unreached(f"{address.label}: the pool lent a connection that is closed or in use")
        database.check(address.label, adopted.pgconn.db.decode("utf-8", "replace"))
        if connection not in known:  # or an old connection would bring back an old password
            known.add(connection)
            address.learn_from(adopted.pgconn)
        return adopted

    return UserSource(pool, adopt, runtime, lambda: address.label, address.connect_timeout)
