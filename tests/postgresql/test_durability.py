"""What a crash of the server may undo: a release that lets nobody in, unless it is strict. Tokens rise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import interlock
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.assembly import Assembly
from interlock.backends.sql.postgresql.open import dialect_of_url
from interlock.model import Busy, Claim, Granted
from interlock.testing.lag import stretched
from interlock.urls import split
from tests.patience import PATIENCE
from tests.postgresql.server import Server, fresh_schema, running


@pytest.fixture(scope="module")
def slow() -> Iterator[Server]:
    """A server that writes what nobody waits for to its disk seconds later."""
    with running("wal_writer_delay=10s") as server:
        yield server


@pytest.mark.parametrize("durability", ["durable", "strict"])
def test_a_release_may_be_undone_by_a_crash_unless_it_is_strict(durability: str, slow: Server) -> None:
    url = slow.url(fresh_schema(), durability=durability)
    with interlock.connect(url, ttl=stretched(3.0)) as client:
        with client.lock("x") as lease:
            pass
        slow.restart()
        assert bool(client.inspect("x").holders) == (durability == "durable")
        with client.lock("x", timeout=PATIENCE) as again:  # the claim that nobody renews lapses
            assert again.token > lease.token


@pytest.mark.parametrize("durability", ["durable", "strict"])
@pytest.mark.parametrize("capacity", [1, 2])
def test_a_hand_over_survives_a_crash(durability: str, capacity: int, slow: Server) -> None:
    """Asked below the clients, whose next renewal would wait for the disk, and take the release there with it."""
    url, ttl = slow.url(fresh_schema(), durability=durability), stretched(5.0)
    store = Assembly(dialect_of_url(split(url)), Threads()).store(asynchronous=False)
    one, two = (Claim("x", id, ttl, capacity, capacity, place_ttl=ttl) for id in ("one", "two"))
    first, second = drive(store.claim(one)), drive(store.claim(two))
    assert isinstance(first, Granted)
    assert isinstance(second, Busy)
    assert drive(store.release("x", "one"))
    slow.restart()
    (standing,) = drive(store.inspect("x")).standings
    assert standing.id == "two"
    assert standing.admitted
    assert standing.token > first.token
    drive(store.close())


@pytest.mark.parametrize("durability", ["durable", "strict"])
def test_a_release_that_lingers_survives_a_crash(durability: str, slow: Server) -> None:
    url = slow.url(fresh_schema(), durability=durability)
    with interlock.connect(url, ttl=2.0) as client:
        with client.lock("x", min_hold=60):
            pass
        slow.restart()
        (holder,) = client.inspect("x").holders
        assert holder.lapses_in is not None
        assert holder.lapses_in > 10
