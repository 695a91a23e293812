"""Connections of sqlite3, psycopg, PyMySQL and aiomysql, and their cursors.

A statement runs on a cursor of our own: the user's cursor keeps its rows, and row factories of the user's connection do not
change what we read. Blocking and asyncio connections have the same methods, so each class serves both: `settled` awaits what
must be awaited.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from inspect import isawaitable
from typing import Any

from interlock.errors import Unsupported
from interlock.guards.sql.statements import pyformat
from interlock.guards.sql.transaction import PENDING, Dialect, Outcome, outside

IDLE = 0  # of psycopg's transaction status
IN_TRANSACTION, AUTOCOMMIT = 1, 2  # of the server status in MySQL's protocol

POISON = """do $$ begin
  raise exception 'interlock: the token is stale, and this transaction can no longer be committed' using errcode = '40000';
end $$"""
POISONED = "40000"


async def settled(value: Any) -> Any:
    """Return a value, or what it answers when it is awaited."""
    return await value if isawaitable(value) else value


class SQLiteTransaction:
    """A connection of the standard library's `sqlite3`."""

    dialect: Dialect = "sqlite"
    asynchronous = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        # From Python 3.12 on True or False; before that, and by default, `isolation_level` decides.
        said: object = getattr(connection, "autocommit", None)
        self._autocommit = said if isinstance(said, bool) else None

    def check(self) -> None:
        older = self._autocommit is None
        begins_by_itself = self._connection.isolation_level is not None if older else not self._autocommit
        if not self._connection.in_transaction and not begins_by_itself:
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

    def __init__(self, connection: Any, asynchronous: bool) -> None:
        self._connection = connection
        self.asynchronous = asynchronous

    def check(self) -> None:
        if self._connection.autocommit and self._connection.info.transaction_status == IDLE:
            raise outside("use `with connection.transaction():`")

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> Outcome:
        cursor = self._connection.cursor(row_factory=import_module("psycopg.rows").tuple_row)
        try:
            await settled(cursor.execute(pyformat(sql), parameters))
            rows = await settled(cursor.fetchall()) if cursor.description else ()
            return Outcome(cursor.rowcount, tuple(rows))
        finally:
            await settled(cursor.close())

    async def end(self) -> None:
        """Inside `with connection.transaction():` a new transaction that has failed already takes its place.

        There psycopg forbids a rollback; and an error alone would end only the innermost of several such blocks. So all is
        rolled back, and every statement fails until the outermost block ends.
        """
        if self._connection.closed:
            return
        if not getattr(self._connection, "_num_transactions", 1):
            await settled(self._connection.rollback())
            return
        for command in ("rollback", "begin", POISON):
            try:
                await settled(self._connection.execute(command, prepare=False))
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

    def __init__(self, connection: Any, library: str, asynchronous: bool) -> None:
        self._connection = connection
        self._library = library
        self.asynchronous = asynchronous

    def check(self) -> None:
        if self._connection.server_status & (IN_TRANSACTION | AUTOCOMMIT) == AUTOCOMMIT:
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
        await settled(self._connection.rollback())

    async def define(self, sql: str) -> None:
        if self._connection.server_status & IN_TRANSACTION:
            raise Unsupported(PENDING)  # MySQL would commit it
        await self.execute(sql, {})
