"""When a server's clock is set back, or it evicts one of several keys, the loss is contained, and nobody waits for hours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

import interlock
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.redis import RedisStore, open_url
from interlock.model import EVERYTHING, Busy, Claim, Gone, Granted, Renewal
from interlock.testing.lag import stretched
from interlock.testing.servers.clock import ClockedServer
from interlock.testing.servers.redis import Server, started
from tests.redis.waiter import Waiter

HOUR = 3600.0
COMPANIONS = {"records": "{x}\x1f\x1fh", "waiters": "{x}\x1f\x1fw", "lapses": "{x}\x1f\x1fe"}


@pytest.fixture(scope="module")
def clock() -> Iterator[ClockedServer]:
    with started(ClockedServer()) as server:
        yield server


def opened(server: Server) -> RedisStore:
    return open_url(urlsplit(server.url()), Threads(), asynchronous=False)


@pytest.fixture
def store(clock: ClockedServer) -> Iterator[RedisStore]:
    with redis.Redis(port=clock.port) as admin:
        admin.flushall()
    store = opened(clock)
    yield store
    drive(store.close())


def set_back(clock: ClockedServer) -> None:
    clock.jump(-HOUR)
    with redis.Redis(port=clock.port) as admin:
        end = time.monotonic() + 10
        while admin.time()[0] > time.time() + clock.offset + 60:
            assert time.monotonic() < end


@pytest.mark.parametrize("kind", ["lock", "semaphore", "writer"])
def test_who_waits_for_a_dead_holder_waits_for_a_ttl_and_not_for_an_hour(
    clock: ClockedServer, store: RedisStore, kind: str
) -> None:
    permits, capacity = {"lock": (1, 1), "semaphore": (3, 3), "writer": (EVERYTHING, EVERYTHING)}[kind]
    before = drive(store.claim(Claim("x", "dead", 1.0, permits, capacity)))
    assert isinstance(before, Granted)
    set_back(clock)
    with interlock.connect(clock.url(), ttl=5) as client:
        lock: Any = {
            "lock": lambda: client.lock("x"),
            "semaphore": lambda: client.semaphore("x", 3),
            "writer": lambda: client.rwlock("x").write(),
        }[kind]()
        lease = lock.acquire(timeout=20)
        assert lease
        assert lease.token > before.token
        lease.release()


def test_dead_waiters_ahead_cost_a_ttl_each_at_most(clock: ClockedServer, store: RedisStore) -> None:
    for id in ("holder", "one", "two"):
        drive(store.claim(Claim("x", id, 0.5, place_ttl=0.5)))
    set_back(clock)
    with interlock.connect(clock.url(), ttl=1) as client:
        lease = client.lock("x").acquire(timeout=20)
        assert lease
        lease.release()


@pytest.mark.parametrize("capacity", [1, 3])
def test_a_holder_that_lives_keeps_its_lease(clock: ClockedServer, store: RedisStore, capacity: int) -> None:
    ttl = stretched(0.6)
    with interlock.connect(clock.url(), ttl=ttl) as client:
        lease: Any = (client.lock("x") if capacity == 1 else client.semaphore("x", 3)).acquire()
        set_back(clock)
        end = time.monotonic() + 2.5 * ttl
        while time.monotonic() < end:
            drive(store.claim(Claim("x", "other", ttl, capacity, capacity, place_ttl=ttl)))
            lease.check()
        lease.release()
        drive(store.release("x", "other"))


def test_a_lock_that_was_extended_far_beyond_its_ttl_is_no_victim_of_the_clock(
    clock: ClockedServer, store: RedisStore
) -> None:
    from interlock.contrib.redis_py import Lock

    with redis.Redis(port=clock.port) as theirs:
        lock = Lock(theirs, "x", timeout=1)
        assert lock.acquire()
        assert lock.extend(HOUR)
        for claim in (Claim("x", "new", 1.0), Claim("x", "new", 1.0)):
            assert isinstance(drive(store.claim(claim)), Busy)
        assert int(theirs.pttl("x")) > 1000 * (HOUR - 60)
        lock.release()


# ---- a server that evicts --------------------------------------------------------------


@pytest.fixture
def evicting(server: Server) -> Iterator[tuple[RedisStore, redis.Redis]]:
    """A store of its own database, and who takes a key from it, as a server under maxmemory does."""
    store = open_url(urlsplit(server.url(database=7)), Threads(), asynchronous=False)
    with redis.Redis(port=server.port, db=7) as admin:
        admin.flushdb()
        yield store, admin
    drive(store.close())


@pytest.mark.parametrize("key", COMPANIONS)
def test_no_more_than_the_capacity_hold_whichever_key_is_evicted(
    evicting: tuple[RedisStore, redis.Redis], key: str
) -> None:
    """Those who share may be forgotten, as a lock is whose key is evicted; but nobody is let in beyond the others."""
    store, admin = evicting
    for id in "abcd":
        drive(store.claim(Claim("x", id, 30.0, 1, 2)))
    assert admin.delete(COMPANIONS[key]) == 1
    drive(store.release("x", "c"))
    drive(store.release("x", "d"))
    granted = [
        id
        for id in "efgh"
        if isinstance(drive(store.claim(Claim("x", id, 30.0, 1, 2, queued=False))), Granted)
    ]
    standing = [s.id for s in drive(store.inspect("x")).holders]
    assert len(standing) == 2
    assert sorted(standing) == sorted(["a", "b"] if key == "waiters" else granted)
    for id in standing:
        drive(store.release("x", id))
    assert isinstance(drive(store.claim(Claim("x", "all", 30.0, 2, 2))), Granted)


@pytest.mark.parametrize("key", ["records", "lapses"])
def test_those_who_share_are_told_when_one_of_their_keys_was_evicted(
    evicting: tuple[RedisStore, redis.Redis], key: str
) -> None:
    store, admin = evicting
    reader = Claim("x", "reader", 30.0, 1, EVERYTHING)
    drive(store.claim(reader))
    assert admin.delete(COMPANIONS[key]) == 1
    assert drive(store.renew([Renewal("x", "reader", 30.0)])) == [Gone()]
    began = time.monotonic()
    assert drive(store.wait(reader, None, 20.0)) is None
    assert time.monotonic() - began < 15, "it waited for its removal, and does not stand"
    assert isinstance(drive(store.claim(Claim("x", "w", 30.0, EVERYTHING, EVERYTHING))), Granted)


@pytest.mark.parametrize("key", COMPANIONS)
def test_a_writer_that_waited_among_evicted_readers_gets_in(
    evicting: tuple[RedisStore, redis.Redis], key: str
) -> None:
    store, admin = evicting
    drive(store.claim(Claim("x", "reader", 30.0, 1, EVERYTHING)))
    writer = Claim("x", "writer", 30.0, EVERYTHING, EVERYTHING)
    assert isinstance(drive(store.claim(writer)), Busy)
    admin.delete(COMPANIONS[key])
    answer = drive(store.claim(writer))
    assert isinstance(answer, Busy if key == "waiters" else Granted)
    drive(store.release("x", "reader"))
    assert isinstance(drive(store.claim(writer)), Granted)


def test_waiters_whose_places_are_evicted_line_up_again_at_their_next_renewal(server: Server) -> None:
    url = server.url("places:", database=7)
    with interlock.connect(url, ttl=3) as ours, interlock.connect(url, ttl=3) as theirs:
        lease = ours.lock("x").acquire()
        assert lease
        waiter = Waiter(theirs, "x")
        with redis.Redis(port=server.port, db=7) as admin:
            assert admin.delete("{places:x}\x1f\x1fw") == 1
        end = time.monotonic() + 20
        while not ours.inspect("x").waiters:
            assert time.monotonic() < end
            time.sleep(0.005)
        lease.release()
        waiter.join(20)
        assert waiter.lease
        waiter.lease.release()
