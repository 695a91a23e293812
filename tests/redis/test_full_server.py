"""On a full server (maxmemory, noeviction) holders can renew and release; only new claims are refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import pytest
import redis

import interlock
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.redis import RedisStore, open_url
from interlock.errors import StoreUnavailable
from interlock.model import EVERYTHING, Busy, Claim, Granted, Renewal, Renewed
from interlock.testing.servers.redis import Server, running

TTL = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running("--maxmemory-policy", "noeviction") as made:
        yield made


@pytest.fixture
def admin(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as admin:
        admin.flushall()
        yield admin


@pytest.fixture
def store(server: Server) -> Iterator[RedisStore]:
    store = open_url(urlsplit(server.url()), Threads(), asynchronous=False)
    yield store
    drive(store.close())


@contextmanager
def full(admin: redis.Redis) -> Iterator[None]:
    admin.config_set("maxmemory", 1)
    try:
        yield
    finally:
        admin.config_set("maxmemory", 0)


def standing(store: RedisStore, *permits: int, capacity: int = 1, place_ttl: float = 10.0) -> list[Claim]:
    claims = [
        Claim("x", f"{number}", TTL, wanted, capacity, place_ttl=place_ttl)
        for number, wanted in enumerate(permits)
    ]
    for claim in claims:
        drive(store.claim(claim))
    return claims


def holders(store: RedisStore) -> list[str]:
    return [standing.id for standing in drive(store.inspect("x")).holders]


def test_a_lock_is_handed_over(admin: redis.Redis, store: RedisStore) -> None:
    standing(store, 1, 1, 1)
    with full(admin):
        assert drive(store.release("x", "0"))
        assert holders(store) == ["1"]
        assert drive(store.release("x", "2"))
        assert drive(store.release("x", "1"))
        assert holders(store) == []


def test_readers_are_let_in(admin: redis.Redis, store: RedisStore) -> None:
    standing(store, EVERYTHING, 1, 1, EVERYTHING, capacity=EVERYTHING)
    with full(admin):
        assert drive(store.release("x", "0"))
        assert holders(store) == ["1", "2"]
        assert drive(store.release("x", "1"))
        assert drive(store.release("x", "2"))
        assert holders(store) == ["3"]


def test_a_writer_becomes_a_reader(admin: redis.Redis, store: RedisStore) -> None:
    standing(store, EVERYTHING, 1, capacity=EVERYTHING)
    with full(admin):
        assert drive(store.renew([Renewal("x", "0", TTL, permits=1)])) == [Renewed(TTL)]
        assert holders(store) == ["0", "1"]


@pytest.mark.parametrize("capacity", [1, 2, EVERYTHING])
def test_holders_and_waiters_are_renewed(admin: redis.Redis, store: RedisStore, capacity: int) -> None:
    standing(store, capacity, capacity, capacity=capacity)
    with full(admin):
        assert (
            drive(store.renew([Renewal("x", id, 99.0, waiting=id == "1") for id in "01"]))
            == [Renewed(99.0)] * 2
        )
        assert [s.lapses_in > 90 for s in drive(store.inspect("x")).standings] == [True, True]


@pytest.mark.parametrize("capacity", [1, 3])
def test_a_claim_that_lingers_stays_as_long_as_it_said(
    admin: redis.Redis, store: RedisStore, capacity: int
) -> None:
    standing(store, capacity, capacity, capacity=capacity)
    with full(admin):
        assert drive(store.release("x", "0", 5.0))
        (lingering,) = drive(store.inspect("x")).holders
        assert 0 < lingering.lapses_in <= 5


@pytest.mark.parametrize("capacity", [1, 3])
def test_a_waiter_that_looks_again_keeps_its_place_and_is_let_in_when_the_holder_has_lapsed(
    admin: redis.Redis, store: RedisStore, capacity: int
) -> None:
    holder = Claim("x", "dead", 0.3, capacity, capacity)
    drive(store.claim(holder))
    waiter = Claim("x", "waiter", TTL, 1, capacity)
    assert isinstance(drive(store.claim(waiter)), Busy)
    with full(admin):
        end = time.monotonic() + 10
        while not isinstance(answer := drive(store.claim(waiter)), Granted):
            assert isinstance(answer, Busy)
            assert time.monotonic() < end
            time.sleep(0.01)


@pytest.mark.parametrize("capacity", [1, 3])
def test_an_operator_can_evict(admin: redis.Redis, store: RedisStore, capacity: int) -> None:
    standing(store, capacity, capacity, capacity=capacity)
    with full(admin):
        assert [met.id for met in drive(store.evict("x", None, "to free memory"))] == ["0"]
        assert holders(store) == ["1"]


@pytest.mark.parametrize("capacity", [1, 3])
@pytest.mark.parametrize("held", [True, False])
def test_a_newcomer_is_refused_and_leaves_nothing(
    admin: redis.Redis, store: RedisStore, capacity: int, held: bool
) -> None:
    standing(store, *([capacity] if held else []), capacity=capacity)
    with full(admin):
        with pytest.raises(StoreUnavailable, match="out of memory"):
            drive(store.claim(Claim("x", "new", TTL, 1, capacity)))
        assert [s.id for s in drive(store.inspect("x")).standings] == (["0"] if held else [])


def test_a_release_of_what_was_asked_for_in_vain_does_not_fail(admin: redis.Redis, store: RedisStore) -> None:
    """There is no memory to remember it by: best effort."""
    store._own_claims.unanswered["new"] = None
    with full(admin):
        assert drive(store.release("x", "new")) is False


def test_nobody_loses_a_lease_to_a_full_server(server: Server, admin: redis.Redis) -> None:
    with ExitStack() as stack:
        one, two, three = (stack.enter_context(interlock.connect(server.url(), ttl=0.6)) for _ in range(3))
        leases = [
            one.lock("lock").acquire(),
            two.semaphore("semaphore", 3).acquire(),
            three.rwlock("rw").read().acquire(),
        ]
        with full(admin):
            time.sleep(1.5)  # longer than a ttl: they were renewed
            for lease in leases:
                assert isinstance(lease, interlock.Lease)
                lease.check()
                lease.release()
