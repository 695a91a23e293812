"""Connections of sqlite3, psycopg, PyMySQL and aiomysql, and their cursors.

A statement runs on a cursor of our own: the user's cursor keeps its rows, and row factories of the user's
connection do not change what we read. Blocking and asyncio connections have the same methods, so each class
serves both: `settled` awaits what must be awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from inspect import isawaitable
from typing import Any

from interlock.errors import Unsupported
from interlock.guards.sql.statements import pyformat
from interlock.guards.sql.transaction import PENDING, Dialect, Outcome, nested, outside

IDLE, ACTIVE = 0, 1  # of psycopg's transaction status
IN_TRANSACTION, AUTOCOMMIT = 1, 2  # of the server status in MySQL's protocol

POISON = """do $$ begin
  raise exception 'interlock: the token is stale, and this transaction can no longer be committed' using errcode = '40000';
end $$"""  # noqa: E501
POISONED = "40000"


async def settled(value: Any) -> Any:
    """Return a value, or what it answers when it is awaited."""
    return await value if isawaitable(value) else value


def commits_each(connection: Any) -> bool:
    """Whether a driver's connection is in no transaction, and will not begin one with the next statement.

    Drivers are told by their attributes, because SQLAlchemy works with more of them than we know by name.
    """
    autocommit = getattr(connection, "autocommit", None)
    if hasattr(connection, "isolation_level") and hasattr(connection, "in_transaction"):  # sqlite3, aiosqlite
        # From Python 3.12 on `autocommit` may be True or False; before that, and by default,
        # `isolation_level` decides.
        begins = not autocommit if isinstance(autocommit, bool) else connection.isolation_level is not None
        return not connection.in_transaction and not begins
    status = getattr(connection, "server_status", None)
    if isinstance(status, int):  # PyMySQL, aiomysql
        return status & (IN_TRANSACTION | AUTOCOMMIT) == AUTOCOMMIT
    if hasattr(connection, "get_autocommit"):  # mysqlclient
        return bool(connection.get_autocommit())
    status = getattr(getattr(connection, "info", None), "transaction_status", IDLE)  # psycopg and psycopg2
    return autocommit is True and status == IDLE and getattr(connection, "in_transaction", False) is not True


class SQLiteTransaction:
    """A connection of the standard library's `sqlite3`."""

    dialect: Dialect = "sqlite"
    savepoints = 0
    asynchronous = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        said: object = getattr(connection, "autocommit", None)
        self._autocommit = said if isinstance(said, bool) else None

    def check(self) -> None:
        if commits_each(self._connection):
            raise outside('run "begin immediate"')

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> Outcome:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        try:
            cursor.execute(sql, parameters)
            return Outcome(cursor.rowcount, tuple(cursor.fetchall()))
        finally:
            cursor.close()

    async def end(self) -> None:
        self._connection.rollback()
        if self._autocommit is True and self._connection.in_transaction:  # there `rollback` does nothing
            self._connection.execute("rollback")

    async def define(self, sql: str) -> None:
        if self._connection.in_transaction and self._autocommit is not False:
            raise Unsupported(PENDING)
        self._connection.execute(sql)
        self._connection.commit()


class PsycopgTransaction:
    """A connection of psycopg 3."""

    dialect: Dialect = "postgresql"
    savepoints = 0

    def __init__(self, connection: Any, asynchronous: bool) -> None:
        self._connection = connection
        self.asynchronous = asynchronous

    def check(self) -> None:
        # In pipeline mode the status is that of the last answer, and the next one ends what has begun without
        # a block.
        blocks, status = (
            getattr(self._connection, "_num_transactions", 0),
            self._connection.info.transaction_status,
        )
        if self._connection.autocommit and not blocks and status in (IDLE, ACTIVE):
            raise outside("use `with connection.transaction():`")
        if blocks > 1:
            raise nested("call it in the outermost `with connection.transaction():`")

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> Outcome:
        cursor = self._cursor()
        try:
            await self._answered(lambda: cursor.execute(pyformat(sql), parameters))
            rows = await settled(cursor.fetchall()) if cursor.description else ()
            return Outcome(cursor.rowcount, tuple(rows))
        finally:
            await settled(cursor.close())

    def _cursor(self) -> Any:
        rows = import_module("psycopg.rows").tuple_row
        if "Raw" not in self._connection.cursor_factory.__name__:
            return self._connection.cursor(row_factory=rows)
        # A raw cursor takes no parameters with names.
        psycopg: Any = import_module("psycopg")
        return (psycopg.AsyncCursor if self.asynchronous else psycopg.Cursor)(
            self._connection, row_factory=rows
        )

    async def _answered(self, run: Callable[[], Any]) -> None:
        """Run something, and wait for its answer also in pipeline mode, where a pipeline within the user's
        ends with all answers.
        """
        if not self._connection.info.pipeline_status:
            await settled(run())
        elif self.asynchronous:
            async with self._connection.pipeline():
                await run()
        else:
            with self._connection.pipeline():
                run()

    async def end(self) -> None:
        """Inside `with connection.transaction():` a new transaction that has failed already takes its place.

        There psycopg forbids a rollback; and an error alone would end only the innermost of several such
        blocks. So all is rolled back, and every statement fails until the outermost block ends.
        """
        if self._connection.closed:
            return
        if getattr(self._connection, "_tpc", None):  # after `tpc_begin`, `rollback` is forbidden
            await settled(self._connection.tpc_rollback())
            return
        if not getattr(self._connection, "_num_transactions", 1):
            await settled(self._connection.rollback())
            return
        for command in ("rollback", "begin", POISON):
            try:
                await self._answered(partial(self._connection.execute, command, prepare=False))
            except Exception as error:
                if getattr(error, "sqlstate", None) != POISONED:
                    raise

    async def define(self, sql: str) -> None:
        if self._connection.info.transaction_status != IDLE:
            raise Unsupported(PENDING)
        await settled(self._connection.execute(sql))
        await settled(self._connection.commit())


class MySQLTransaction:
    """A connection of PyMySQL or aiomysql."""

    dialect: Dialect = "mysql"
    savepoints = 0

    def __init__(self, connection: Any, library: str, asynchronous: bool) -> None:
        self._connection = connection
        self._library = library
        self.asynchronous = asynchronous

    def check(self) -> None:
        if commits_each(self._connection):
            raise outside("call `connection.begin()`")

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> Outcome:
        plain = import_module(f"{self._library}.cursors").Cursor  # the connection's own may return dicts
        cursor = await settled(self._connection.cursor(plain))
        try:
            changed = await settled(cursor.execute(pyformat(sql), parameters))
            rows = await settled(cursor.fetchall()) if cursor.description else ()
            return Outcome(changed, tuple(rows))
        finally:
            await settled(cursor.close())

    async def end(self) -> None:
        """Roll back. Between `xa start` and `xa prepare` the server forbids it, so there the connection is
        closed, which ends the transaction, too.
        """
        try:
            await settled(self._connection.rollback())
        except Exception:
            self._connection.close()
            raise

    async def define(self, sql: str) -> None:
        if self._connection.server_status & IN_TRANSACTION:
            raise Unsupported(PENDING)  # MySQL would commit it
        await self.execute(sql, {})
