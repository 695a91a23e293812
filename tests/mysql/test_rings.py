"""The procedures of MariaDB move queues exactly as the transactions of the embedded store do, with a clock that the test moves.

`Agreement` compares answers; this compares also who was rung, and what a lapse does at its very instant: see the same test of PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.assembly import Assembly
from interlock.backends.sql.mysql.address import from_url
from interlock.backends.sql.mysql.dialect import MysqlDialect
from interlock.backends.sql.mysql.schema import Schema
from interlock.backends.sql.server_store import ServerStore
from interlock.model import LINGERING
from interlock.testing.servers.mysql import Server
from interlock.urls import split
from tests.sql import contract
from tests.sql.walk import BEGAN, COLUMNS, STANDING, STEPS, Walk

PREFIX = "rings_"


class Subject:
    """The store on MariaDB, whose procedures read the time from a table."""

    def __init__(self, server: Server) -> None:
        server.run(
            "create table if not exists app.rings_clock (at datetime(6))", "delete from app.rings_clock"
        )
        self._connection = server.connect()
        self._ask("set time_zone = '+00:00'")
        self._ask("insert into rings_clock values (from_unixtime(0))")
        self.set(BEGAN)
        for table in self._tables(server):
            self._ask(f"delete from {table}")
        address = from_url(split(server.url(PREFIX)))
        moved = address._replace(schema=Schema(PREFIX, clock="(select at from rings_clock)"))
        self.store: ServerStore = Assembly(MysqlDialect(moved, 5.0), Threads()).store(asynchronous=False)

    @staticmethod
    def _tables(server: Server) -> list[str]:
        names = [f"{PREFIX}{table}" for table in ("claim", "pending", "register", "bell", "mail")]
        found = server.run("select table_name from information_schema.tables where table_schema = 'app'")
        return [name for (name,) in found if name in names]

    def _ask(self, statement: str) -> Any:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    def set(self, now: float) -> None:
        self._ask(f"update rings_clock set at = from_unixtime({now!r})")

    def rows(self, now: float) -> list[tuple[Any, ...]]:
        found = self._ask(
            f"select id, state, permits, rung, round(lapses_at - {BEGAN}, 3) from {PREFIX}claim "
            f"where state < 2 and lapses_at > {now!r} order by token"
        )
        return [(id.decode(), *rest) for id, *rest in found]

    def everything(self) -> list[tuple[Any, ...]]:
        """As `COLUMNS`, lapsed or not."""
        found = self._ask(f"{COLUMNS} from {PREFIX}claim {STANDING}")
        return [(token, id.decode(), *rest) for token, id, *rest in found]

    def close(self) -> None:
        drive(self.store.close())
        self._connection.close()


@contextmanager
def subject(server: Server) -> Iterator[Subject]:
    made = Subject(server)
    try:
        yield made
    finally:
        made.close()


def test_the_procedures_answer_the_contract_of_the_steps(server: Server) -> None:
    with subject(server) as store:
        contract.check(contract.of(store.store))


@pytest.mark.parametrize("seed", range(30))
def test_both_stores_ring_the_same_claims(seed: int, server: Server) -> None:
    with subject(server) as store:
        walk = Walk(seed, store)
        with closing(walk.reference.connection):
            for number in range(STEPS):
                kind, found, expected = walk.step()
                assert _unnumbered(found) == _unnumbered(expected), f"seed {seed}, step {number}: {kind}"
                assert _named(store.rows(walk.now)) == _named(walk.reference.rows(walk.now)), (
                    f"seed {seed}, step {number}: after {kind}"
                )


def _named(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows without the tokens in the ids of claims that linger: the two stores draw them differently."""
    return [(LINGERING if row[0].startswith(LINGERING) else row[0], *row[1:]) for row in rows]


def _unnumbered(answer: Any) -> Any:
    """The same for an answer, whose last word is the id of the claim that holds."""
    if isinstance(answer, tuple) and answer[0] == "busy" and (answer[3] or "").startswith(LINGERING):
        return *answer[:3], LINGERING
    return answer
