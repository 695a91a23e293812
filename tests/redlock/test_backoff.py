"""When waiters ask again: less often the longer a lock is held, and never so late that its release is missed for long."""

from __future__ import annotations

import threading
import time
from uuid import uuid4

import pytest

import interlock
from interlock.backends.redlock.algorithm.backoff import (
    FIRST_PAUSE_S,
    HELD_PART,
    MAX_LOST_RACES,
    MAX_PAUSE_S,
    MIN_PAUSE_S,
    Backoff,
)
from interlock.backends.redlock.store import RedlockStore
from interlock.model import Busy, Claim, Granted, Standing
from interlock.testing.lag import Lag
from interlock.testing.servers.redlock import say, steady
from tests.redlock.colours import COLOURS, run


def held(age: float, token: int = 7) -> Busy:
    return Busy(1, 30.0, Standing("a", token, 1, True, age, 30.0, "", ""))


def test_a_first_pause_is_short() -> None:
    backoff = Backoff()
    assert backoff.pause("me", held(0.0), 0.0) == MIN_PAUSE_S
    assert backoff.pause("me", held(0.0), 1.0) == pytest.approx(FIRST_PAUSE_S)


def test_a_pause_is_a_part_of_the_time_for_which_the_lock_is_held() -> None:
    backoff = Backoff()
    for age in (1.0, 2.0, 4.0):
        assert backoff.pause("me", held(age), 1.0) == pytest.approx(HELD_PART * age)
    assert backoff.pause("me", held(3600.0), 1.0) == pytest.approx(MAX_PAUSE_S)


def test_a_next_holder_is_waited_for_as_for_the_first() -> None:
    backoff = Backoff()
    backoff.pause("me", held(60.0), 1.0)
    assert backoff.pause("me", held(0.01, token=8), 1.0) < 2 * FIRST_PAUSE_S


def test_races_that_are_lost_make_pauses_longer_up_to_a_bound() -> None:
    backoff = Backoff()
    pauses = [backoff.pause("me", held(0.001, token), 1.0) for token in range(1, 3 * MAX_LOST_RACES)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pauses[-MAX_LOST_RACES] < MAX_PAUSE_S
    backoff.over("me")
    assert backoff.pause("me", held(0.001, 99), 1.0) == pytest.approx(FIRST_PAUSE_S)


def test_votes_that_are_split_are_races_too() -> None:
    backoff = Backoff()
    pauses = [backoff.pause("me", Busy(1, 30.0), 1.0) for _ in range(3)]
    assert pauses[0] < pauses[1] < pauses[2]


@COLOURS
def test_who_is_refused_is_told_for_whom_it_waits(colour: str) -> None:
    async def main(store: RedlockStore) -> None:
        granted = await store.claim(Claim("x", "a", 30.0, who="[1]"))
        assert isinstance(granted, Granted)
        refused = await store.claim(Claim("x", "b", 30.0))
        assert isinstance(refused, Busy)
        assert refused.holder is not None
        assert (refused.holder.id, refused.holder.token, refused.holder.who) == ("a", granted.token, "[1]")
        assert 0.0 <= refused.holder.age < 30.0

    run(colour, steady().url(f"{uuid4().hex}:"), main)


@COLOURS
def test_of_many_readers_the_oldest_is_named(colour: str) -> None:
    async def main(store: RedlockStore) -> None:
        first = await store.claim(Claim("x", "a", 30.0, 1, 10**6))
        assert isinstance(first, Granted)
        assert isinstance(await store.claim(Claim("x", "b", 30.0, 1, 10**6)), Granted)
        refused = await store.claim(Claim("x", "w", 30.0, 10**6, 10**6))
        assert isinstance(refused, Busy)
        assert refused.holder is not None
        assert (refused.holder.id, refused.holder.token) == ("a", first.token)

    run(colour, steady().url(f"{uuid4().hex}:"), main)


def scripts() -> int:
    """How many scripts the first node has run."""
    stats = say(steady()[0], "INFO", "commandstats").partition(b"cmdstat_evalsha:calls=")[2]
    return int(stats.partition(b",")[0])


def test_a_waiter_asks_less_often_the_longer_it_waits() -> None:
    url = steady().url(f"{uuid4().hex}:")
    with interlock.connect(url) as holder, interlock.connect(url) as client:
        lease = holder.lock("x").acquire()
        got: list[float] = []

        def wait() -> None:
            with client.lock("x"):
                got.append(time.monotonic())

        waiter = threading.Thread(target=wait)
        waiter.start()
        time.sleep(2.5)
        before, began = scripts(), time.monotonic()
        time.sleep(1.5)  # long enough for the average of random pauses
        often = (scripts() - before) / (time.monotonic() - began)
        assert lease is not None
        with Lag() as lag:
            released = time.monotonic()
            lease.release()
            waiter.join()
        assert often < 30  # at first it is 60 a second
        assert got[0] - released - lag.seconds < 5 * HELD_PART + 0.25
