"""A guard in a user's open transaction locks the claim's own row, and nothing of interlock waits for that transaction.

InnoDB's share lock also stops updates. So a renewal, a release or an eviction of such a claim is written beside the row, counts at once,
and moves into the row when it is free again. Nobody else is let in before the user's transaction ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import interlock
from interlock import guards
from interlock.errors import LeaseLost
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.mysql import Server
from tests.patience import until, until_renewed


def prefix(url: str) -> str:
    return parse_qs(urlsplit(url).query)["prefix"][0]


@contextmanager
def pinned(server: Server, url: str, lease: Any) -> Iterator[Any]:
    """The lease's row locked by a transaction of the user's, until the block is left."""
    with closing(server.connect()) as connection:
        connection.begin()
        guards.sql.guard(connection, lease, absolute=True)
        yield connection
        connection.commit()


@pytest.fixture
def client(url: str) -> Iterator[interlock.Client]:
    with interlock.connect(url, ttl=30) as client:
        yield client


@pytest.fixture
def other(url: str) -> Iterator[interlock.Client]:
    with interlock.connect(url, ttl=30) as client:
        yield client


def test_a_renewal_does_not_wait_and_counts(server: Server, url: str) -> None:
    with interlock.connect(url, ttl=stretched(1.0)) as client, interlock.connect(url) as other:
        with client.lock("x") as lease:
            with pinned(server, url, lease):
                until_renewed(lease)  # renewed, several times if need be, while pinned
                until(lambda: other.inspect("x").holders[0].lapses_in > 0.5)
            until(lambda: lease.remaining() > 0.5)
            lease.check()
            assert other.lock("x").acquire(blocking=False) is None


def test_a_release_does_not_wait_and_lets_nobody_in_before_the_transaction_ends(
    server: Server, url: str, client: interlock.Client, other: interlock.Client
) -> None:
    lease = client.lock("x").acquire()
    assert lease is not None
    with pinned(server, url, lease):
        with at_most(1.0):
            lease.release()
        assert other.lock("x").acquire(timeout=0.3) is None
    assert other.lock("x").acquire(timeout=30) is not None


def test_a_waiter_is_let_in_soon_after_the_transaction_of_a_released_holder_ends(
    server: Server, url: str, client: interlock.Client, other: interlock.Client
) -> None:
    lease = client.lock("x").acquire()
    assert lease is not None
    waiter = other.lock("x", timeout=60)
    with pinned(server, url, lease):
        lease.release()
    with at_most(1.0):
        assert waiter.acquire() is not None


def test_a_lapsed_holder_keeps_others_out_while_its_transaction_is_open(server: Server, url: str) -> None:
    with interlock.connect(url, ttl=0.2) as client, interlock.connect(url) as other:
        lease = client.lock("x", renew=False).acquire()
        assert lease is not None
        with pinned(server, url, lease):
            until(lambda: lease.remaining() <= 0)
            assert other.lock("x").acquire(timeout=0.5) is None
        taken = other.lock("x").acquire(timeout=30)
        assert taken is not None
        assert taken.token > lease.token


def test_an_evicted_holder_is_told_at_once_and_its_place_is_free_after_its_transaction(
    server: Server, url: str, client: interlock.Client, other: interlock.Client
) -> None:
    lease = client.lock("x", ttl=stretched(4.0)).acquire()  # learns of it at its next renewal
    assert lease is not None
    with pinned(server, url, lease):
        with at_most(1.0):
            (met,) = other.evict("x", reason="maintenance")
        assert met.token == lease.token
        until(lease.lost.is_set)
        with pytest.raises(LeaseLost, match="maintenance"):
            lease.check()
        assert other.lock("x").acquire(blocking=False) is None
    assert other.lock("x").acquire(timeout=30) is not None


def test_a_pinned_holder_of_a_semaphore_stops_nobody_else(
    server: Server, url: str, client: interlock.Client, other: interlock.Client
) -> None:
    first = client.semaphore("s", capacity=2).acquire()
    assert first
    with pinned(server, url, first):
        for _ in range(3):
            with at_most(1.0):
                second = other.semaphore("s", capacity=2).acquire(timeout=5)
                assert second
                second.release()
    first.release()


def test_nothing_is_left_beside_the_rows(server: Server, url: str, client: interlock.Client) -> None:
    lease = client.lock("x").acquire()
    assert lease is not None
    with pinned(server, url, lease):
        lease.release()
    with client.lock("x"):
        pass
    assert server.run(f"select count(*) from app.{prefix(url)}pending") == ((0,),)
