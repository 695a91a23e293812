"""Transactions of SQLAlchemy and of Django."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, cast

from interlock.errors import Unsupported
from interlock.guards.sql.dbapi import commits_each, settled
from interlock.guards.sql.statements import named, pyformat
from interlock.guards.sql.transaction import DIALECTS, PENDING, Dialect, Outcome, nested, outside

SEVERAL = (
    "this session has several databases, and a guard protects only the one that it runs in: hand over the "
    'connection to that one, session.connection(bind_arguments={"mapper": YourMappedClass})'
)


class SQLAlchemyTransaction:
    """A Session, Connection, AsyncSession or AsyncConnection.

    A statement of ours runs on the connection of a session, not through the session, which might flush before
    it: then the guard would not be the first statement.
    """

    savepoints = 0

    def __init__(self, session: Any, asynchronous: bool) -> None:
        self._session = session
        self.asynchronous = asynchronous
        self._of_session = hasattr(session, "get_bind")
        self._database: Any = None  # the engine or connection that the guard goes to, once it is known
        self._bind: Any = None

    def _only_database(self) -> Any:
        if self._database is None:
            self._database = _only_database(self._session) if self._of_session else self._session
        return self._database

    @property
    def dialect(self) -> Dialect:
        name = str(self._only_database().dialect.name)
        if name not in DIALECTS:
            raise TypeError(f"guards know PostgreSQL, MySQL, MariaDB and SQLite, not {name}")
        return DIALECTS[name]

    def check(self) -> None:
        """SQLAlchemy begins by itself, except where `_connection` finds otherwise once it is connected."""

    async def _connection(self) -> Any:
        if self._bind is None:
            if self._of_session:
                chosen = {"bind": self._only_database()}
                self._bind = await settled(self._session.connection(bind_arguments=chosen))
            else:
                self._bind = self._session
            blocking = getattr(self._bind, "sync_connection", self._bind)
            if getattr(blocking, "_is_autocommit_isolation", bool)():
                raise outside("use an engine or a connection with another isolation_level than AUTOCOMMIT")
            # The driver's connection may commit each statement without SQLAlchemy knowing it: by
            # `connect_args`, a `creator` or a listener. Under asyncio there is an adapter before it, with an
            # attribute of its own.
            pooled = blocking.connection
            if commits_each(pooled.driver_connection) or commits_each(pooled.dbapi_connection):
                raise outside("let the driver's connection be created without autocommit")
            if blocking.in_nested_transaction():
                raise nested(
                    "call it before begin_nested(), and in a session that does not join a connection's "
                    'transaction by join_transaction_mode="create_savepoint"'
                )
        return self._bind

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> Outcome:
        connection = await self._connection()
        text = import_module("sqlalchemy").text
        # An engine may ask for cursors of the server, and by them PostgreSQL changes nothing.
        options = {"stream_results": False, "yield_per": None}
        asked = connection.execute(text(named(sql)), dict(parameters), execution_options=options)
        result = await settled(asked)
        rows = tuple(tuple(row) for row in result) if result.returns_rows else ()
        return Outcome(result.rowcount, rows)

    async def end(self) -> None:
        await settled(self._session.rollback())
        # A session that has joined the transaction of a connection may have rolled back a savepoint of it
        # only.
        around = None if self._bind is None else self._bind.get_transaction()
        if around is not None and around.is_active:
            await settled(around.rollback())

    async def define(self, sql: str) -> None:
        if self._session.in_transaction():
            raise Unsupported(PENDING)
        await self.execute(sql, {})
        await settled(self._session.commit())


def _only_database(session: Any) -> Any:
    """The engine or connection of a session; `Unsupported` if it has several."""
    blocking = getattr(session, "sync_session", session)
    orm: Any = import_module("sqlalchemy.orm")
    own = cast(Any, type(blocking))
    by_table = blocking.binds if hasattr(blocking, "binds") else blocking._Session__binds  # before 2.1
    binds = list(by_table.values())
    if own.get_bind is not orm.Session.get_bind:  # a session that chooses by itself
        binds += [bind for mapper in _mappers(orm) if (bind := _bind_of(blocking, mapper)) is not None]
    elif blocking.bind is not None:
        binds.append(blocking.bind)
    if not binds:
        return blocking.get_bind()
    if any(bind is not binds[0] for bind in binds):
        raise Unsupported(SEVERAL)
    return binds[0]


def _bind_of(session: Any, mapper: Any) -> Any:
    with suppress(Exception):  # whatever a session of the user raises for a class that it has no database for
        return session.get_bind() if mapper is None else session.get_bind(mapper=mapper)
    return None


def _mappers(orm: Any) -> list[Any]:
    """All mapped classes of the program, and None."""
    found: list[Any] = [None]
    # Private, and the only list there is: where a later version has none, a session's own choice is trusted.
    for registry in cast("list[Any]", getattr(orm.mapperlib, "_all_registries", list)()):
        found.extend(registry.mappers)
    return found


class DjangoTransaction:
    """A connection of Django's, inside `transaction.atomic()`."""

    asynchronous = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        if connection.vendor not in DIALECTS:
            raise TypeError(f"guards know PostgreSQL, MySQL, MariaDB and SQLite, not {connection.vendor}")
        self.dialect: Dialect = DIALECTS[connection.vendor]
        self.savepoints = 0

    def check(self) -> None:
        if not self._connection.in_atomic_block and self._connection.get_autocommit():
            raise outside("use `with transaction.atomic():`")
        own = [each for each in self._connection.savepoint_ids[self._spared() :] if each is not None]
        spared = self._give_up_savepoints()
        self.savepoints = sum(each is not None for each in self._connection.savepoint_ids[:spared])
        if own:
            # With it go all savepoints inside it, so the program can go back to none of its own there.
            self._connection._savepoint_commit(own[0])

    def _spared(self) -> int:
        """Return how many blocks of Django's TestCase there are around the program's own."""
        return sum(getattr(block, "_from_testcase", False) for block in self._connection.atomic_blocks)

    def _give_up_savepoints(self) -> int:
        """Let an error in an inner `atomic` block end the whole transaction: its savepoint would undo the
        guard alone.

        Returns how many blocks of Django's TestCase there are around the program's own; these are left as
        they are.
        """
        spared, savepoints = self._spared(), self._connection.savepoint_ids
        savepoints[spared:] = [None] * len(savepoints[spared:])  # one for each block but the first
        return spared

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> Outcome:
        with self._connection.cursor() as cursor:
            cursor.execute(pyformat(sql), dict(parameters))
            rows = cursor.fetchall() if cursor.description else ()
            return Outcome(cursor.rowcount, tuple(tuple(row) for row in rows))

    async def end(self) -> None:
        """Roll back all that stands in `atomic` blocks, and let each of them refuse statements until the
        outermost ends.

        The blocks of Django's TestCase around a test are spared: their transaction is the test's, not the
        program's.
        """
        connection = self._connection
        if not connection.in_atomic_block:
            connection.rollback()
            return
        spared, savepoints = self._give_up_savepoints(), connection.savepoint_ids
        kept = savepoints[spared - 1] if 0 < spared <= len(savepoints) else None
        if kept is not None:
            connection._savepoint_rollback(kept)
        elif not spared:
            with connection.wrap_database_errors:
                connection._rollback()
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
