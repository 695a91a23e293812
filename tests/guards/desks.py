"""The same small bank in each database, reached through each library: a test of a guard is written once, and runs at each desk.

A desk is one connection of one program. `session` is what the program hands to the guard.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import get_ident
from typing import Any
from uuid import uuid4

import pytest

from interlock import guards
from interlock.testing.servers import postgresql as postgresql

# As programs without type checkers use them.
psycopg: Any = import_module("psycopg")
dict_row: Any = import_module("psycopg.rows").dict_row
pymysql: Any = import_module("pymysql")
PLAIN: dict[str, Any] = {
    "ssl_disabled": True
}  # with TLS, PyMySQL loads all certificates of the system for each connection

TABLE = "create table account (id integer primary key, balance integer not null, token bigint not null default 0, mark varchar(60))"
EMPTY = ["delete from account", "delete from interlock_fence"]
ACCOUNTS = [
    "insert into account (id, balance) values (1, 100), (2, 100)",
]


@dataclass(frozen=True)
class Place:
    """A database with two accounts and a fence table."""

    dialect: str
    url: str  # for SQLAlchemy
    settings: dict[str, Any]  # for the driver


def sqlite_place(folder: Path) -> Place:
    path = str(folder / f"bank-{uuid4().hex}.db")
    connection = sqlite3.connect(path)
    for statement in (TABLE, *ACCOUNTS):
        connection.execute(statement)
    connection.commit()
    guards.sql.create(connection)
    connection.close()
    return Place("sqlite", f"sqlite:///{path}", {"database": path})


@cache
def _postgresql_place() -> Place:
    server = postgresql.steady()
    server.sql("create database bank")
    settings: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": server.port,
        "user": "postgres",
        "dbname": "bank",
    }
    with psycopg.connect(**settings, autocommit=True) as connection:
        connection.execute(TABLE)
        guards.sql.create(connection)
    return Place("postgresql", f"postgresql+psycopg://postgres@127.0.0.1:{server.port}/bank", settings)


def postgresql_place(folder: Path) -> Place:
    place = _postgresql_place()
    with psycopg.connect(**place.settings, autocommit=True) as connection:
        for statement in ("drop table if exists other_fence", *EMPTY, *ACCOUNTS):
            connection.execute(statement)
    return place


@cache
def _mysql_place() -> Place:
    mysql = pytest.importorskip(
        "interlock.testing.servers.mysql", reason="the tests of the store for MariaDB are not here"
    )
    server = mysql.steady()
    server.run("create database bank")
    settings = {"host": "127.0.0.1", "port": server.port, "user": "root", "database": "bank"}
    with pymysql.connect(**settings, **PLAIN, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(TABLE)
        guards.sql.create(connection)
    return Place("mysql", f"mysql+pymysql://root@127.0.0.1:{server.port}/bank", settings)


def mysql_place(folder: Path) -> Place:
    place = _mysql_place()
    with (
        pymysql.connect(**place.settings, **PLAIN, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        if cursor.execute("show tables like 'other_fence'"):  # `drop table if exists` would warn
            cursor.execute("drop table other_fence")
        for statement in (*EMPTY, *ACCOUNTS):
            cursor.execute(statement)
    return place


PLACES: dict[str, Callable[[Path], Place]] = {
    "sqlite": sqlite_place,
    "postgresql": postgresql_place,
    "mariadb": mysql_place,
}


class Desk(ABC):
    """One connection; a transaction begins with `begin` and ends with `commit` or `rollback`."""

    session: Any

    def __init__(self, place: Place) -> None:
        self.place = place
        self.thread = get_ident()

    def begin(self) -> None:
        """Many libraries begin by themselves."""
        return

    @abstractmethod
    def run(self, sql: str) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def balance(self, account: int = 1) -> int:
        return int(self.run(f"select balance from account where id = {account}")[0][0])


class SQLiteDesk(Desk):
    """sqlite3 as it is by default: a transaction begins with the first change."""

    def __init__(self, place: Place, **settings: Any) -> None:
        super().__init__(place)
        self.session = sqlite3.connect(**place.settings, timeout=20, **settings)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self.session.execute(sql))

    def commit(self) -> None:
        self.session.commit()

    def rollback(self) -> None:
        self.session.rollback()

    def close(self) -> None:
        self.session.close()


class PlainSQLiteDesk(SQLiteDesk):
    """sqlite3 with `begin immediate` by hand, rows as dictionaries, and a cursor handed to the guard."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, isolation_level=None)
        self.session.row_factory = sqlite3.Row
        self.connection = self.session
        self.session = self.connection.cursor()

    def begin(self) -> None:
        self.connection.execute("begin immediate")

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.connection.execute(sql)]

    def commit(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("commit")

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


class PsycopgDesk(Desk):
    """psycopg as it is by default: a transaction begins with the first statement."""

    def __init__(self, place: Place, **settings: Any) -> None:
        super().__init__(place)
        self.connection: Any
        self.session = self.connection = psycopg.connect(**place.settings, **settings, row_factory=dict_row)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        cursor: Any = self.connection.execute(sql)
        return [tuple(row.values()) for row in cursor] if cursor.description else []

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


class PsycopgBlockDesk(PsycopgDesk):
    """psycopg in autocommit mode, with `with connection.transaction():`."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, autocommit=True)
        self.blocks = ExitStack()

    def begin(self) -> None:
        self.blocks.enter_context(self.connection.transaction())

    def commit(self) -> None:
        self.blocks.close()

    def rollback(self) -> None:
        class Undone(Exception):
            pass

        try:
            with self.blocks:
                raise Undone
        except Undone:
            pass


class PipelineDesk(PsycopgDesk):
    """psycopg in pipeline mode, where a statement is sent, and its answer read later."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.blocks = ExitStack()
        self.pipeline = self.blocks.enter_context(self.connection.pipeline())

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        cursor: Any = self.connection.execute(sql)
        self.pipeline.sync()
        return [tuple(row.values()) for row in cursor] if cursor.description else []

    def close(self) -> None:
        self.blocks.close()
        super().close()


class PyMySQLDesk(Desk):
    """PyMySQL as it is by default, with rows as dictionaries."""

    def __init__(self, place: Place, **settings: Any) -> None:
        super().__init__(place)
        self.session = pymysql.connect(
            **place.settings, **PLAIN, cursorclass=import_module("pymysql.cursors").DictCursor, **settings
        )

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        with self.session.cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row.values()) for row in cursor.fetchall()]

    def commit(self) -> None:
        self.session.commit()

    def rollback(self) -> None:
        self.session.rollback()

    def close(self) -> None:
        self.session.close()


class BegunPyMySQLDesk(PyMySQLDesk):
    """PyMySQL in autocommit mode, with `begin()`."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, autocommit=True)

    def begin(self) -> None:
        self.session.begin()


@cache
def engine(url: str) -> Any:
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    return create_engine(url, poolclass=NullPool)


class SessionDesk(Desk):
    """A Session of SQLAlchemy."""

    def __init__(self, place: Place) -> None:
        from sqlalchemy.orm import Session

        super().__init__(place)
        self.session: Any = Session(engine(place.url))

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        from sqlalchemy import text

        result = self.session.execute(text(sql))
        return [tuple(row) for row in result] if result.returns_rows else []

    def commit(self) -> None:
        self.session.commit()

    def rollback(self) -> None:
        self.session.rollback()

    def close(self) -> None:
        self.session.close()


class ScopedDesk(SessionDesk):
    """A scoped_session."""

    def __init__(self, place: Place) -> None:
        from sqlalchemy.orm import scoped_session, sessionmaker

        Desk.__init__(self, place)
        self.session = scoped_session(sessionmaker(engine(place.url)))

    def close(self) -> None:
        self.session.remove()


class ConnectionDesk(SessionDesk):
    """A Connection of SQLAlchemy."""

    def __init__(self, place: Place) -> None:
        Desk.__init__(self, place)
        self.session = engine(place.url).connect()


@cache
def django_alias(url: str, dialect: str, name: str, port: int) -> str:
    """The alias under which Django knows a place; Django is set up when it is first asked."""
    django: Any = import_module("django")
    settings: Any = import_module("django.conf").settings
    connections: Any = import_module("django.db").connections
    pymysql.install_as_MySQLdb()
    if not settings.configured:
        settings.configure(DATABASES={})
        django.setup()
    alias = f"bank{uuid4().hex}"
    user = {"sqlite": "", "postgresql": "postgres", "mysql": "root"}[dialect]
    backend = "sqlite3" if dialect == "sqlite" else dialect
    wanted = {
        "ENGINE": f"django.db.backends.{backend}",
        "NAME": name,
        "HOST": "127.0.0.1",
        "PORT": port,
        "USER": user,
    }
    connections.settings[alias] = {**connections.settings["default"], **wanted}
    return alias


class DjangoDesk(Desk):
    """Django's ORM, inside two `transaction.atomic()` blocks; the guard gets the connection."""

    def __init__(self, place: Place) -> None:
        connections: Any = import_module("django.db").connections
        super().__init__(place)
        name = place.settings.get("dbname") or place.settings["database"]
        self.alias = django_alias(place.url, place.dialect, name, place.settings.get("port", 0))
        self.session: Any = connections[self.alias]
        self.blocks = ExitStack()

    def begin(self) -> None:
        transaction: Any = import_module("django.db.transaction")
        self.blocks.enter_context(transaction.atomic(using=self.alias))
        self.blocks.enter_context(transaction.atomic(using=self.alias))

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        connections: Any = import_module("django.db").connections
        with connections[self.alias].cursor() as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def commit(self) -> None:
        self.blocks.close()

    def rollback(self) -> None:
        class Undone(Exception):
            pass

        try:
            with self.blocks:
                raise Undone
        except Undone:
            pass

    def close(self) -> None:
        connections: Any = import_module("django.db").connections
        connections[self.alias].close()


class AliasDesk(DjangoDesk):
    """Django's ORM by the alias of the database."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.session = self.alias


DESKS: list[tuple[str, type[Desk]]] = [
    ("sqlite", SQLiteDesk),
    ("sqlite", PlainSQLiteDesk),
    ("sqlite", SessionDesk),
    ("sqlite", ConnectionDesk),
    ("sqlite", DjangoDesk),
    ("postgresql", PsycopgDesk),
    ("postgresql", PsycopgBlockDesk),
    ("postgresql", PipelineDesk),
    ("postgresql", SessionDesk),
    ("postgresql", ScopedDesk),
    ("postgresql", ConnectionDesk),
    ("postgresql", DjangoDesk),
    ("mariadb", PyMySQLDesk),
    ("mariadb", BegunPyMySQLDesk),
    ("mariadb", SessionDesk),
    ("mariadb", ConnectionDesk),
    ("mariadb", AliasDesk),
]
"""Each library at each database."""
