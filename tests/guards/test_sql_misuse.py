"""What a guard says to a program that uses it wrongly."""

from __future__ import annotations

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

import interlock
from interlock import StoreUnfit, Unsupported, guards
from interlock._core.drive import drive
from interlock.guards.sql import checks
from interlock.guards.sql.dbapi import MySQLTransaction
from tests.guards.desks import (
    PLACES,
    Desk,
    DjangoDesk,
    Place,
    PlainSQLiteDesk,
    PsycopgDesk,
    PyMySQLDesk,
    SessionDesk,
    psycopg,
    pymysql,
)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return PLACES[request.param](tmp_path)


class TestAutocommit:
    def refused(self, session: Any) -> None:
        with pytest.raises(Unsupported, match="first statement of the transaction") as refusal:
            guards.sql.guard(session, "account:1", 33)
        assert str(refusal.value).count(". ") == 0  # one sentence

    def test_a_connection_of_sqlite3_that_begins_nothing_is_refused(self, tmp_path: Path) -> None:
        desk = PlainSQLiteDesk(PLACES["sqlite"](tmp_path))
        self.refused(desk.session)
        desk.close()

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="needs the attribute autocommit of Python 3.12")
    def test_the_newer_ways_of_sqlite3_are_known(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = PLACES["sqlite"](tmp_path).settings
        connect: Any = sqlite3.connect
        connection = connect(**settings, autocommit=True)
        self.refused(connection)
        connection.execute("begin")
        guards.sql.guard(connection, "account:1", 34)
        connection.execute("update account set balance = 0")
        with pytest.raises(interlock.StaleToken):
            guards.sql.guard(connection, "account:1", 33)
        assert not connection.in_transaction
        connection.close()
        connection = connect(**settings, autocommit=False)
        guards.sql.guard(connection, "account:1", 34)
        connection.commit()
        connection.close()

    def test_a_connection_of_psycopg_is_refused(self, tmp_path: Path) -> None:
        desk = PsycopgDesk(PLACES["postgresql"](tmp_path), autocommit=True)
        self.refused(desk.session)
        desk.close()

    def test_a_pipeline_of_psycopg_without_a_transaction_is_refused(self, tmp_path: Path) -> None:
        """Its statements share a transaction until somebody waits for an answer, as a guard must."""
        desk = PsycopgDesk(PLACES["postgresql"](tmp_path), autocommit=True)
        with desk.connection.pipeline():
            desk.connection.execute("select 1")
            self.refused(desk.session)
            with desk.connection.transaction():
                guards.sql.guard(desk.session, "account:1", 33)
        desk.close()

    def test_a_connection_of_pymysql_is_refused(self, tmp_path: Path) -> None:
        desk = PyMySQLDesk(PLACES["mariadb"](tmp_path), autocommit=True)
        self.refused(desk.session)
        desk.close()

    def test_an_engine_of_sqlalchemy_is_refused(self, place: Place) -> None:
        engine = create_engine(place.url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with Session(engine) as session:
            self.refused(session)
        with engine.connect() as connection:
            self.refused(connection)
        with create_engine(place.url, poolclass=NullPool).connect() as connection:
            self.refused(connection.execution_options(isolation_level="AUTOCOMMIT"))

    def test_a_driver_in_autocommit_below_sqlalchemy_is_refused(self, place: Place) -> None:
        settings: dict[str, Any] = (
            {"isolation_level": None} if place.dialect == "sqlite" else {"autocommit": True}
        )
        connect: dict[str, Callable[[], Any]] = {
            "sqlite": lambda: sqlite3.connect(**place.settings, **settings),
            "postgresql": lambda: psycopg.connect(**place.settings, **settings),
            "mysql": lambda: pymysql.connect(**place.settings, **settings, ssl_disabled=True),
        }
        engine = create_engine(place.url, creator=connect[place.dialect], poolclass=NullPool)
        with Session(engine) as session:
            self.refused(session)
        with engine.connect() as connection:
            self.refused(connection)

    def test_a_transaction_that_the_program_begins_below_sqlalchemy_is_one(self, tmp_path: Path) -> None:
        """SQLAlchemy's pages show how to begin by hand on SQLite."""
        place = PLACES["sqlite"](tmp_path)
        engine = create_engine(
            place.url, creator=lambda: sqlite3.connect(**place.settings, isolation_level=None)
        )
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("begin immediate"))
        with Session(engine) as session:
            guards.sql.guard(session, "account:1", 33)
            session.commit()
        engine.dispose()

    def test_django_outside_atomic_is_refused(self, place: Place) -> None:
        desk = DjangoDesk(place)
        self.refused(desk.session)
        desk.close()


class TestObjects:
    @pytest.mark.parametrize(
        "session", [None, 7, object(), threading.Lock()], ids=lambda each: type(each).__name__
    )
    def test_something_else_is_refused_with_a_list_of_what_is_known(self, session: object) -> None:
        with pytest.raises(TypeError, match=r"sqlite3, psycopg 3, PyMySQL.*SQLAlchemy.*Django"):
            guards.sql.guard(session, "account:1", 33)

    def test_an_engine_is_no_transaction(self, tmp_path: Path) -> None:
        with pytest.raises(TypeError, match="not sqlalchemy"):
            guards.sql.guard(create_engine("sqlite://"), "account:1", 33)

    @pytest.mark.parametrize(
        ("lease", "token", "error"),
        [
            ("account:1", None, TypeError),
            ("account:1", "33", TypeError),
            ("account:1", True, TypeError),
            ("account:1", 0, ValueError),
            ("account:1", 2**63, ValueError),
            ("", 33, interlock.InvalidName),
            (None, 33, TypeError),
            ([], None, TypeError),
            (7, None, TypeError),
        ],
    )
    def test_bad_tokens_are_refused(self, lease: Any, token: Any, error: type[Exception]) -> None:
        with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(error):
            guards.sql.guard(connection, lease, token)

    @pytest.mark.parametrize(
        "table", ["a b", 'a"b', "a.b.c", "", "1a", "a;drop table account", "a`", "a:b", "a%s"]
    )
    def test_bad_names_of_tables_are_refused(self, table: str) -> None:
        with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(ValueError, match="no name"):
            guards.sql.guard(connection, "account:1", 33, table=table)
        with pytest.raises(ValueError, match="no name"):
            guards.sql.schema("postgresql", table=table)

    def test_a_row_must_be_named(self) -> None:
        with (
            closing(sqlite3.connect(":memory:")) as connection,
            pytest.raises(ValueError, match="by its key"),
        ):
            guards.sql.guard_row(connection, "account:1", 33, table="account", where={})

    def test_create_does_not_commit_the_work_of_the_user(self, tmp_path: Path) -> None:
        connection = sqlite3.connect(**PLACES["sqlite"](tmp_path).settings)
        connection.execute("update account set balance = 0")
        with pytest.raises(Unsupported, match="commit it first"):
            guards.sql.create(connection)
        connection.rollback()
        connection.close()


class TestLeases:
    def test_holders_beside_each_other_are_refused(self, client: interlock.Client, tmp_path: Path) -> None:
        connection = sqlite3.connect(**PLACES["sqlite"](tmp_path).settings)
        with client.semaphore("pool", capacity=3) as lease:
            with pytest.raises(Unsupported, match="several holders"):
                guards.sql.guard(connection, lease)
        with client.rwlock("book").read() as lease:
            with pytest.raises(Unsupported, match="several holders"):
                guards.sql.guard(connection, lease)
        with client.rwlock("book").write() as lease:
            guards.sql.guard(connection, lease)
        connection.rollback()
        connection.close()

    def test_the_leases_of_a_multilock_are_shown_in_the_order_of_their_names(
        self, client: interlock.Client, tmp_path: Path
    ) -> None:
        connection = sqlite3.connect(**PLACES["sqlite"](tmp_path).settings)
        asked: list[str] = []
        connection.set_trace_callback(asked.append)
        with client.multilock(["b", "a"]) as leases:
            guards.sql.guard(connection, leases)
            guards.sql.guard(connection, reversed(leases.leases))
        shown = [sql.partition("values ('")[2][0] for sql in asked if "insert into" in sql]
        assert shown == ["a", "b", "a", "b"]
        connection.rollback()
        connection.close()


class TestEngines:
    """MariaDB has kinds of tables that neither lock a row until the commit nor roll anything back."""

    @pytest.fixture(params=[PyMySQLDesk, SessionDesk, DjangoDesk])
    def desk(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
        desk: Desk = request.param(PLACES["mariadb"](tmp_path))
        desk.run("drop table if exists loose")
        yield desk
        desk.rollback()
        desk.run("drop table if exists loose")
        desk.close()

    def refused(self, desk: Desk, guard: Callable[[], Any]) -> None:
        desk.commit()
        desk.begin()
        with pytest.raises(Unsupported, match=r"loose: its engine [A-Za-z]+ has no transactions"):
            guard()
        desk.rollback()

    @pytest.mark.parametrize("engine", ["MyISAM", "Aria", "MEMORY"])
    def test_a_row_of_a_table_without_transactions_is_refused(self, desk: Desk, engine: str) -> None:
        desk.run(
            "create table loose (id int primary key, token bigint not null default 0, mark varchar(60)) "
            f"engine={engine}"
        )
        desk.run("insert into loose (id, mark) values (1, 'left')")
        row: dict[str, Any] = {"table": "loose", "where": {"id": 1}}
        self.refused(desk, lambda: guards.sql.guard_row(desk.session, "account:1", 33, **row))
        self.refused(desk, lambda: guards.sql.mark(desk.session, "account:1", 33, **row))
        mark = guards.sql.Mark("account:1", 33, "bank.loose", {"id": 1}, "mark", "left")
        self.refused(desk, lambda: guards.sql.update_marked(desk.session, mark, {}))

    def test_a_fence_table_without_transactions_is_refused(self, desk: Desk) -> None:
        desk.run(
            "create table loose (resource varbinary(900) primary key, token bigint not null) engine=MyISAM"
        )
        self.refused(desk, lambda: guards.sql.guard(desk.session, "account:1", 33, table="loose"))

    def test_a_guard_is_two_requests_and_two_more_to_note_a_new_token(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []
        execute = MySQLTransaction.execute

        async def counted(self: Any, sql: str, parameters: Any) -> Any:
            asked.append(sql)
            return await execute(self, sql, parameters)

        monkeypatch.setattr(MySQLTransaction, "execute", counted)
        with closing(PyMySQLDesk(PLACES["mariadb"](tmp_path))) as desk:
            for token, requests in ((33, 4), (33, 2), (34, 4), (34, 2)):
                guards.sql.guard(desk.session, "account:1", token)
                desk.commit()
                assert len(asked) == requests
                asked.clear()

    def elsewhere(self, desk: Desk) -> None:
        """A database in which the same names lead to tables without transactions."""
        for statement in (
            "drop database if exists loose_bank",
            "create database loose_bank",
            "create table loose_bank.interlock_fence (resource varbinary(900) primary key, token bigint) engine=Aria",
            "create table loose_bank.account (id int primary key, token bigint, mark varchar(60)) engine=Aria",
            "insert into loose_bank.account values (1, 0, 'left')",
        ):
            desk.run(statement)
        desk.commit()

    def test_the_same_names_in_another_database_are_other_tables(self, desk: Desk) -> None:
        self.elsewhere(desk)
        row: dict[str, Any] = {"table": "account", "where": {"id": 1}}
        marked = guards.sql.Mark("account:1", 33, "account", {"id": 1}, "mark", "left")
        for guard in (
            lambda: guards.sql.guard(desk.session, "account:1", 33),
            lambda: guards.sql.guard_row(desk.session, "account:1", 33, **row),
            lambda: guards.sql.mark(desk.session, "account:1", 33, **row),
            lambda: guards.sql.update_marked(desk.session, marked, {}),
        ):
            desk.run("use bank")
            desk.begin()
            guards.sql.guard(desk.session, "account:1", 33)
            guards.sql.guard_row(desk.session, "account:1", 33, **row)
            desk.commit()
            desk.begin()
            desk.run("use loose_bank")
            with pytest.raises(Unsupported, match="has no transactions"):
                guard()
            desk.rollback()
            desk.run("use bank")
        desk.run("drop database loose_bank")

    def test_a_table_that_was_altered_is_another_table(self, desk: Desk) -> None:
        desk.run(
            "create table loose (id int primary key, token bigint not null default 0, mark varchar(60)) engine=InnoDB"
        )
        desk.run("insert into loose (id, mark) values (1, 'left')")
        row: dict[str, Any] = {"table": "loose", "where": {"id": 1}}
        desk.commit()
        desk.begin()
        guards.sql.guard_row(desk.session, "account:1", 33, **row)
        desk.commit()
        desk.run("alter table loose engine=Aria")
        self.refused(desk, lambda: guards.sql.guard_row(desk.session, "account:1", 33, **row))


@pytest.mark.parametrize("kind", ["UniqueViolation", "DuplicateTable", "DuplicateObject"])
def test_a_fence_table_that_somebody_else_creates_at_that_moment_is_asked_for_again(kind: str) -> None:
    """PostgreSQL answers in one of these ways; the last comes seldom, when the other's type is there and its table was not."""
    failures = [getattr(psycopg.errors, kind)("created meanwhile")]
    asked: list[str] = []

    class Busy:
        dialect = "postgresql"

        async def define(self, sql: str) -> None:
            asked.append(sql)
            if failures:
                raise failures.pop()

        async def end(self) -> None:
            asked.append("end")

    drive(checks.create(cast(Any, Busy()), "other_fence"))
    assert [sql.partition(" ")[0] for sql in asked] == ["create", "end", "create"]


def test_many_create_the_fence_table_at_once(place: Place) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(8)

    def create() -> None:
        try:
            connection: Any
            if place.dialect == "sqlite":
                connection = sqlite3.connect(**place.settings, timeout=30)
            elif place.dialect == "mysql":
                connection = pymysql.connect(**place.settings)
            else:
                connection = psycopg.connect(**place.settings)
            start.wait()
            guards.sql.create(connection, table="other_fence")
            guards.sql.guard(connection, "account:1", 33, table="other_fence")
            connection.commit()
            connection.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


class TestSilentTables:
    """A trigger of the user's can drop a change in silence: then the token was not noted, or nothing written."""

    @pytest.fixture(params=[PlainSQLiteDesk, PsycopgDesk])
    def desk(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
        desk: Desk = request.param(
            PLACES["sqlite" if request.param is PlainSQLiteDesk else "postgresql"](tmp_path)
        )
        desk.begin()
        desk.run("create table mute (resource text primary key, token bigint not null, value integer)")
        desk.run("insert into mute values ('account:1', 3, 0)")
        if request.param is PlainSQLiteDesk:
            desk.run("create trigger mute before update on mute begin select raise(ignore); end")
        else:
            desk.run(
                "create or replace function mute() returns trigger language plpgsql as 'begin return null; end'"
            )
            desk.run("create trigger mute before update on mute for each row execute function mute()")
        desk.commit()
        yield desk
        desk.rollback()
        desk.begin()
        desk.run("drop table mute")
        desk.commit()
        desk.close()

    def test_a_token_that_was_not_noted_is_refused(self, desk: Desk) -> None:
        desk.begin()
        with pytest.raises(StoreUnfit, match=r"mute: .*trigger"):
            guards.sql.guard(desk.session, "account:1", 7, table="mute")

    @pytest.mark.parametrize("token", [3, 7])
    def test_a_row_that_was_not_changed_is_refused(self, desk: Desk, token: int) -> None:
        desk.begin()
        with pytest.raises(StoreUnfit, match=r"mute: .*trigger"):
            guards.sql.update_row(
                desk.session,
                "account:1",
                token,
                table="mute",
                where={"resource": "account:1"},
                changes={"value": 1},
            )
