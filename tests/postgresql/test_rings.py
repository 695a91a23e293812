"""The functions of PostgreSQL move queues exactly as the transactions of the embedded store do, with a clock that the test moves.

`Agreement` compares answers. It does not see which waiters are rung, when a waiter is told to look again, or what a lapse does at its very
instant: a claim that is not rung is still served after a while, and nobody notices. So both run the same random steps here, and after each
step everything is compared: the answer, and for each live claim its state, permits, lapse and whether it was rung.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.assembly import Assembly
from interlock.backends.sql.postgresql.open import dialect_of_url
from interlock.backends.sql.server_store import ServerStore
from interlock.model import Claim
from interlock.testing.servers.postgresql import Server, fresh_schema
from interlock.urls import split
from tests.patience import PATIENCE
from tests.sql.walk import (
    BEGAN,
    COLUMNS,
    STANDING,
    STEPS,
    Walk,
)


class Subject:
    """The store on PostgreSQL, whose functions read the time from a table."""

    def __init__(self, server: Server) -> None:
        self.schema = fresh_schema()
        server.sql(
            f"create schema {self.schema}; create table {self.schema}.clock (at float8); insert into {self.schema}.clock values ({BEGAN})"
        )
        self._server = server
        dialect = dialect_of_url(
            split(server.url(self.schema)), clock=f"(select at from {self.schema}.clock)"
        )
        self.store: ServerStore = Assembly(dialect, Threads()).store(asynchronous=False)
        import psycopg

        self._connection = psycopg.connect(server.conninfo, autocommit=True)

    def set(self, now: float) -> None:
        self._connection.execute(f"update {self.schema}.clock set at = {now!r}".encode())

    def rows(self, now: float) -> list[tuple[Any, ...]]:
        query = (
            f"select id, state, permits, rung::int, round((lapses_at - {BEGAN})::numeric, 3)::float8 from {self.schema}.claim "
            f"where state < 2 and lapses_at > {now!r} order by token"
        )
        return self._connection.execute(query.encode()).fetchall()

    def everything(self) -> list[tuple[Any, ...]]:
        """As `COLUMNS`, lapsed or not."""
        return self._connection.execute(f"{COLUMNS} from {self.schema}.claim {STANDING}".encode()).fetchall()

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


@pytest.mark.parametrize("seed", range(30))
def test_both_stores_ring_the_same_claims(seed: int, server: Server) -> None:
    with subject(server) as store:
        walk = Walk(seed, store)
        with closing(walk.reference.connection):
            for number in range(STEPS):
                kind, found, expected = walk.step()
                assert found == expected, f"seed {seed}, step {number}: {kind}"
                assert store.rows(walk.now) == walk.reference.rows(walk.now), (
                    f"seed {seed}, step {number}: after {kind}"
                )


class TestTheShortHandOver:
    """A mutex is handed to the next waiter on a short way of its own, which must see when it is not meant."""

    def test_passes_over_a_waiter_that_has_lapsed(self, server: Server) -> None:
        with subject(server) as store:
            _enter(store, one=10.0, gone=2.0, two=20.0)
            store.set(BEGAN + 5)
            assert drive(store.store.release("r", "one"))
            assert [row[:2] for row in store.rows(BEGAN + 5)] == [("two", 1)]

    def test_passes_over_the_mark_of_a_claim_that_was_taken_back(self, server: Server) -> None:
        """The mark has no permits and no capacity: it fills its capacity as a mutex does."""
        with subject(server) as store:
            _enter(store, one=10.0)
            store.store._state.own_claims.unanswered["late"] = None
            assert not drive(store.store.release("r", "late"))
            _enter(store, two=20.0)
            assert drive(store.store.release("r", "one"))
            assert [row[:2] for row in store.rows(BEGAN)] == [("two", 1)]

    def test_is_not_for_a_claim_that_has_lapsed(self, server: Server) -> None:
        with subject(server) as store:
            _enter(store, one=2.0, two=20.0)
            store.set(BEGAN + 5)
            assert not drive(store.store.release("r", "one"))
            assert [row[:2] for row in store.rows(BEGAN + 5)] == [("two", 0)]

    def test_rings_the_owner_if_another_client_releases_its_claim(self, server: Server) -> None:
        import psycopg

        with subject(server) as store, psycopg.connect(server.conninfo, autocommit=True) as owner:
            _enter(store, one=10.0, two=20.0)
            owner.execute("listen il_owner")
            server.sql(f"update {store.schema}.claim set bell = 'il_owner' where id = 'one'")
            assert drive(store.store.release("r", "one"))
            assert [one.payload for one in owner.notifies(timeout=PATIENCE, stop_after=1)] == ["cone 0"]
            assert [row[:2] for row in store.rows(BEGAN)] == [("two", 1)]


def _enter(store: Subject, **claims: float) -> None:
    """Enter claims on a mutex, each with its ttl, which is that of its place as well."""
    for id, ttl in claims.items():
        drive(store.store.claim(Claim("r", id, ttl, place_ttl=ttl)))
