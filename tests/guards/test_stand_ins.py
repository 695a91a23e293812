"""What stands in the place of a guarded table, or of a token in it: views, rules, temporary tables, triggers and columns that
keep another number, names in another encoding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interlock import StaleToken, StoreUnfit, Unsupported, guards
from tests.guards.desks import PLACES, PsycopgDesk, PyMySQLDesk, SQLiteDesk, psycopg

ROW: dict[str, Any] = {"where": {"id": 1}}
FORMS: dict[str, Callable[..., object]] = {
    "row": lambda session, token, table: guards.sql.guard_row(
        session, "account:1", token, table=table, **ROW
    ),
    "changes": lambda session, token, table: guards.sql.update_row(
        session, "account:1", token, table=table, **ROW, changes={"balance": 1}
    ),
    "mark": lambda session, token, table: guards.sql.mark(session, "account:1", token, table=table, **ROW),
}
COLUMNS = "id, balance, token, mark"


@pytest.fixture
def postgresql(tmp_path: Path) -> Iterator[PsycopgDesk]:
    desk = PsycopgDesk(PLACES["postgresql"](tmp_path))
    desk.run("drop schema if exists beside cascade")
    desk.run("create schema beside")
    desk.run("create table beside.account (like account including all)")
    desk.run("insert into beside.account (id, balance) values (1, 100)")
    desk.commit()
    yield desk
    desk.rollback()
    desk.run("drop schema beside cascade")
    desk.commit()
    desk.close()


@pytest.fixture
def mariadb(tmp_path: Path) -> Iterator[PyMySQLDesk]:
    desk = PyMySQLDesk(PLACES["mariadb"](tmp_path))
    for statement in ("drop database if exists beside", "create database beside"):
        desk.run(statement)
    yield desk
    desk.rollback()
    desk.run("drop database beside")
    desk.close()


@pytest.mark.parametrize("show", FORMS.values(), ids=FORMS)
class TestViews:
    """A late holder that waits in the trigger of a view, or in a rule, has compared its token before it waited."""

    def late_one(self, desk: PsycopgDesk, show: Callable[..., object], table: str) -> None:
        with pytest.raises((Unsupported, StoreUnfit, psycopg.Error)):
            show(desk.session, 2, table)
        desk.rollback()
        assert desk.run("select token, mark from beside.account where id = 1") == [(0, None)]

    def test_a_view_whose_trigger_writes_elsewhere_is_refused(
        self, postgresql: PsycopgDesk, show: Callable[..., object]
    ) -> None:
        postgresql.run(
            "create view beside.sums as select id, sum(balance) as balance, max(token) as token, max(mark) as mark "
            "from beside.account group by id"
        )
        postgresql.run(
            "create function beside.write() returns trigger language plpgsql as 'begin "
            "update beside.account set token = new.token, balance = new.balance where id = old.id; return new; end'"
        )
        postgresql.run(
            "create trigger write instead of update on beside.sums for each row execute function beside.write()"
        )
        postgresql.commit()
        self.late_one(postgresql, show, "beside.sums")

    def test_a_view_with_a_rule_is_refused(
        self, postgresql: PsycopgDesk, show: Callable[..., object]
    ) -> None:
        postgresql.run(f"create view beside.ruled as select {COLUMNS} from beside.account")
        postgresql.run(
            "create rule write as on update to beside.ruled do instead update beside.account set token = new.token "
            "where id = old.id returning id, balance, token, mark"
        )
        postgresql.commit()
        self.late_one(postgresql, show, "beside.ruled")

    def test_a_table_with_a_rule_is_refused(
        self, postgresql: PsycopgDesk, show: Callable[..., object]
    ) -> None:
        postgresql.run("create table beside.other (like beside.account including all)")
        postgresql.run("insert into beside.other (id, balance) values (1, 100)")
        postgresql.run(
            "create rule write as on update to beside.other do instead update beside.account set token = new.token "
            "where id = old.id returning id, balance, token, mark"
        )
        postgresql.commit()
        self.late_one(postgresql, show, "beside.other")

    def test_a_view_of_a_table_without_transactions_is_refused(
        self, mariadb: PyMySQLDesk, show: Callable[..., object]
    ) -> None:
        mariadb.run(
            "create table beside.loose (id int primary key, balance int, token bigint not null, mark varchar(60)) engine=MyISAM"
        )
        mariadb.run("insert into beside.loose values (1, 100, 0, null)")
        mariadb.run("create view beside.account as select * from beside.loose")
        mariadb.commit()
        with pytest.raises(Unsupported, match=r"beside\.account: a guard needs a table"):
            show(mariadb.session, 2, "beside.account")


def test_a_late_holder_that_waits_for_a_table_is_refused(postgresql: PsycopgDesk) -> None:
    """As views cannot be: the condition is looked at again after the wait."""
    with closing(PsycopgDesk(postgresql.place)) as late:
        guards.sql.guard_row(postgresql.session, "account:1", 2, table="beside.account", **ROW)
        refusals: list[StaleToken] = []

        def come_late() -> None:
            try:
                guards.sql.guard_row(late.session, "account:1", 1, table="beside.account", **ROW)
            except StaleToken as refusal:
                refusals.append(refusal)

        thread = threading.Thread(target=come_late)
        thread.start()
        postgresql.commit()
        thread.join()
        assert [refusal.accepted for refusal in refusals] == [2]


class TestTemporaryTables:
    def refused(self, desk: Any) -> None:
        guards.sql.guard(desk.session, "account:1", 2)
        desk.commit()
        desk.run("create temporary table interlock_fence (resource text primary key, token bigint not null)")
        desk.commit()
        with pytest.raises(Unsupported, match="a temporary table of this connection"):
            guards.sql.guard(desk.session, "account:1", 1)

    def test_one_that_hides_the_fence_table_of_postgresql_is_refused(self, tmp_path: Path) -> None:
        with closing(PsycopgDesk(PLACES["postgresql"](tmp_path))) as desk:
            self.refused(desk)
            desk.rollback()
            with pytest.raises(StaleToken):
                guards.sql.guard(desk.session, "account:1", 1, table="public.interlock_fence")
            desk.run("drop table pg_temp.interlock_fence")
            desk.commit()

    def test_one_that_hides_the_fence_table_of_sqlite_is_refused(self, tmp_path: Path) -> None:
        with closing(SQLiteDesk(PLACES["sqlite"](tmp_path))) as desk:
            self.refused(desk)
            desk.rollback()
            with pytest.raises(StaleToken):
                guards.sql.guard(desk.session, "account:1", 1, table="main.interlock_fence")


class TestOtherNumbers:
    """The row was changed, and does not have the token, so a later holder would not be told apart from an earlier one."""

    @pytest.mark.parametrize("show", FORMS.values(), ids=FORMS)
    def test_a_trigger_of_postgresql_that_keeps_the_old_one_is_told(
        self, postgresql: PsycopgDesk, show: Callable[..., object]
    ) -> None:
        postgresql.run(
            "create function beside.keep() returns trigger language plpgsql as "
            "'begin new.token := old.token; new.mark := old.mark; return new; end'"
        )
        postgresql.run(
            "create trigger keep before update on beside.account for each row execute function beside.keep()"
        )
        postgresql.commit()
        with pytest.raises(StoreUnfit, match=r"beside\.account: .*trigger"):
            show(postgresql.session, 2, "beside.account")

    @pytest.mark.parametrize("show", FORMS.values(), ids=FORMS)
    def test_so_is_one_of_sqlite_that_puts_it_back(self, tmp_path: Path, show: Callable[..., object]) -> None:
        with closing(SQLiteDesk(PLACES["sqlite"](tmp_path))) as desk:
            desk.run(
                "create trigger keep after update on account begin "
                "update account set token = old.token, mark = old.mark where id = new.id; end"
            )
            desk.commit()
            with pytest.raises(StoreUnfit, match=r"account: .*trigger"):
                show(desk.session, 2, "account")

    @pytest.mark.parametrize("show", FORMS.values(), ids=FORMS)
    def test_so_is_one_of_mariadb(self, mariadb: PyMySQLDesk, show: Callable[..., object]) -> None:
        mariadb.run("create table beside.account like account")
        mariadb.run("insert into beside.account select * from account")
        mariadb.run(
            "create trigger beside.keep before update on beside.account for each row "
            "set new.token = old.token, new.mark = old.mark"
        )
        mariadb.commit()
        with pytest.raises(StoreUnfit, match=r"beside\.account: .*trigger"):
            show(mariadb.session, 2, "beside.account")

    @pytest.mark.parametrize("number", ["int", "float"])
    def test_so_is_a_column_that_is_too_small_where_mariadb_cuts_numbers(
        self, mariadb: PyMySQLDesk, number: str
    ) -> None:
        mariadb.run(
            f"create table beside.account (id int primary key, balance int, token {number} not null default 0)"
        )
        mariadb.run("insert into beside.account values (1, 100, 0)")
        mariadb.run("set session sql_mode = ''")
        mariadb.commit()
        later = 1_763_523_091_000_005
        for token in (later, later - 5):
            with pytest.raises(StoreUnfit, match="type too small"):
                FORMS["changes"](mariadb.session, token, "beside.account")

    def test_a_trigger_that_keeps_the_old_one_in_the_fence_table_is_told(
        self, postgresql: PsycopgDesk
    ) -> None:
        postgresql.run("create table beside.fence (like interlock_fence including all)")
        postgresql.run(
            "create function beside.keep() returns trigger language plpgsql as "
            "'begin new.token := old.token; return new; end'"
        )
        postgresql.run(
            "create trigger keep before update on beside.fence for each row execute function beside.keep()"
        )
        guards.sql.guard(postgresql.session, "account:1", 1, table="beside.fence")
        postgresql.commit()
        with pytest.raises(StoreUnfit, match=r"beside\.fence: .*trigger"):
            guards.sql.guard(postgresql.session, "account:1", 2, table="beside.fence")


def test_a_name_is_the_same_in_every_encoding_of_a_session(tmp_path: Path) -> None:
    """Also where the database keeps bytes as they come."""
    place = PLACES["postgresql"](tmp_path)
    with closing(psycopg.connect(**place.settings, autocommit=True)) as connection:
        connection.execute("drop database if exists bytes")
        connection.execute(
            "create database bytes encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'"
        )
    settings = {**place.settings, "dbname": "bytes"}
    with closing(psycopg.connect(**settings)) as connection:
        guards.sql.create(connection)
    for name, encodings in (("é", ("LATIN1", "SQL_ASCII")), ("é日", ("LATIN1", "EUC_JP"))):
        with closing(psycopg.connect(**settings, options="-c client_encoding=UTF8")) as connection:
            guards.sql.guard(connection, name, 2)
            connection.commit()
        for encoding in encodings:
            with closing(psycopg.connect(**settings, options=f"-c client_encoding={encoding}")) as connection:
                with pytest.raises(StaleToken):
                    guards.sql.guard(connection, name, 1)
