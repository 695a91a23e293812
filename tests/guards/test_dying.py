"""How a transaction dies when its guard refuses: at once, as a whole, and for good."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

import interlock
from interlock import StaleToken, Unsupported, guards
from tests.guards.desks import (
    PLACES,
    Desk,
    DjangoDesk,
    PsycopgBlockDesk,
    PsycopgDesk,
    PyMySQLDesk,
    SessionDesk,
    engine,
    psycopg,
)
from tests.guards.transfers import lock_url
from tests.patience import PATIENCE, until

ZERO = "update account set balance = 0 where id = 1"


def shown(desk: Desk, token: int = 34) -> Desk:
    desk.begin()
    guards.sql.guard(desk.session, "account:1", token)
    desk.commit()
    return desk


@pytest.mark.parametrize(
    ("database", "kind"),
    [
        ("postgresql", PsycopgBlockDesk),
        ("postgresql", DjangoDesk),
        ("sqlite", DjangoDesk),
        ("mariadb", DjangoDesk),
    ],
)
def test_inside_blocks_every_statement_fails_until_the_outermost_ends(
    database: str, kind: type[Desk], tmp_path: Path
) -> None:
    desk = shown(kind(PLACES[database](tmp_path)))
    desk.begin()  # with Django two blocks, one in the other
    desk.run(ZERO)
    with pytest.raises(StaleToken):
        guards.sql.guard(desk.session, "account:1", 33)
    with pytest.raises(Exception, match=r"aborted|until the end of the 'atomic' block"):
        desk.run(ZERO)
    desk.rollback()
    assert desk.balance() == 100
    desk.close()


@pytest.mark.parametrize("database", PLACES)
def test_an_inner_block_of_django_that_undoes_the_guard_ends_the_whole_transaction(
    database: str, tmp_path: Path
) -> None:
    transaction: Any = import_module("django.db.transaction")
    desk = DjangoDesk(PLACES[database](tmp_path))
    with pytest.raises(Exception, match="until the end of the 'atomic' block"):
        with transaction.atomic(using=desk.alias):
            try:
                with transaction.atomic(using=desk.alias):
                    guards.sql.guard(desk.session, "account:1", 34)
                    raise ValueError("a part of the work failed")
            except ValueError:
                pass
            desk.run(ZERO)  # under no guard any more
    assert desk.balance() == 100
    with transaction.atomic(using=desk.alias):
        with transaction.atomic(using=desk.alias):
            guards.sql.guard(desk.session, "account:1", 34)
        desk.run(ZERO)
    assert desk.balance() == 0
    desk.close()


@pytest.mark.parametrize("when", ["in an inner block", "in a block after a statement", "after a savepoint"])
def test_psycopg_a_guard_that_a_savepoint_could_undo_is_refused_and_ends_the_transaction(
    when: str, tmp_path: Path
) -> None:
    desk = PsycopgDesk(PLACES["postgresql"](tmp_path), autocommit=when == "in an inner block")
    with suppress(psycopg.errors.InFailedSqlTransaction, psycopg.errors.InvalidSavepointSpecification):
        with ExitStack() as blocks:
            if when == "in an inner block":
                blocks.enter_context(desk.connection.transaction())
            desk.run(ZERO)
            if when == "after a savepoint":
                desk.run("savepoint mine")
            else:
                blocks.enter_context(desk.connection.transaction())
            with pytest.raises(Unsupported, match="savepoint"):
                guards.sql.guard(desk.session, "account:1", 34)
    desk.connection.commit()
    assert desk.balance() == 100
    assert not desk.run("select * from interlock_fence")
    desk.close()


ROW: dict[str, Any] = {"table": "account", "where": {"id": 1}}


def forms(session: Any, lease: interlock.Lease) -> dict[str, Callable[[], Any]]:
    """Each form of a guard, in the transaction that `session` is in."""
    left = guards.sql.Mark("account:1", lease.token, "account", {"id": 1}, "mark", "left")
    return {
        "table-wide": lambda: guards.sql.guard(session, lease),
        "absolute": lambda: guards.sql.guard(session, lease, absolute=True),
        "row": lambda: guards.sql.guard_row(session, lease, **ROW),
        "update": lambda: guards.sql.update_row(session, lease, **ROW, changes={"balance": 0}),
        "mark": lambda: guards.sql.mark(session, lease, **ROW),
        "marked": lambda: guards.sql.update_marked(session, left, {"balance": 0}),
    }


FORMS = ["table-wide", "absolute", "row", "update", "mark", "marked"]


@pytest.fixture
def held(tmp_path: Path) -> Iterator[interlock.Lease]:
    PLACES["postgresql"](tmp_path)  # makes the database
    with interlock.connect(lock_url("postgresql", tmp_path)) as client, client.lock("account:1") as lease:
        yield lease


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("savepoint", ["block", "statement"])
def test_psycopg_no_form_of_a_guard_is_accepted_in_a_savepoint(
    form: str, savepoint: str, held: interlock.Lease, tmp_path: Path
) -> None:
    """A block after the first statement of a transaction is a savepoint, though it is the outermost block."""
    with closing(PsycopgDesk(PLACES["postgresql"](tmp_path))) as desk:
        desk.run("update account set mark = 'left'")
        desk.commit()
        desk.run("select 1")
        with suppress(psycopg.errors.InFailedSqlTransaction, psycopg.errors.InvalidSavepointSpecification):
            with desk.connection.transaction() if savepoint == "block" else nullcontext():
                desk.run(ZERO)
                if savepoint == "statement":
                    desk.run("savepoint mine")
                with pytest.raises(Unsupported, match="savepoint"):
                    forms(desk.session, held)[form]()
        desk.commit()
        assert desk.balance() == 100


@pytest.mark.parametrize("form", FORMS)
def test_psycopg_savepoints_that_have_ended_are_no_reason_to_refuse(
    form: str, held: interlock.Lease, tmp_path: Path
) -> None:
    with closing(PsycopgDesk(PLACES["postgresql"](tmp_path))) as desk:
        for end in ("release mine", "rollback to mine; release mine"):
            desk.run("update account set mark = 'left'")
            desk.run("savepoint mine")
            desk.run(ZERO)
            desk.run(end)
            forms(desk.session, held)[form]()
            desk.rollback()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("savepoint", ["api", "statement", "in a test case"])
def test_django_a_savepoint_of_the_program_is_seen_on_postgresql(
    form: str, savepoint: str, held: interlock.Lease, tmp_path: Path
) -> None:
    transaction: Any = import_module("django.db.transaction")
    with closing(DjangoDesk(PLACES["postgresql"](tmp_path))) as desk:
        desk.run("update account set mark = 'left'")
        around = transaction.atomic(using=desk.alias)
        around._from_testcase = savepoint == "in a test case"
        with around, transaction.atomic(using=desk.alias):
            forms(desk.session, held)[form]()
            transaction.set_rollback(True, using=desk.alias)
        with around if savepoint == "in a test case" else nullcontext(), suppress(Exception):
            with transaction.atomic(using=desk.alias):
                desk.run(ZERO)
                if savepoint == "statement":
                    desk.run("savepoint mine")
                else:
                    transaction.savepoint(using=desk.alias)
                with pytest.raises(Unsupported, match="savepoint"):
                    forms(desk.session, held)[form]()
        assert desk.balance() == 100


@pytest.mark.parametrize("database", PLACES)
def test_django_a_savepoint_in_an_inner_block_ends_with_the_guard(database: str, tmp_path: Path) -> None:
    """The block has given its savepoint up, so the program cannot go back to one inside it either."""
    transaction: Any = import_module("django.db.transaction")
    with closing(DjangoDesk(PLACES[database](tmp_path))) as desk:
        with pytest.raises(Exception, match=r"(?i)savepoint"), transaction.atomic(using=desk.alias):
            with transaction.atomic(using=desk.alias):
                mine = transaction.savepoint(using=desk.alias)
                guards.sql.guard(desk.session, "account:1", 34)
                transaction.savepoint_rollback(mine, using=desk.alias)
            desk.run(ZERO)
        assert desk.balance() == 100


@pytest.mark.parametrize("database", PLACES)
def test_sqlalchemy_a_guard_that_a_savepoint_could_undo_is_refused_and_ends_the_transaction(
    database: str, tmp_path: Path
) -> None:
    place = PLACES[database](tmp_path)
    with Session(engine(place.url)) as session:
        session.execute(text(ZERO))
        session.begin_nested()
        with pytest.raises(Unsupported, match="begin_nested"):
            guards.sql.guard(session, "account:1", 34)
        session.commit()
    with engine(place.url).connect() as connection, connection.begin() as around:
        connection.execute(text(ZERO))
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            with pytest.raises(Unsupported, match="create_savepoint"):
                guards.sql.guard(session, "account:1", 34)
        assert not around.is_active
    with engine(place.url).connect() as connection:
        connection.execute(text(ZERO))
        connection.begin_nested()
        with pytest.raises(Unsupported, match="begin_nested"):
            guards.sql.guard(connection, "account:1", 34)
        connection.commit()
        assert connection.execute(text("select balance from account where id = 1")).scalar_one() == 100


def test_a_lease_that_is_known_to_be_lost_ends_the_transaction_as_well(
    tmp_path: Path, client: interlock.Client
) -> None:
    desk = PsycopgDesk(PLACES["postgresql"](tmp_path))
    with client.lock("account:1") as lease:
        pass
    row: Any = {"table": "account", "where": {"id": 1}}
    for guard in (
        lambda: guards.sql.guard(desk.session, lease),
        lambda: guards.sql.guard_row(desk.session, lease, **row),
        lambda: guards.sql.mark(desk.session, lease, **row),
    ):
        desk.run(ZERO)
        with pytest.raises(interlock.NotHeld):
            guard()
        desk.commit()
        assert desk.balance() == 100
    desk.close()


@pytest.mark.parametrize("kind", [PsycopgDesk, SessionDesk, DjangoDesk])
def test_a_name_that_is_none_ends_the_transaction_as_well(kind: type[Desk], tmp_path: Path) -> None:
    nowhere: dict[str, Any] = {"table": "account", "where": {}}
    odd = guards.sql.Mark("account:1", 34, "a b", {"id": 1}, "mark", "left")
    mistakes: list[Callable[[Any], Any]] = [
        lambda session: guards.sql.guard(session, "account:1", 34, table="a b"),
        lambda session: guards.sql.guard(session, "account:1", 34, absolute=True, claims="a b"),
        lambda session: guards.sql.guard_row(session, "account:1", 34, **nowhere),
        lambda session: guards.sql.update_row(session, "account:1", 34, **ROW, changes={"a b": 1}),
        lambda session: guards.sql.mark(session, "account:1", 34, **nowhere),
        lambda session: guards.sql.update_marked(session, odd, {}),
    ]
    with closing(kind(PLACES["postgresql"](tmp_path))) as desk:
        for mistake in mistakes:
            desk.begin()
            desk.run(ZERO)
            with pytest.raises(ValueError, match=r"no name|by its key"):
                mistake(desk.session)
            desk.commit()
            assert desk.balance() == 100


@pytest.mark.parametrize("database", PLACES)
def test_inside_a_block_of_sqlalchemy_every_statement_fails_until_it_ends(
    database: str, tmp_path: Path
) -> None:
    place = PLACES[database](tmp_path)
    with Session(engine(place.url)) as session:
        with session.begin():
            guards.sql.guard(session, "account:1", 34)
        with session.begin():
            session.execute(text(ZERO))
            with pytest.raises(StaleToken):
                guards.sql.guard(session, "account:1", 33)
            with pytest.raises(Exception, match="inside context manager"):
                session.execute(text(ZERO))
        assert session.execute(text("select balance from account where id = 1")).scalar_one() == 100


def test_an_error_that_is_caught_between_two_blocks_of_django_does_not_save_the_outer_one(
    tmp_path: Path,
) -> None:
    transaction: Any = import_module("django.db.transaction")
    desk = DjangoDesk(PLACES["postgresql"](tmp_path))
    shown(desk)
    with transaction.atomic(using=desk.alias):
        desk.run(ZERO)
        try:
            with transaction.atomic(using=desk.alias):
                guards.sql.guard(desk.session, "account:1", 33)
        except StaleToken:
            pass
    assert desk.balance() == 100
    desk.close()


def test_the_blocks_of_a_test_case_of_django_are_spared(tmp_path: Path) -> None:
    transaction: Any = import_module("django.db.transaction")
    desk = DjangoDesk(PLACES["postgresql"](tmp_path))
    around = [transaction.atomic(using=desk.alias), transaction.atomic(using=desk.alias)]
    for block in around:
        block._from_testcase = True
    with around[0], around[1]:
        desk.run("update account set balance = 50 where id = 1")
        with transaction.atomic(using=desk.alias):
            guards.sql.guard(desk.session, "account:1", 34)
        with pytest.raises(StaleToken), transaction.atomic(using=desk.alias):
            with transaction.atomic(using=desk.alias):
                desk.run(ZERO)
                guards.sql.guard(desk.session, "account:1", 33)
        assert desk.balance() == 50
        transaction.set_rollback(True, using=desk.alias)
    desk.close()


@pytest.mark.parametrize(
    ("database", "kind"), [("mariadb", PyMySQLDesk), ("mariadb", DjangoDesk), ("postgresql", PsycopgDesk)]
)
def test_a_refusal_leaves_nothing_locked_even_before_the_block_ends(
    database: str, kind: type[Desk], tmp_path: Path
) -> None:
    """On MySQL, which reads at REPEATABLE READ, a locking read that finds nothing locks the gap, where the next claim is inserted."""
    place, url = PLACES[database](tmp_path), lock_url(database, tmp_path)
    desk = kind(place)
    with interlock.connect(url) as client:
        lease = client.lock("account:1", renew=False).acquire()
        assert lease is not None
        with interlock.connect(url) as operator:
            operator.evict("account:1", reason="test")
        desk.begin()
        with pytest.raises(StaleToken):
            guards.sql.guard(desk.session, lease, absolute=True)
        with client.lock("account:1", timeout=PATIENCE / 2):
            pass
    desk.rollback()
    desk.close()


def test_above_read_committed_a_guard_that_had_to_wait_asks_for_a_new_try(tmp_path: Path) -> None:
    place = PLACES["postgresql"](tmp_path)
    early, failed = shown(PsycopgDesk(place), 33), list[str]()
    early.begin()
    ((pid,),) = early.run("select pg_backend_pid()")
    guards.sql.guard(early.session, "account:1", 33)

    def late() -> None:
        with psycopg.connect(**place.settings) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            try:
                guards.sql.guard(connection, "account:1", 34)
            except psycopg.errors.SerializationFailure:
                failed.append("40001")
            guards.sql.guard(connection, "account:1", 34)

    other = threading.Thread(target=late)
    other.start()
    waits = f"select 1 from pg_stat_activity where {pid} = any(pg_blocking_pids(pid))"
    with psycopg.connect(**place.settings) as looking:
        until(lambda: looking.execute(waits).fetchone())
    early.commit()
    other.join(PATIENCE)
    assert failed == ["40001"]
    assert early.run("select token from interlock_fence") == [(34,)]
    early.rollback()
    early.close()
