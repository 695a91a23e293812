"""Drivers that name the code of an error in ways of their own, or whose cursors and texts are of another kind."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

import interlock
from interlock import StaleToken, guards
from interlock.errors import StoreUnfit
from interlock.guards.sql.transaction import sqlstate
from tests.guards.desks import PLACES, psycopg
from tests.guards.transfers import lock_url

AT_ONCE = 8


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Any]:
    """An engine over psycopg2, which has `pgcode` where psycopg has `sqlstate`."""
    url = PLACES["postgresql"](tmp_path).url.replace("+psycopg:", "+psycopg2:")
    engine = sqlalchemy.create_engine(url, pool_size=AT_ONCE)
    yield engine
    engine.dispose()


def test_many_who_create_the_fence_table_at_once_all_succeed(engine: Any) -> None:
    failed: list[BaseException] = []

    def create() -> None:
        try:
            with engine.connect() as connection:
                connection.rollback()
                ready.wait()
                guards.sql.create(connection, table="other_fence")
        except BaseException as error:
            failed.append(error)

    for _ in range(5):
        ready = threading.Barrier(AT_ONCE)
        threads = [threading.Thread(target=create) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with engine.begin() as connection:
            connection.exec_driver_sql("drop table if exists other_fence")
    assert not failed


def test_a_missing_fence_table_is_told_with_the_remedy(engine: Any) -> None:
    with Session(engine) as session, pytest.raises(StoreUnfit, match=r"guards\.sql\.create"):
        guards.sql.guard(session, "account:1", 7, table="other_fence")


def test_a_claim_that_ended_since_the_snapshot_is_stale(engine: Any, tmp_path: Path) -> None:
    with interlock.connect(lock_url("postgresql", tmp_path)) as client:
        lease = client.lock("account:1", renew=False).acquire()
        assert lease
        with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
            connection.exec_driver_sql("select balance from account")
            client.evict("account:1", reason="test")
            with client.lock("account:1"), pytest.raises(StaleToken):
                guards.sql.guard(connection, lease, absolute=True)


class OfPsycopg2(Exception):
    pgcode = "40001"


def test_codes_are_found_where_drivers_put_them() -> None:
    assert sqlstate(OfPsycopg2()) == "40001"
    assert sqlstate(Exception({"S": "ERROR", "C": "42P01"})) == "42P01"  # pg8000
    assert sqlstate(Exception("plain")) == ""


ROW: dict[str, Any] = {"table": "account", "where": {"id": 1}}


def all_forms(session: Any) -> None:
    guards.sql.guard(session, "account:1", 33)
    guards.sql.guard_row(session, "account:1", 33, **ROW)
    left = guards.sql.mark(session, "account:1", 33, **ROW)
    guards.sql.update_marked(session, left, {"balance": 5})
    with pytest.raises(StaleToken):
        guards.sql.guard(session, "account:1", 32)


@pytest.mark.parametrize("option", [{"stream_results": True}, {"yield_per": 1}])
@pytest.mark.parametrize("where", PLACES)
def test_an_engine_that_asks_for_cursors_of_the_server_is_guarded(
    where: str, option: dict[str, Any], tmp_path: Path
) -> None:
    engine = sqlalchemy.create_engine(PLACES[where](tmp_path).url, execution_options=option)
    with Session(engine) as session:
        all_forms(session)
    engine.dispose()


def test_an_async_engine_that_asks_for_cursors_of_the_server_is_guarded(tmp_path: Path) -> None:
    async def main() -> None:
        engine = create_async_engine(
            PLACES["postgresql"](tmp_path).url, execution_options={"stream_results": True}
        )
        async with engine.connect() as connection:
            await guards.sql.aguard(connection, "account:1", 33)
            await guards.sql.aguard_row(connection, "account:1", 33, **ROW)
        await engine.dispose()

    asyncio.run(main())


def test_a_connection_of_psycopg_with_raw_cursors_is_guarded(tmp_path: Path) -> None:
    settings = PLACES["postgresql"](tmp_path).settings
    with psycopg.connect(**settings, cursor_factory=psycopg.RawCursor) as connection:
        all_forms(connection)

    async def main() -> None:
        made = await psycopg.AsyncConnection.connect(**settings, cursor_factory=psycopg.AsyncRawCursor)
        async with made as connection:
            await guards.sql.aguard(connection, "account:1", 33)
            await guards.sql.aguard_row(connection, "account:1", 33, **ROW)

    asyncio.run(main())


def test_a_connection_of_sqlite3_whose_texts_are_bytes_is_guarded(tmp_path: Path) -> None:
    with closing(sqlite3.connect(**PLACES["sqlite"](tmp_path).settings)) as connection:
        connection.text_factory = bytes
        all_forms(connection)
