"""Transactions of SQLAlchemy and of Django."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from interlock.errors import Unsupported
from interlock.guards.sql.dbapi import settled
from interlock.guards.sql.statements import named, pyformat
from interlock.guards.sql.transaction import DIALECTS, PENDING, Dialect, Outcome, outside


class SQLAlchemyTransaction:
    """A Session, Connection, AsyncSession or AsyncConnection.

    A statement of ours runs on the connection of a session, not through the session, which might flush before it: then the
    guard would not be the first statement.
    """

    def __init__(self, session: Any, asynchronous: bool) -> None:
        self._session = session
        self.asynchronous = asynchronous
        self._of_session = hasattr(session, "get_bind")
        self._bind: Any = None

    @property
    def dialect(self) -> Dialect:
        bind = self._session.get_bind() if self._of_session else self._session
        name = str(bind.dialect.name)
        if name not in DIALECTS:
            raise TypeError(f"guards know PostgreSQL, MySQL, MariaDB and SQLite, not {name}")
        return DIALECTS[name]

    def check(self) -> None:
        """SQLAlchemy begins by itself, except in its AUTOCOMMIT mode, which `_connection` looks for once it is connected."""

    async def _connection(self) -> Any:
        if self._bind is None:
            self._bind = await settled(self._session.connection()) if self._of_session else self._session
            blocking = getattr(self._bind, "sync_connection", self._bind)
            if getattr(blocking, "_is_autocommit_isolation", bool)():
                raise outside("use an engine or a connection with another isolation_level than AUTOCOMMIT")
        return self._bind

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> Outcome:
        connection = await self._connection()
        text = import_module("sqlalchemy").text
        result = await settled(connection.execute(text(named(sql)), dict(parameters)))
        rows = tuple(tuple(row) for row in result) if result.returns_rows else ()
        return Outcome(result.rowcount, rows)

    async def end(self) -> None:
        await settled(self._session.rollback())

    async def define(self, sql: str) -> None:
        if self._session.in_transaction():
            raise Unsupported(PENDING)
        await self.execute(sql, {})
        await settled(self._session.commit())


class DjangoTransaction:
    """A connection of Django's, inside `transaction.atomic()`."""

    asynchronous = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        if connection.vendor not in DIALECTS:
            raise TypeError(f"guards know PostgreSQL, MySQL, MariaDB and SQLite, not {connection.vendor}")
        self.dialect: Dialect = DIALECTS[connection.vendor]

    def check(self) -> None:
        if not self._connection.in_atomic_block and self._connection.get_autocommit():
            raise outside("use `with transaction.atomic():`")

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> Outcome:
        with self._connection.cursor() as cursor:
            cursor.execute(pyformat(sql), dict(parameters))
            rows = cursor.fetchall() if cursor.description else ()
            return Outcome(cursor.rowcount, tuple(tuple(row) for row in rows))

    async def end(self) -> None:
        """Roll back all that stands in `atomic` blocks, and let each of them refuse statements until the outermost ends.

        The blocks of Django's TestCase around a test are spared: their transaction is the test's, not the program's.
        """
        connection = self._connection
        if not connection.in_atomic_block:
            connection.rollback()
            return
        spared = sum(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)
        savepoints = connection.savepoint_ids  # one for each block but the first, None where a block has none
        kept = savepoints[spared - 1] if 0 < spared <= len(savepoints) else None
        if kept is not None:
            connection._savepoint_rollback(kept)
        elif not spared:
            with connection.wrap_database_errors:
                connection._rollback()
        savepoints[spared:] = [None] * len(savepoints[spared:])
        connection.needs_rollback = True

    async def define(self, sql: str) -> None:
        if self._connection.in_atomic_block and self.dialect == "mysql":
            raise Unsupported(PENDING)
        with self._connection.cursor() as cursor:
            cursor.execute(sql)


def django_connection(using: str) -> Any:
    """Return the connection that Django's settings know by this alias."""
    with suppress(ImportError):
        return import_module("django.db").connections[using]
    raise TypeError(f"{using!r} would be the alias of a database of Django, but Django is not installed")
