"""What a crash of the server may undo: releases, unless they are strict. It never makes two holders, and tokens rise."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import interlock
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.assembly import Assembly
from interlock.backends.sql.postgresql.open import dialect_of_url
from interlock.model import Busy, Claim, Granted, Renewal, Renewed
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
def test_a_hand_over_may_be_undone_by_a_crash_and_leaves_one_holder(durability: str, slow: Server) -> None:
    """Asked below the clients, whose next renewal would wait for the disk, and take the release there with it."""
    url, ttl = slow.url(fresh_schema(), durability=durability), stretched(2.0)
    store = Assembly(dialect_of_url(split(url)), Threads()).store(asynchronous=False)
    one, two = Claim("x", "one", ttl), Claim("x", "two", ttl, place_ttl=ttl)
    first, second = drive(store.claim(one)), drive(store.claim(two))
    assert isinstance(first, Granted)
    assert isinstance(second, Busy)
    assert drive(store.release("x", "one"))
    granted = drive(store.wait(two, second, 1.0))
    slow.restart()
    queue = drive(store.inspect("x"))
    assert [standing.id for standing in queue.standings] == (
        ["one", "two"] if durability == "durable" else ["two"]
    )
    end = time.monotonic() + 1.5 * ttl
    while time.monotonic() < end:  # past the lapse of the first claim: the second stands ahead of all others
        (renewed,) = drive(store.renew([Renewal("x", "two", ttl)]))
        assert isinstance(renewed, Renewed)
        assert isinstance(drive(store.claim(Claim("x", "three", ttl, queued=False))), Busy)
        time.sleep(ttl / 10)
    again = drive(store.claim(two))
    assert isinstance(again, Granted)
    assert again.token > first.token
    assert granted is None or granted.token == again.token
    drive(store.close())
