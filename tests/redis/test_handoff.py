"""A grant comes with the wake-up, and only to the claim it was given to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import redis

import interlock
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.redis import RedisStore, open_url
from interlock.model import Busy, Claim, Granted
from interlock.testing.lag import stretched
from interlock.testing.servers.redis import Server
from tests.patience import PATIENCE, until

PLACE = stretched(0.3)


@pytest.fixture
def stores(url: str) -> Iterator[tuple[RedisStore, RedisStore]]:
    ours, theirs = (open_url(urlsplit(url), Threads(), asynchronous=False) for _ in range(2))
    yield ours, theirs
    drive(ours.close())
    drive(theirs.close())


def listening(store: RedisStore, claim: Claim) -> Busy:
    """The claim waits, and the store hears what is published for it."""
    while True:
        busy = drive(store.claim(claim))
        assert isinstance(busy, Busy)
        if store._own_claims.places[claim.id][0] == store._listener.subscription_of(claim.resource)[1] != 0:
            return busy
        drive(store.wait(claim, busy, 1.0))


def claims(count: int, **settings: float) -> list[Claim]:
    return [Claim("x", uuid4().hex, 30.0, **settings) for _ in range(count)]  # type: ignore[arg-type]


def test_a_waiter_is_told_its_token_with_the_wake_up(stores: tuple[RedisStore, RedisStore]) -> None:
    ours, theirs = stores
    holder, waiter = claims(2)
    drive(theirs.claim(holder))
    busy = listening(ours, waiter)
    drive(theirs.release("x", holder.id))
    granted = drive(ours.wait(waiter, busy, PATIENCE))
    assert isinstance(granted, Granted)
    assert drive(ours.claim(waiter)) == Granted(granted.token, 30.0)
    drive(ours.release("x", waiter.id))


def test_a_grant_of_a_place_that_lapsed_is_not_taken_for_one_of_the_next(
    stores: tuple[RedisStore, RedisStore],
) -> None:
    ours, theirs = stores
    holder, next_holder = claims(2)
    (waiter,) = claims(1, place_ttl=PLACE)
    drive(theirs.claim(holder))
    busy = listening(ours, waiter)
    drive(theirs.release("x", holder.id))  # hands over to a waiter that does not look
    until(lambda: isinstance(drive(theirs.claim(next_holder)), Granted))
    busy = listening(ours, waiter)  # it goes on, and lines up again
    assert drive(ours.wait(waiter, busy, 0.2)) is None
    drive(ours.release("x", waiter.id))
    drive(theirs.release("x", next_holder.id))


def test_a_handed_over_lease_lives_no_longer_than_the_waiters_place(
    server: Server, stores: tuple[RedisStore, RedisStore]
) -> None:
    ours, theirs = stores
    holder = claims(1)[0]
    (waiter,) = claims(1, place_ttl=PLACE)
    drive(theirs.claim(holder))
    drive(ours.claim(waiter))
    drive(theirs.release("x", holder.id))
    (standing,) = drive(theirs.inspect("x")).holders
    assert standing.id == waiter.id
    assert standing.lapses_in <= PLACE + 0.001  # the server counts in milliseconds


def test_a_hand_off_costs_two_requests_however_many_wait(server: Server, url: str) -> None:
    client = interlock.connect(url)
    store = client._core.store
    waiting = [Claim("x", uuid4().hex, 30.0) for _ in range(100)]
    with redis.Redis(port=server.port) as admin:

        def requests() -> int:
            return int(admin.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))

        for claim in waiting:
            drive(store.claim(claim))
        before = requests()
        for claim in waiting[:-1]:
            assert drive(store.release("x", claim.id))
        assert requests() - before == 99
        drive(store.release("x", waiting[-1].id))
    client.close()


def test_threads_of_one_client_hand_over_without_the_subscription(url: str) -> None:
    client = interlock.connect(url)
    order: list[int] = []

    def enter(number: int) -> None:
        with client.lock("x", timeout=PATIENCE):
            order.append(number)

    threads = [threading.Thread(target=enter, args=(number,)) for number in range(5)]
    with client.lock("x"):
        for number, thread in enumerate(threads):
            thread.start()
            while len(client.inspect("x").waiters) != number + 1:
                time.sleep(0.001)
    for thread in threads:
        thread.join(PATIENCE)
    assert order == [0, 1, 2, 3, 4]
    client.close()
