"""However many claims wait or share, one step costs the server the same, and no script blocks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from interlock import aio
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.redis import RedisStore, open_url
from interlock.model import EVERYTHING, Busy, Claim, Granted
from interlock.testing.lag import at_most
from interlock.testing.servers.redis import Server, running

SLICE = 200  # readers that one script lets in, at most


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as made:
        yield made


@pytest.fixture
def store(server: Server) -> Iterator[RedisStore]:
    with redis.Redis(port=server.port) as admin:
        admin.flushall()
    store = open_url(urlsplit(server.url()), Threads(), asynchronous=False)
    yield store
    drive(store.close())


def commands(server: Server, act: Callable[[], object]) -> int:
    """How many commands the server runs for this."""
    with redis.Redis(port=server.port) as admin:
        admin.config_resetstat()
        act()
        stats: Any = admin.info("commandstats")
    return sum(
        one["calls"]
        for name, one in stats.items()
        if name not in ("cmdstat_config|resetstat", "cmdstat_info")
    )


def crowd(store: RedisStore, first: int, count: int, permits: int = 1, capacity: int = 1) -> None:
    for number in range(first, first + count):
        drive(store.claim(Claim("x", f"{number}", 30.0, permits, capacity)))


def test_a_hand_over_costs_the_same_with_few_waiters_and_with_many(server: Server, store: RedisStore) -> None:
    others = open_url(urlsplit(server.url()), Threads(), asynchronous=False)
    crowd(store, 0, 9)

    def hand_over(number: int, new: int) -> Callable[[], None]:
        def act() -> None:
            assert drive(others.release("x", f"{number}"))
            assert isinstance(drive(store.claim(Claim("x", f"{new}", 30.0))), Busy)

        return act

    hand_over(0, 9)()
    few = commands(server, hand_over(1, 10))
    crowd(store, 11, 1000)
    many = commands(server, hand_over(2, 2000))
    assert max(few, many) <= 19  # two scripts, what they run, and now and then a look at the key's expiry
    drive(others.close())


@pytest.mark.parametrize("capacity", [1, EVERYTHING])
def test_a_look_at_the_front_costs_the_same_however_many_there_are(
    server: Server, store: RedisStore, capacity: int
) -> None:
    crowd(store, 0, 20, 1, capacity)
    drive(store.claim(Claim("x", "writer", 30.0, capacity, capacity)))

    def look() -> None:
        queue = drive(store.inspect("x", limit=3))
        assert [standing.id for standing in queue.standings] == ["0", "1", "2"]

    look()
    few = commands(server, look)
    crowd(store, 100, 600, 1, capacity)
    assert commands(server, look) == few


def test_those_beyond_the_limit_are_not_shown_and_the_capacity_is(store: RedisStore) -> None:
    crowd(store, 0, 5, 1, 3)
    assert [s.admitted for s in drive(store.inspect("x", limit=4)).standings] == [True, True, True, False]
    assert drive(store.inspect("x", limit=0)).standings == ()
    assert drive(store.inspect("x", limit=1)).capacity == 3


def test_no_script_lets_more_than_a_slice_of_readers_in(store: RedisStore) -> None:
    drive(store.claim(Claim("x", "writer", 30.0, EVERYTHING, EVERYTHING)))
    crowd(store, 0, 3 * SLICE - 50, 1, EVERYTHING)
    inside: list[int] = []
    drive(store.release("x", "writer"))
    while True:
        # `inspect` lets a slice in, too, as every script does that looks at the queue.
        inside.append(len(drive(store.inspect("x")).holders))
        if inside[-1] == 3 * SLICE - 50:
            break
        assert isinstance(drive(store.claim(Claim("x", f"{inside[-1]}", 30.0, 1, EVERYTHING))), Granted)
    assert inside[0] == 2 * SLICE
    assert all(later - before <= 2 * SLICE for before, later in pairwise(inside))


async def quiet(server: Server) -> None:
    """Nobody has asked for a while."""
    with redis.Redis(port=server.port) as admin:
        before = -1
        while True:
            stats: Any = admin.info("commandstats")
            now = stats["cmdstat_evalsha"]["calls"]
            if now == before:
                return
            before = now
            await asyncio.sleep(0.3)


def test_a_writer_that_leaves_lets_a_thousand_readers_in(server: Server) -> None:
    async def main() -> None:
        async with (
            aio.connect(server.url("thousand:")) as client,
            aio.connect(server.url("thousand:")) as other,
        ):
            inside, most = 0, 0
            all_in = asyncio.Event()

            async def read(reader: aio.Client) -> None:
                nonlocal inside, most
                async with reader.rwlock("x").read():
                    inside += 1
                    most = max(most, inside)
                    if inside == 1000:
                        all_in.set()
                    await all_in.wait()

            async with client.rwlock("x").write():
                readers = [asyncio.create_task(read(one)) for one in (client, other) for _ in range(500)]
                while len((await client.inspect("x")).waiters) < 1000:
                    await asyncio.sleep(0.02)
                await quiet(server)  # each has looked again after it began to listen, and sleeps
            with at_most(5, "each slice waited until somebody looked by itself"):
                await asyncio.wait_for(all_in.wait(), 60)
            await asyncio.gather(*readers)

    asyncio.run(main())


def test_a_thousand_readers_are_evicted_slice_by_slice_and_those_who_come_in_are_not(
    server: Server, store: RedisStore
) -> None:
    crowd(store, 0, 450, 1, 450)
    crowd(store, 1000, 30, 1, 450)
    with redis.Redis(port=server.port) as admin:
        admin.config_resetstat()
        met = drive(store.evict("x", None, "a drill"))
        scripts: Any = admin.info("commandstats")
    assert [standing.id for standing in met] == [f"{number}" for number in range(450)]
    assert scripts["cmdstat_evalsha"]["calls"] >= 3
    assert [s.id for s in drive(store.inspect("x")).holders] == [f"{number}" for number in range(1000, 1030)]


def test_a_waiter_in_a_crowd_is_found_by_its_id_alone(server: Server, store: RedisStore) -> None:
    """A store that did not hear the token of its place, because the reply was lost or it is another."""
    crowd(store, 0, 2500)
    other = open_url(urlsplit(server.url()), Threads(), asynchronous=False)
    busy = drive(other.claim(Claim("x", "2100", 30.0)))
    assert isinstance(busy, Busy)
    assert busy.ahead == 2100
    assert drive(other.release("x", "2300"))
    assert isinstance(drive(other.claim(Claim("x", "2400", 30.0))), Busy)
    (met,) = drive(other.evict("x", "1500", "a drill"))
    assert met.id == "1500"
    assert len(drive(other.inspect("x")).standings) == 2498
    drive(other.close())


def test_a_busy_answer_names_the_oldest_holder(store: RedisStore) -> None:
    who = '["host",7,"main","x.py:1"]'
    for capacity in (1, 3, EVERYTHING):
        name = f"x-{capacity}"
        granted = drive(store.claim(Claim(name, "first", 30.0, 1, capacity, note="n\n1", who=who)))
        assert isinstance(granted, Granted)
        for number in range(2):
            drive(store.claim(Claim(name, f"{number}", 30.0, capacity, capacity)))
        for claim in (
            Claim(name, "new", 30.0, capacity, capacity),
            Claim(name, "unqueued", 30.0, capacity, capacity, queued=False),
            Claim(name, "0", 30.0, capacity, capacity),
        ):
            busy = drive(store.claim(claim))
            assert isinstance(busy, Busy)
            assert busy.holder is not None
            assert (busy.holder.id, busy.holder.token, busy.holder.who) == ("first", granted.token, who)
            assert busy.holder.note == "n\n1"
            assert 0 <= busy.holder.age < 20
            assert busy.holder.admitted


def test_a_busy_answer_says_that_another_program_holds_and_nothing_else(
    server: Server, store: RedisStore
) -> None:
    with redis.Redis(port=server.port) as admin:
        admin.set("x", "secret", px=20_000)
    for claim in (Claim("x", "new", 30.0), Claim("x", "other", 30.0, queued=False), Claim("x", "new", 30.0)):
        busy = drive(store.claim(claim))
        assert isinstance(busy, Busy)
        assert busy.holder is not None
        assert (busy.holder.foreign, busy.holder.id, busy.holder.who) == (True, "", "another program")
        assert busy.retry_after <= 0.05 or busy.ahead > 1
