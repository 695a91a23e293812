"""Votes for a name that was used before, on real servers: each is one step, and one that is not granted changes nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock._core.drive import drive
from interlock.backends.redlock.algorithm.membership import Membership
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.wire.requests import Vote
from interlock.errors import AcquireTimeout
from interlock.model import Busy, Claim, Granted
from interlock.testing.lag import at_most
from interlock.testing.servers.proxy import proxies, through
from interlock.testing.servers.redis import Server
from interlock.testing.servers.redlock import Servers, quorum, say, steady
from tests import patience
from tests.patience import PATIENCE
from tests.redlock.colours import COLOURS, answered, holders, opened, run, until


def claim(name: str = "x", ttl: float = 30.0, note: str = "") -> Claim:
    return Claim(name, uuid4().hex, ttl, note=note)


async def pair(store: RedlockStore, wanted: Claim) -> int:
    granted = await store.claim(wanted)
    assert isinstance(granted, Granted), granted
    assert await store.release(wanted.resource, wanted.id)
    return granted.token


async def used(store: RedlockStore, name: str = "x") -> int:
    """Lock a name until all nodes know a number for it, and the client knows their seats; the last token."""
    token = 0
    for _ in range(3):
        token = await pair(store, claim(name))
        await answered(store)
    return token


@contextmanager
def clock_off(url: str, seconds: float) -> Iterator[RedlockStore]:
    """A client whose clock is ahead, or behind."""
    store = opened(url)
    wall = store._quorum.wall
    store._quorum.wall = lambda: wall() + int(seconds * 1e6)
    yield store
    drive(store.close())


def numbers(server: Server, prefix: str = "") -> list[int]:
    """The numbers that a node keeps, in order."""
    found = say(server, "ZRANGEBYSCORE", f"{prefix}\x1fquorum", "(0", "+inf", "WITHSCORES")
    return [int(float(score)) for score in found[1::2]]


def calls(servers: Servers, command: str) -> list[int]:
    """How often each server was asked for this command."""
    found: list[int] = []
    for server in servers.all:
        lines = say(server, "INFO", "commandstats").decode().splitlines()
        told = [line.partition(":calls=")[2] for line in lines if line.startswith(f"cmdstat_{command}:")]
        found.append(sum(int(rest.split(",")[0]) for rest in told))
    return found


@contextmanager
def expected(servers: Servers, *, pairs: int, long_ways: int) -> Iterator[None]:
    """So many pairs are made inside the block, and so many of their votes do not go the usual way."""
    votes, longer = calls(servers, "time"), calls(servers, "zmscore")
    end = time.monotonic() + PATIENCE
    yield
    while any(now - before < pairs for now, before in zip(calls(servers, "time"), votes, strict=True)):
        assert time.monotonic() < end, "some node never got what nobody waited for"
    assert calls(servers, "zmscore") == [count + long_ways for count in longer]


def test_an_eviction_and_another_grant_in_the_middle_of_a_vote_leave_one_holder() -> None:
    """Or both would hold, and the one that was evicted would have the higher token: a guard would refuse the other."""
    with quorum(3) as servers, proxies([server.port for server in servers.all]) as ways:
        slow = opened(through(ways, servers.url(node_timeout=1)))
        drive(used(slow))
        for way in ways:  # the second half of a vote, which is longer than that
            way.requests.keep(after_bytes=100)
        wanted, said = claim(), list[Any]()
        asking = threading.Thread(target=lambda: said.append(drive(slow.claim(wanted))))
        asking.start()
        patience.until(lambda: all(way.requests.kept for way in ways))
        with clock_off(servers.url(), -1.0) as behind:
            drive(behind.evict("x", None, "drill"))
            theirs = claim()
            granted = drive(behind.claim(theirs))
            assert isinstance(granted, Granted)
            for way in ways:
                way.requests.deliver()
            asking.join(PATIENCE)
            (answer,) = said
            assert isinstance(answer, Busy), f"{answer} beside {granted}"
            assert drive(behind.release("x", theirs.id))
        drive(slow.close())


@COLOURS
def test_no_look_shows_a_token_that_is_never_granted(colour: str) -> None:
    """A candidate without a note, whose clock is behind: observers of its election saw tokens come, and fall."""
    url, seen = steady().url(f"{uuid4().hex}:"), list[int]()
    observer = opened(url)

    async def main(store: RedlockStore) -> None:
        await used(store)
        token = await pair(ahead, claim())
        ask = store._quorum.transport.ask

        async def looked_at(request: Any, *rest: Any) -> list[int]:
            unanswered = await ask(request, *rest)
            if isinstance(request, Vote):
                await answered(store)
                seen.extend(one.token for one in drive(observer.inspect("x")).standings)
            return unanswered

        store._quorum.transport.ask = looked_at  # type: ignore[method-assign, assignment]
        granted = await store.claim(wanted := claim())
        assert isinstance(granted, Granted)
        assert granted.token > token
        assert set(seen) == {granted.token}
        assert await store.release("x", wanted.id)

    with clock_off(url, 3600.0) as ahead:
        run(colour, url, main)
    drive(observer.close())


@COLOURS
def test_a_waiter_does_not_raise_the_number_of_a_lock_that_is_held(colour: str) -> None:
    """Or a far client, whose ballots arrive later than those of near waiters, would get half of its grants."""
    servers, prefix = steady(), f"{uuid4().hex}:"
    holder = opened(servers.url(prefix))

    async def main(store: RedlockStore) -> None:
        await used(store)
        held = claim()
        granted = drive(holder.claim(held))
        assert isinstance(granted, Granted)
        drive(answered(holder))
        before = [numbers(server, prefix) for server in servers.all]
        for _ in range(3):
            assert isinstance(await store.claim(claim()), Busy)
            await answered(store)
        assert [numbers(server, prefix) for server in servers.all] == before
        assert drive(holder.release("x", held.id))

    run(colour, servers.url(prefix), main)
    drive(holder.close())


@COLOURS
def test_a_name_that_was_used_before_is_voted_for_in_the_usual_way(colour: str) -> None:
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            tokens = [await used(store)]
            with expected(servers, pairs=10, long_ways=0):
                for _ in range(10):
                    tokens.append(await pair(store, claim()))
                    await answered(store)
            assert tokens == sorted(set(tokens))
            with expected(servers, pairs=3, long_ways=3):
                for n in range(3):
                    await pair(store, claim(f"first use of {n}"))
                    await answered(store)

        run(colour, servers.url(), main)
        assert [say(server, "KEYS", "*") for server in servers.all] == [[b"\x1fquorum"]] * 5


@COLOURS
def test_a_longer_ttl_than_the_nodes_remember_is_noted_first(colour: str) -> None:
    """Or a node that forgets would be readmitted while the longer lease lasts."""
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            await used(store)
            for ttl in (30.0, 60.0, 60.0):
                await pair(store, claim(ttl=ttl))
                await answered(store)
                longest = [say(server, "ZSCORE", "\x1fquorum", "longest") for server in servers.all]
                assert longest == [b"-%d" % (ttl * 1000)] * 3

        run(colour, servers.url(), main)


def test_a_client_names_a_seat_only_for_a_ttl_that_the_node_remembers_there() -> None:
    members = Membership(["a", "b", "c"])
    short, longer = Vote(claim(ttl=10.0), 7), Vote(claim(ttl=20.0), 8)
    assert members.seats_for(10.0) == [None] * 3
    assert members.learn_seat(0, longer, b"1794000000000000 :1793") == b"1794000000000000"
    assert members.learn_seat(0, short, b"1794000000000000 :1793") == b"1794000000000000"
    assert members.learn_seat(1, short, b"1794000000000000 :1794") == b"1794000000000000"
    assert members.learn_seat(1, longer, b"1794000000000000") == b"1794000000000000", "it says nothing new"
    assert members.seats_for(10.0) == [b":1793", b":1794", None]
    assert members.seats_for(20.0) == [b":1793", None, None]
    members.learn_seat(0, short, b"1794000000000000 :1795")
    assert members.seats_for(20.0) == [None] * 3, "another seat remembers only what was noted in it"


@COLOURS
def test_a_lock_that_another_client_holds_is_refused_with_its_holder(colour: str) -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"
    other = interlock.connect(servers.url(prefix))

    async def main(store: RedlockStore) -> None:
        await used(store)
        with other.lock("x") as lease:
            for _ in range(3):
                refused = await store.claim(wanted := claim())
                assert isinstance(refused, Busy)
                assert refused.holder is not None
                assert refused.holder.token == lease.token
                assert not await store.release("x", wanted.id)
            assert holders(other, "x") == [lease.token]
        token = await pair(store, claim())
        assert token > lease.token

    run(colour, servers.url(prefix), main)
    other.close()


def test_who_does_not_wait_is_told_who_holds_it() -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"
    with interlock.connect(servers.url(prefix)) as one, interlock.connect(servers.url(prefix)) as other:
        for _ in range(4):
            for client in (one, other):
                with client.lock("x"):
                    pass
        with one.lock("x") as lease:
            with at_most(0.25):
                assert other.lock("x").acquire(blocking=False) is None
            with pytest.raises(AcquireTimeout, match=str(lease.token)):
                other.lock("x", timeout=0.05).__enter__()


@COLOURS
def test_a_node_that_lost_its_memory_does_not_vote_and_is_noticed(colour: str) -> None:
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            await used(store)
            say(servers[1], "FLUSHALL")

            async def noticed() -> bool:
                await pair(store, claim())
                return 1 in store._quorum.members.non_voting

            await until(store, noticed)

        run(colour, servers.url(), main)


@COLOURS
def test_two_of_five_nodes_that_lost_their_memory_do_not_let_a_second_client_in(colour: str) -> None:
    with quorum(5) as servers:
        holder = opened(servers.url())

        async def main(store: RedlockStore) -> None:
            await used(store)
            held = claim()
            assert isinstance(await holder.claim(held), Granted)
            for node in (0, 1):
                say(servers[node], "FLUSHALL")
            refused = await store.claim(claim())
            assert isinstance(refused, Busy)
            assert await holder.release("x", held.id)

        run(colour, servers.url(), main)
        drive(holder.close())


@COLOURS
def test_a_client_whose_clock_is_behind_gets_a_higher_token_all_the_same(colour: str) -> None:
    url = steady().url(f"{uuid4().hex}:")

    async def main(store: RedlockStore) -> None:
        tokens = [await used(store)]
        for _ in range(5):
            tokens += [await pair(ahead, claim()), await pair(store, claim())]
        assert tokens == sorted(set(tokens))

    with clock_off(url, 3600.0) as ahead:
        run(colour, url, main)


@COLOURS
def test_the_record_says_since_when_it_stands(colour: str) -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"

    async def main(store: RedlockStore) -> None:
        await used(store)
        await store._runtime.wait(store._runtime.signal(), 0.4)
        held = claim()
        with at_most(0.3):
            assert isinstance(await store.claim(held), Granted)
            (standing,) = (await store.inspect("x")).standings
        assert standing.age < 0.3, "it counts from the last vote"
        assert await store.release("x", held.id)

    run(colour, servers.url(prefix), main)


@pytest.mark.parametrize("right", ["zadd", "exists", "evalsha"])
def test_a_right_that_is_revoked_at_work_costs_the_next_lock_and_leaves_nothing_behind(right: str) -> None:
    """A lock that was granted all the same could be neither renewed nor released."""
    with quorum(3) as servers:
        client = interlock.connect(servers.url())
        for _ in range(4):
            with client.lock("x"):
                pass
        for server in servers.all:
            say(server, "ACL", "SETUSER", "default", f"-{right}")
        with pytest.raises(interlock.StoreUnfit, match=right):
            client.lock("x").acquire(timeout=0.5)
        for server in servers.all:
            say(server, "ACL", "SETUSER", "default", f"+{right}")
        assert [say(server, "EXISTS", "x") for server in servers.all] == [0, 0, 0]
        with client.lock("x"):
            pass
        client.close()
