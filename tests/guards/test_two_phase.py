"""Guards in transactions that are prepared first, and committed by somebody else: a refusal ends them, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from interlock import StaleToken, guards
from tests.guards.desks import PLACES, PsycopgDesk, PyMySQLDesk, psycopg


@pytest.fixture
def postgresql(tmp_path: Path) -> Iterator[PsycopgDesk]:
    desk = PsycopgDesk(PLACES["postgresql"](tmp_path))
    yield desk
    with suppress(psycopg.Error):
        desk.session.tpc_rollback()
    desk.close()


@pytest.fixture
def mariadb(tmp_path: Path) -> Iterator[PyMySQLDesk]:
    desk = PyMySQLDesk(PLACES["mariadb"](tmp_path))
    yield desk
    if desk.session.open:
        desk.close()


def test_a_refusal_ends_a_transaction_of_psycopg(postgresql: PsycopgDesk) -> None:
    connection: Any = postgresql.session
    guards.sql.guard(connection, "account:1", 2)
    connection.commit()
    connection.tpc_begin(connection.xid(1, uuid4().hex, "bank"))
    postgresql.run("update account set balance = 0 where id = 1")
    with pytest.raises(StaleToken):
        guards.sql.guard(connection, "account:1", 1)
    with pytest.raises(psycopg.ProgrammingError):
        connection.tpc_commit()
    connection.rollback()
    assert postgresql.balance() == 100


def test_a_refusal_ends_a_transaction_of_mariadb(mariadb: PyMySQLDesk, tmp_path: Path) -> None:
    """There a rollback is forbidden, so the connection is closed."""
    connection: Any = mariadb.session
    name = uuid4().hex
    guards.sql.guard(connection, "account:1", 2)
    connection.commit()
    mariadb.run(f"xa start '{name}'")
    mariadb.run("update account set balance = 0 where id = 1")
    with pytest.raises(StaleToken) as refusal:
        guards.sql.guard(connection, "account:1", 1)
    assert any("rollback failed" in note for note in refusal.value.__notes__)
    for statement in (f"xa end '{name}'", f"xa commit '{name}' one phase"):
        with pytest.raises(connection.InterfaceError):
            mariadb.run(statement)
    other = PyMySQLDesk(mariadb.place)
    assert other.balance() == 100
    other.close()
