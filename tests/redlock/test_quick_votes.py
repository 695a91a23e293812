"""Votes by plain commands, on real servers: when they are sent, what they change, and when the script is asked instead."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from uuid import uuid4

import pytest

import interlock
from interlock._core.drive import drive
from interlock.backends.redis.wire.resp import ProtocolError
from interlock.backends.redlock.algorithm import membership
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.wire.packing import Packing
from interlock.backends.redlock.wire.quick_votes import QuickVote, quick_reply
from interlock.backends.redlock.wire.requests import Vote
from interlock.errors import AcquireTimeout
from interlock.model import Busy, Claim, Granted
from interlock.testing.lag import at_most
from tests.patience import PATIENCE
from tests.redis.server import Server
from tests.redlock.colours import COLOURS, answered, holders, opened, run, until
from tests.redlock.servers import Servers, quorum, say, steady

IN_2000, IN_2026 = 950_000_000_000_000, 1_794_000_000_000_000  # us


def claim(name: str = "x", ttl: float = 30.0, note: str = "") -> Claim:
    return Claim(name, uuid4().hex, ttl, note=note)


def scripts(servers: Servers) -> list[int]:
    """How many scripts clients have called on each server."""
    found: list[int] = []
    for server in servers.all:
        lines = say(server, "INFO", "commandstats").decode().splitlines()
        told = [line.partition(":calls=")[2] for line in lines if line.startswith("cmdstat_eval")]
        found.append(sum(int(rest.split(",")[0]) for rest in told))
    return found


async def pair(store: RedlockStore, wanted: Claim) -> int:
    granted = await store.claim(wanted)
    assert isinstance(granted, Granted), granted
    assert await store.release(wanted.resource, wanted.id)
    return granted.token


@contextmanager
def expected(servers: Servers, *, pairs: int, votes_by_script: int) -> Iterator[None]:
    """So many pairs are made inside the block; each release is a script, and so are so many votes."""
    before, until = scripts(servers), time.monotonic() + PATIENCE
    yield
    meant = [count + pairs + votes_by_script for count in before]
    while any(count < least for count, least in zip(scripts(servers), meant, strict=True)):
        assert time.monotonic() < until, "some node never got what nobody waited for"
    assert scripts(servers) == meant


@contextmanager
def an_hour_ahead(url: str) -> Iterator[RedlockStore]:
    """A client whose clock is an hour ahead."""
    ahead = opened(url)
    wall = ahead._quorum.wall
    ahead._quorum.wall = lambda: wall() + 3_600_000_000
    yield ahead
    drive(ahead.close())


async def settled(store: RedlockStore, name: str = "x", ttl: float = 30.0) -> int:
    """Lock until the next vote is quick on all nodes, and wait until all have answered; the last token."""
    tokens: list[int] = []

    async def quick() -> bool:
        tokens.append(await pair(store, claim(name, ttl)))
        await answered(store)
        return None not in (
            store._quorum.members.quick_seats(claim(name, ttl), store._quorum.now()) or [None]
        )

    await until(store, quick)
    return tokens[-1]


@COLOURS
def test_a_name_that_was_locked_a_moment_ago_is_voted_for_without_the_script(colour: str) -> None:
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            tokens = [await settled(store)]
            with expected(servers, pairs=10, votes_by_script=0):
                tokens += [await pair(store, claim()) for _ in range(10)]
            assert tokens == sorted(set(tokens))
            with expected(servers, pairs=3, votes_by_script=3):
                for n in range(3):
                    await pair(store, claim(f"first use of {n}"))

        run(colour, servers.url(), main)
        assert [say(server, "KEYS", "*") for server in servers.all] == [[b"\x1fquorum"]] * 5


@COLOURS
def test_a_longer_ttl_and_a_note_are_voted_for_by_script(colour: str) -> None:
    with quorum(3) as servers:

        async def main(store: RedlockStore) -> None:
            await settled(store, ttl=10.0)
            with expected(servers, pairs=1, votes_by_script=0):
                await pair(store, claim(ttl=5.0))
            with expected(servers, pairs=1, votes_by_script=1):
                await pair(store, claim(ttl=10.5))
            with expected(servers, pairs=1, votes_by_script=1):
                await pair(store, claim(ttl=5.0, note="an address"))

        run(colour, servers.url(), main)


@COLOURS
def test_a_lock_that_another_client_holds_is_refused_with_its_holder(colour: str) -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"
    other = interlock.connect(servers.url(prefix))

    async def main(store: RedlockStore) -> None:
        await settled(store)
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
            for _ in range(4):
                with other.lock("y"):
                    pass
            with pytest.raises(AcquireTimeout, match=str(lease.token)):
                other.lock("x", timeout=0.05).__enter__()


@COLOURS
def test_a_node_that_lost_its_memory_does_not_vote_and_is_noticed(colour: str) -> None:
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            await settled(store)
            say(servers[1], "FLUSHALL")
            await pair(store, claim())
            await pair(store, claim())  # by script at the latest: not every node is among the first three

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
            await settled(store)
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
        tokens = [await settled(store)]
        for _ in range(5):
            tokens += [await pair(ahead, claim()), await pair(store, claim())]
        assert tokens == sorted(set(tokens))

    with an_hour_ahead(url) as ahead:
        run(colour, url, main)


@COLOURS
def test_the_record_says_since_when_it_stands(colour: str) -> None:
    servers, prefix = steady(), f"{uuid4().hex}:"

    async def main(store: RedlockStore) -> None:
        await settled(store)
        await store._runtime.wait(store._runtime.signal(), 0.4)
        held = claim()
        assert isinstance(await store.claim(held), Granted)
        with at_most(0.3):
            (standing,) = (await store.inspect("x")).standings
            assert standing.age < 0.3, "it counts from the last vote"
        assert await store.release("x", held.id)

    run(colour, servers.url(prefix), main)


def test_a_user_without_a_right_that_quick_votes_need_is_told_and_leaves_nothing_behind() -> None:
    with quorum(3) as servers:
        client = interlock.connect(servers.url())
        for _ in range(4):
            with client.lock("x"):
                pass
        for server in servers.all:
            say(server, "ACL", "SETUSER", "default", "-zadd")
        with pytest.raises(interlock.InterlockError, match="zadd"):
            client.lock("x").acquire(timeout=0.5)
        for server in servers.all:
            say(server, "ACL", "SETUSER", "default", "+zadd")
        assert [say(server, "EXISTS", "x") for server in servers.all] == [0, 0, 0]
        with client.lock("x"):
            pass
        client.close()


def test_names_and_ttls_that_are_remembered_are_bounded() -> None:
    members = membership.Membership(["a", "b", "c"])
    for n in range(2 * membership.MAX_NAMES):
        members.note_grant(f"name {n}", 1.0)
        members.note_not_quick(f"busy {n}", 1.0)
    assert len(members._quick_from) <= membership.MAX_NAMES
    members.note_grant("x", 1.0)
    for n in range(2 * membership.MAX_TTLS):
        assert members.quick_seats(claim(ttl=n + 1.0), 2.0) == [None] * 3
    assert len(members._quick_seats) <= membership.MAX_TTLS


def test_a_name_that_was_busy_is_voted_for_by_script_for_a_while() -> None:
    members = membership.Membership(["a", "b", "c"])
    members.note_grant("x", 1.0)
    assert members.quick_seats(claim(), 1.5) is not None
    members.note_not_quick("x", 2.0)
    members.note_grant("x", 2.1)
    assert members.quick_seats(claim(), 2.5) is None
    members.note_grant("x", 3.1)
    assert members.quick_seats(claim(), 3.5) is not None
    assert members.quick_seats(claim(), 3.1 + membership.FRESH) is None, (
        "the nodes may have forgotten its number"
    )


# ---- what attacks found ---------------------------------------------------------------


def test_a_clock_before_2001_has_a_digit_less_and_is_asked_by_script() -> None:
    """The sizes are part of the request: one digit less shifted all replies on that connection."""
    members, now, wanted = membership.Membership(["a", "b", "c"]), 100.0, claim()
    for node, (clock, seated) in enumerate(((IN_2000, IN_2000), (IN_2026, IN_2000), (IN_2026, IN_2026))):
        members.counts(node, clock, now, now + 0.001)
        members.accepted(node, Vote(wanted, 7), b"%d :%d" % (clock, seated))
    members.note_grant("x", now)
    assert [len(clock) for clock in members.clock_digits(now)] == [0, 16, 16]
    seats = members.quick_seats(wanted, now)
    assert seats is not None
    assert [seat is not None for seat in seats] == [False, False, True]
    vote = Packing("").pack(Vote(wanted, 7, seats=seats, quick=True, clocks=members.clock_digits(now)))
    assert isinstance(vote, QuickVote)
    assert [bool(vote.to(node, (b"", b"", b"", b"r" * 40))) for node in range(3)] == [False, False, True]


def test_replies_that_an_interrupt_has_cut_end_the_connection_and_raise_nothing_else() -> None:
    for parts, clock in ([], [b"1", b"2"]), ([b"OK", 0], [b"1", b"2"]), ([b"OK", 0, 1], 1):
        with pytest.raises(ProtocolError, match="incomplete"):
            quick_reply([*parts], clock)


@COLOURS
def test_a_node_that_hung_does_not_make_later_records_say_a_wrong_age(colour: str) -> None:
    with quorum(5) as servers:

        async def main(store: RedlockStore) -> None:
            await settled(store)
            with servers[0].frozen(), servers[1].frozen():
                await pair(store, claim())
                await store._runtime.wait(store._runtime.signal(), 1.5)

            async def all_back() -> bool:
                await pair(store, claim())
                return not store._quorum.members.away

            await until(store, all_back)
            held = claim()
            assert isinstance(await store.claim(held), Granted)
            for server in servers.all:
                record = await until(store, partial(_record, server))
                seconds, micros = say(server, "TIME")
                age = int(seconds) + int(micros) / 1e6 - int(record.split(b"\n")[2]) / 1e6
                assert -0.5 < age < PATIENCE, "it stands since before or after"
            assert await store.release("x", held.id)

        run(colour, servers.url(), main)


async def _record(server: Server) -> bytes:
    found: bytes | None = say(server, "GET", "x")
    return found or b""


@COLOURS
def test_a_client_whose_clock_is_behind_does_not_try_a_quick_vote_each_time(colour: str) -> None:
    """It would take three rounds instead of two."""
    url = steady().url(f"{uuid4().hex}:")

    async def main(store: RedlockStore) -> None:
        await settled(store)
        await pair(ahead, claim())
        await pair(store, claim())
        assert store._quorum.members.quick_seats(claim(), store._quorum.now()) is None

    with an_hour_ahead(url) as ahead:
        run(colour, url, main)


@COLOURS
def test_after_an_eviction_votes_are_by_script_for_a_while(colour: str) -> None:
    async def main(store: RedlockStore) -> None:
        await settled(store)
        held = claim()
        assert isinstance(await store.claim(held), Granted)
        assert await store.evict("x", None, "drill")
        await pair(store, claim())
        assert store._quorum.members.quick_seats(claim(), store._quorum.now()) is None

    run(colour, steady().url(f"{uuid4().hex}:"), main)


def test_a_user_who_could_not_release_is_not_granted_the_lock() -> None:
    with quorum(3) as servers:
        for server in servers.all:
            say(server, "ACL", "SETUSER", "default", "-exists")
        with interlock.connect(servers.url()) as client:
            with pytest.raises(interlock.StoreUnfit, match="exists"):
                client.lock("x").acquire(timeout=0.5)
        for server in servers.all:
            say(server, "ACL", "SETUSER", "default", "+exists")
        assert [say(server, "EXISTS", "x") for server in servers.all] == [0, 0, 0]


def test_a_quick_vote_does_not_refer_to_itself() -> None:
    """Each lock would leave something to the garbage collector."""
    packed = Packing("").pack(Vote(claim(), 7, seats=[b":" + b"1" * 16], quick=True, clocks=[b"1" * 16]))
    assert isinstance(packed, QuickVote)
    assert not any(one is packed for one in gc.get_referents(packed))
