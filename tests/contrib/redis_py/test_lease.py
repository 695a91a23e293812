"""What our locks have and redis-py's have not: a lease, a place in a queue, no polling, and an end in any case."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import redis

import interlock
from interlock import aio, blocking
from interlock.contrib.redis_py import Lock, clients
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.redis import Server
from tests.contrib.redis_py.party import OURS, Kind, Party, attempts, beside, until
from tests.patience import PATIENCE

TTL = stretched(0.6)


@pytest.fixture(params=OURS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def operator(server: Server) -> Iterator[interlock.Client]:
    """interlock itself, looking on."""
    with interlock.connect(server.url()) as client:
        yield client


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks without a timeout live TTL seconds unrenewed: nobody wants to wait for 30."""
    monkeypatch.setattr(blocking, "connect", partial(blocking.connect, ttl=TTL))
    monkeypatch.setattr(aio, "connect", partial(aio.connect, ttl=TTL))


def waits(operator: interlock.Client, name: str) -> bool:
    return bool(operator.inspect(name).waiters)


class TestLease:
    def test_a_taken_lock_has_a_lease_whose_token_grows(self, party: Party, name: str) -> None:
        assert party.lock(name).lease is None
        lock = party.lock(name)
        tokens: list[int] = []
        for _ in range(3):
            lock.acquire()
            lock.lease.check()
            tokens.append(lock.lease.token)
            lock.release()
            assert getattr(lock, "lease", "a lease") is None
        assert sorted(set(tokens)) == tokens

    def test_the_lease_knows_how_long_it_lives(self, party: Party, name: str) -> None:
        lock = party.lock(name, timeout=10)
        lock.acquire()
        assert 5 < lock.lease.remaining() < 10
        lock.extend(10)
        assert 12 < lock.lease.remaining() < 20
        lock.extend(5, replace_ttl=True)
        assert 0 < lock.lease.remaining() < 5
        lock.release()

    def test_the_lease_is_lost_when_the_timeout_is_over(self, party: Party, name: str) -> None:
        lock = party.lock(name, timeout=stretched(0.2))
        lock.acquire()
        lease = lock.lease
        until(lambda: lease.state is interlock.State.LOST)
        with pytest.raises(interlock.LeaseLost, match="its ttl ran out"):
            lease.check()

    def test_the_holder_is_told_when_a_lock_that_was_shortened_ends(self, party: Party, name: str) -> None:
        lock = party.lock(name, timeout=60)
        lock.acquire()
        lost = lock.lease.lost
        lock.extend(0.1, replace_ttl=True)
        until(lost.is_set)

    def test_an_extension_that_is_refused_tells_the_lease(self, party: Party, name: str) -> None:
        lock = party.lock(name, timeout=10)
        lock.acquire()
        party.ask("DEL", name)
        with pytest.raises(interlock.LeaseLost):
            lock.extend(10)
        with pytest.raises(interlock.LeaseLost):
            lock.lease.check()

    def test_a_token_set_by_hand_has_no_lease(self, party: Party, other: Party, name: str) -> None:
        with party.lock(name) as lock:
            passed = other.lock(name)
            passed.lock.local.token = lock.local.token
            assert passed.lease is None


class TestWaiting:
    def test_who_waits_asks_the_server_a_few_times_only(
        self, party: Party, other: Party, name: str, operator: interlock.Client
    ) -> None:
        waiting = other.lock(name, sleep=0.001, thread_local=False)
        with party.lock(name):
            with beside(lambda: waiting.acquire(blocking_timeout=1.5)) as got:
                until(lambda: waits(operator, name))
                before = attempts(party)
            assert attempts(party) - before <= 5
        assert got == [False]

    def test_who_comes_first_is_let_in_first_and_at_once(
        self, party: Party, server: Server, name: str, operator: interlock.Client
    ) -> None:
        order: list[int] = []

        def enter(number: int) -> None:
            with Party(server.port, party.kind) as mine, mine.lock(name, sleep=100, timeout=10):
                order.append(number)

        lock = party.lock(name)
        lock.acquire()
        threads = [threading.Thread(target=enter, args=(number,)) for number in range(4)]
        for number, thread in enumerate(threads):
            thread.start()
            until(lambda number=number: len(operator.inspect(name).waiters) == number + 1)  # type: ignore[misc]
        with at_most(5):
            lock.release()
            for thread in threads:
                thread.join(PATIENCE)
            assert order == [0, 1, 2, 3]

    @pytest.mark.parametrize("timeout", [4, 60])
    def test_who_was_let_in_has_its_whole_timeout(
        self, party: Party, other: Party, name: str, operator: interlock.Client, timeout: float
    ) -> None:
        lock, waiting = party.lock(name), other.lock(name, timeout=timeout, thread_local=False)
        lock.acquire()
        with beside(waiting.acquire) as got:
            until(lambda: waits(operator, name))
            began = time.monotonic()
            lock.release()
        assert got == [True]
        left, remaining = party.ask("PTTL", name) / 1000, waiting.lease.remaining()
        passed = time.monotonic() - began  # since it was let in, at most
        assert 0.95 * timeout - passed < left <= timeout
        assert 0.95 * timeout - passed < remaining < timeout
        waiting.release()

    def test_who_waits_hears_of_a_lock_that_was_shortened(
        self, party: Party, other: Party, name: str, operator: interlock.Client
    ) -> None:
        lock, waiting = party.lock(name, timeout=60), other.lock(name, thread_local=False)
        lock.acquire()
        with beside(lambda: waiting.acquire(blocking_timeout=PATIENCE)) as got:
            until(lambda: waits(operator, name))
            with at_most(3):
                lock.extend(0.1, replace_ttl=True)
                until(lambda: got)
        assert got == [True]
        waiting.release()


class TestWithoutTimeout:
    def test_it_is_renewed_while_it_is_held(self, hasty: None, party: Party, name: str) -> None:
        lock = party.lock(name)
        lock.acquire()
        end = time.monotonic() + 3 * TTL
        until(lambda: time.monotonic() > end or not party.ask("EXISTS", name))
        assert lock.owned()
        lock.release()

    def test_it_ends_when_nobody_has_it_any_more(
        self, hasty: None, party: Party, other: Party, name: str
    ) -> None:
        def take() -> Any:
            return party.lock(name).acquire()  # nobody keeps the object, and the thread ends

        with beside(take) as got:
            pass
        assert got == [True]
        gc.collect()  # from Python 3.13 on, the task that took it keeps it in a cycle
        with other.lock(name, blocking_timeout=PATIENCE):
            pass

    def test_it_is_passed_on_to_other_threads(self, hasty: None, party: Party, name: str) -> None:
        lock = party.lock(name, thread_local=False)
        with beside(lock.acquire):
            pass
        end = time.monotonic() + 2 * TTL
        until(lambda: time.monotonic() > end or not party.ask("EXISTS", name))
        assert lock.owned(), "it ended with the thread that took it"
        lock.release()


class TestClients:
    def test_all_locks_of_a_pool_share_one_client(self, server: Server) -> None:
        pool = redis.ConnectionPool(port=server.port)
        one, two = redis.Redis(connection_pool=pool), redis.Redis(connection_pool=pool)
        with redis.Redis(port=server.port) as apart:
            assert clients.shared(one) is clients.shared(two)
            assert clients.shared(one) is not clients.shared(apart)
        pool.disconnect()

    def test_a_client_goes_with_its_pool(self, server: Server, name: str) -> None:
        theirs = redis.Redis(port=server.port)
        with theirs.lock(name, lock_class=Lock):
            pass
        client = weakref.ref(clients.shared(theirs))
        theirs.close()
        del theirs
        until(lambda: gc.collect() >= 0 and client() is None)

    def test_a_loop_that_ends_leaves_no_connection(self, server: Server, name: str) -> None:
        with redis.Redis(port=server.port) as looking:

            def connections() -> set[str]:
                return {one["id"] for one in looking.client_list()}

            before = connections()
            with Party(server.port, Kind(ours=True, asynchronous=True)) as party:
                with party.lock(name):
                    assert connections() - before
            until(lambda: connections() <= before)
