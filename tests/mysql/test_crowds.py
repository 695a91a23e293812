"""A crowd on one name of MariaDB: nobody is forgotten, and what a call costs does not grow with the crowd.

Costs are counted in rows that the server reads, which no load of the machine changes.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

import interlock
from interlock.model import EVERYTHING
from interlock.testing.servers.mysql import Server
from tests.sql import crowds

FEW, MANY = 10, 1000
CALLS = {
    "renews the place of a waiter": (1, "renew('{item}', '')"),
    "renews a reader": (EVERYTHING, "renew('{item}', '')"),
    "removes a waiter": (1, "release('q', 'w{last}', 0, '', 0, {last})"),
    "hands the lock on": (1, "release('q', 'w1', 0, '', 0, 1)"),
    "removes a reader": (EVERYTHING, "release('q', 'w{last}', 0, '', 0, {last})"),
    "removes the first reader": (EVERYTHING, "release('q', 'w1', 0, '', 0, 1)"),
    "looks for a claim": (1, "find('q', 'w{last}', '', {last})"),
}


@pytest.fixture
def execute(server: Server, url: str) -> crowds.Execute:
    table = f"app.{prefix_of(url)}claim"
    return lambda statement: server.run(statement.format(claim=table))


def prefix_of(url: str) -> str:
    return url.partition("prefix=")[2]


def test_the_dead_ahead_of_a_waiter_are_passed_over(url: str) -> None:
    crowds.check_the_dead_ahead(url)


def test_a_waiter_whose_ring_is_lost_hears_of_its_grant_when_its_place_is_renewed(
    url: str, execute: crowds.Execute
) -> None:
    crowds.check_a_lost_ring(url, execute)


def test_readers_are_let_in_so_many_at_a_time(url: str, execute: crowds.Execute) -> None:
    crowds.check_slices(url, execute)


@pytest.mark.parametrize("change", crowds.CHANGES)
def test_the_renewal_of_a_place_tells_its_waiter_what_it_must_know(
    url: str, execute: crowds.Execute, change: str
) -> None:
    crowds.check_renewals(url, execute, change)


def test_a_holder_that_has_lapsed_makes_room_with_the_one_that_leaves(
    url: str, execute: crowds.Execute
) -> None:
    crowds.check_a_release_beside_the_dead(url, execute)


def test_a_wrong_token_costs_a_search_and_nothing_else(url: str) -> None:
    crowds.check_wrong_tokens(url)


@pytest.mark.parametrize("call", CALLS)
def test_what_a_call_costs_does_not_grow_with_the_crowd(server: Server, call: str) -> None:
    few, many = (_rows_read(server, crowd, *CALLS[call]) for crowd in (FEW, MANY))
    assert many <= few < 40


def _rows_read(server: Server, crowd: int, capacity: int, call: str) -> int:
    url = server.fresh_url()
    with interlock.connect(url) as client, client.lock("first"):
        pass
    prefix = prefix_of(url)
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"insert into {prefix}claim select 'q', seq, concat('w', seq), seq <= {capacity}, 1, {capacity}, 600, "
            f"unix_timestamp() + 600, unix_timestamp(), 0, '', '', '' from seq_1_to_{crowd}"
        )
        item = f"{b'q'.hex()},{f'w{crowd}'.encode().hex()},600.0,{crowd},{int(capacity == 1)},-,-;"
        cursor.execute("flush status")
        cursor.execute(f"call {prefix}v2_{call.format(last=crowd, item=item)}")
        answer: Any = cursor.fetchone()
        assert answer[0] in ("r", 1, 0)
        while cursor.nextset():
            pass
        cursor.execute("show session status like 'Handler_read%'")
        return sum(int(count) for _, count in cursor.fetchall())
