"""A crowd on one name of PostgreSQL: nobody is forgotten, and what a call costs does not grow with the crowd.

Costs are counted in rows that the server reads, which no load of the machine changes.
"""

from __future__ import annotations

import psycopg
import pytest

import interlock
from interlock.model import EVERYTHING
from interlock.testing.servers.postgresql import Server, fresh_schema
from tests.sql import crowds

FEW, MANY = 10, 1000
FETCHED = 10  # rows that a loop of PL/pgSQL fetches at a time, needed or not
RENEW = "renew_2(array['q'], array['w{last}'], array[600.0], array[null], array[null]::int[], array[{last}], array[{waiting}], '')"
CALLS = {
    "renews the place of a waiter": (1, RENEW),
    "renews a reader": (EVERYTHING, RENEW),
    "removes a waiter": (1, "release_2('q', 'w{last}', 0, '', false, {last})"),
    "hands the lock on": (1, "release_2('q', 'w1', 0, '', false, 1)"),
    "removes a reader": (EVERYTHING, "release_2('q', 'w{last}', 0, '', false, {last})"),
    "removes the first reader": (EVERYTHING, "release_2('q', 'w1', 0, '', false, 1)"),
    "looks for a claim": (1, "find_2('q', 'w{last}', '', {last})"),
}


@pytest.fixture
def schema() -> str:
    return fresh_schema()


@pytest.fixture
def execute(server: Server, schema: str) -> crowds.Execute:
    return lambda statement: server.sql(statement.format(claim=f"{schema}.claim"))


def test_the_dead_ahead_of_a_waiter_are_passed_over(server: Server, schema: str) -> None:
    crowds.check_the_dead_ahead(server.url(schema))


def test_a_waiter_whose_ring_is_lost_hears_of_its_grant_when_its_place_is_renewed(
    server: Server, schema: str, execute: crowds.Execute
) -> None:
    crowds.check_a_lost_ring(server.url(schema), execute)


def test_readers_are_let_in_so_many_at_a_time(server: Server, schema: str, execute: crowds.Execute) -> None:
    crowds.check_slices(server.url(schema), execute)


@pytest.mark.parametrize("change", crowds.CHANGES)
def test_the_renewal_of_a_place_tells_its_waiter_what_it_must_know(
    server: Server, schema: str, execute: crowds.Execute, change: str
) -> None:
    crowds.check_renewals(server.url(schema), execute, change)


def test_a_holder_that_has_lapsed_makes_room_with_the_one_that_leaves(
    server: Server, schema: str, execute: crowds.Execute
) -> None:
    crowds.check_a_release_beside_the_dead(server.url(schema), execute)


def test_a_wrong_token_costs_a_search_and_nothing_else(server: Server, schema: str) -> None:
    crowds.check_wrong_tokens(server.url(schema))


@pytest.mark.parametrize("call", CALLS)
def test_what_a_call_costs_does_not_grow_with_the_crowd(server: Server, schema: str, call: str) -> None:
    with interlock.connect(server.url(schema)) as client, client.lock("first"):
        pass
    few, many = (_rows_read(server, schema, crowd, *CALLS[call]) for crowd in (FEW, MANY))
    assert many <= few + FETCHED
    assert few < 40


def _rows_read(server: Server, schema: str, crowd: int, capacity: int, call: str) -> int:
    statement = f"select {schema}.{call.format(last=crowd, waiting=capacity == 1)}"
    with psycopg.connect(server.conninfo) as connection:
        connection.execute(
            f"insert into {schema}.claim select 'q', n, 'w' || n, (n <= {capacity})::int, 1, {capacity}, 600, "
            f"extract(epoch from clock_timestamp()) + 600, 0, false, '', '', '' from generate_series(1, {crowd}) n".encode()
        )
        before = connection.execute(READ, [schema]).fetchone()
        assert connection.execute(statement.encode()).fetchone() is not None
        after = connection.execute(READ, [schema]).fetchone()
        connection.rollback()
    assert before is not None
    assert after is not None
    return int(after[0] - before[0])


READ = b"select seq_tup_read + idx_tup_fetch from pg_stat_xact_user_tables where schemaname = %s and relname = 'claim'"
