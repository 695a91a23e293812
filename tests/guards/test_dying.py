"""How a transaction dies when its guard refuses: at once, as a whole, and for good."""

from __future__ import annotations

import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

import interlock
from interlock import StaleToken, guards
from tests.guards.desks import (
    PLACES,
    Desk,
    DjangoDesk,
    PsycopgBlockDesk,
    PsycopgDesk,
    PyMySQLDesk,
    engine,
    psycopg,
)
from tests.guards.transfers import lock_url
from tests.patience import PATIENCE

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
    desk.begin()  # two blocks, one in the other
    desk.run(ZERO)
    with pytest.raises(StaleToken):
        guards.sql.guard(desk.session, "account:1", 33)
    with pytest.raises(Exception, match=r"aborted|until the end of the 'atomic' block"):
        desk.run(ZERO)
    desk.rollback()
    assert desk.balance() == 100
    desk.close()


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
    time.sleep(0.5)
    early.commit()
    other.join(PATIENCE)
    assert failed == ["40001"]
    assert early.run("select token from interlock_fence") == [(34,)]
    early.rollback()
    early.close()
