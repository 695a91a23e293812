"""The nodes of a Cluster decide, before the first claim, how grants are published; and every waiter is woken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import redis.cluster

import interlock
from interlock import aio
from interlock._core.drive import drive
from interlock._runtime.tasks import Tasks
from interlock._runtime.threads import Threads
from interlock.backends.redis.cluster.open import open_cluster_url
from interlock.backends.redis.wire.keys import slot
from interlock.backends.redis.wire.resp import ErrorReply
from interlock.contrib.redis_py import Lock
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.model import Busy, Claim, Granted
from interlock.testing.lag import at_most
from interlock.testing.servers import cluster as clusters
from interlock.testing.servers.cluster import SHARDS, RedisCluster, fragile
from interlock.testing.servers.sentinel import until
from tests.patience import PATIENCE
from tests.redis.shard_channels import TOLD, calls, followed, listener, listening, subscriptions, told
from tests.redis.waiter import Waiter

Places = Callable[[RedisCluster], AbstractContextManager[Any]]


@pytest.fixture
def steady() -> RedisCluster:
    """All of its nodes have sharded channels."""
    return clusters.steady()


@pytest.fixture(scope="module")
def old() -> Iterator[RedisCluster]:
    """None of its nodes has."""
    with fragile(0, old=SHARDS) as made:
        yield made


@pytest.fixture(scope="module")
def mixed() -> Iterator[RedisCluster]:
    """In the middle of an upgrade: the first of three has none."""
    with fragile(0, old=1) as made:
        yield made


def by_url(cluster: RedisCluster) -> AbstractContextManager[Any]:
    return nullcontext(cluster.url())


def by_client(cluster: RedisCluster) -> AbstractContextManager[Any]:
    return redis.cluster.RedisCluster("127.0.0.1", cluster.masters[1].port)


def names(cluster: RedisCluster) -> list[str]:
    """One on each shard."""
    return [cluster.name_on(shard, start=uuid4().hex) for shard in range(SHARDS)]


def is_sharded(client: interlock.Client | aio.Client, name: str) -> bool:
    return bool(listener(client).subscription_of(name)[0].startswith(b"S"))


def handed_over(holder: interlock.Client, client: interlock.Client, name: str) -> None:
    """One is told by the other at once."""
    lease = holder.lock(name).acquire()
    assert lease
    waiter = Waiter(client, name)
    until(partial(told, client, name))
    _released(lease, waiter)
    assert waiter.lease
    waiter.lease.release()


def _released(lease: Any, waiter: Waiter) -> None:
    with at_most(TOLD, "nobody told it: it looked for itself"):
        lease.release()
        waiter.join(PATIENCE)
    assert waiter.lease
    assert waiter.lease.token > lease.token


async def handed_over_async(holder: interlock.Client, client: aio.Client, name: str) -> None:
    lease = await asyncio.to_thread(holder.lock(name).acquire)
    assert lease
    task = asyncio.create_task(client.lock(name, timeout=PATIENCE).acquire())
    while not (await client.inspect(name)).waiters or not listener(client).subscription_of(name)[1]:
        await asyncio.sleep(0.01)
    with at_most(TOLD, "nobody told it: it looked for itself"):
        await asyncio.to_thread(lease.release)
        entered = await task
    assert entered
    assert entered.token > lease.token
    await entered.release()


def both_faces(cluster: RedisCluster, places: Places, order: list[str]) -> list[bool]:
    """Hand over on these names in turn, through both faces; whether that was within the shard, each time."""
    within: list[bool] = []

    async def main(place: Any, holder: interlock.Client) -> None:
        async with aio.connect(place) as client:
            for name in order:
                await handed_over_async(holder, client, name)
                within.append(is_sharded(client, name))

    with places(cluster) as place:
        holder, client = (interlock.connect(place) for _ in range(2))
        for name in order:
            handed_over(holder, client, name)
            within.append(is_sharded(client, name))
        client.close()
        asyncio.run(main(place, holder))
        holder.close()
    return within


@pytest.mark.parametrize("places", [by_url, by_client])
class TestByDefault:
    def test_grants_are_told_within_their_shard_where_there_are_such_channels(
        self, steady: RedisCluster, places: Places
    ) -> None:
        plain = calls(steady, "publish")
        assert all(both_faces(steady, places, names(steady)))
        assert calls(steady, "publish") == plain, "told to all nodes"

    def test_they_are_told_to_all_nodes_where_there_are_none(self, old: RedisCluster, places: Places) -> None:
        plain = calls(old, "publish")
        assert not any(both_faces(old, places, names(old)))
        assert calls(old, "publish") - plain >= 2 * SHARDS

    @pytest.mark.parametrize("first", range(SHARDS))
    def test_in_the_middle_of_an_upgrade_everybody_is_told(
        self, mixed: RedisCluster, places: Places, first: int
    ) -> None:
        order = names(mixed)
        order = order[first:] + order[:first]
        within = both_faces(mixed, places, order)
        at = order.index(next(name for name in order if mixed.shard(name) == 0))
        assert within == 2 * [number < at for number in range(SHARDS)], "a node that cannot ends it for all"


class TestANodeIsAsked:
    def test_once_before_the_first_claim_there(self, steady: RedisCluster) -> None:
        client = interlock.connect(steady.url(f"{uuid4().hex}:"))
        asked = calls(steady, "spublish")
        client.inspect("x")
        assert calls(steady, "spublish") == asked, "who claims nothing need not know"
        for number in range(30):
            with client.lock(f"n{number}"), client.semaphore(f"n{number}s", 2):
                pass
        assert calls(steady, "spublish") - asked == SHARDS
        client.close()

    def test_never_if_the_user_has_decided(self, steady: RedisCluster) -> None:
        asked = calls(steady, "spublish")
        with interlock.connect(steady.url(f"{uuid4().hex}:", notices="plain")) as client, client.lock("x"):
            assert not is_sharded(client, "x")
        assert calls(steady, "spublish") == asked

    @pytest.mark.parametrize(
        "says", ["BUSY Redis is busy running a script", "CLUSTERDOWN Hash slot not served"]
    )
    def test_again_if_it_had_something_else_to_say(self, steady: RedisCluster, says: str) -> None:
        store: Any = open_cluster_url(urlsplit(steady.url(f"{uuid4().hex}:")), Threads(), asynchronous=False)
        ask, claim = store._transport.ask, Claim("x", uuid4().hex, 5.0)

        async def refuse(*args: Any) -> Any:
            return ErrorReply(says)

        store._transport.ask = refuse
        with pytest.raises(StoreUnavailable):
            drive(store.claim(claim))
        store._transport.ask = ask
        assert isinstance(drive(store.claim(claim)), Granted)
        assert store._listener.subscription_of("x")[0].startswith(b"S")
        drive(store.release("x", claim.id))
        drive(store.close())

    def test_while_its_slot_is_on_the_move_it_answers_for_itself(self, mixed: RedisCluster) -> None:
        name = mixed.name_on(0, start=uuid4().hex)
        client = interlock.connect(mixed.url())
        with mixed.moving(slot(name.encode()), mixed.masters[0], mixed.masters[1]):
            with pytest.raises(StoreUnavailable):
                client.lock(name).acquire(timeout=0.3)
            assert not is_sharded(client, name), "the other node's word was taken for its own"
        with mixed.moving(slot(name.encode()), mixed.masters[1], mixed.masters[0]):
            pass
        client.close()

    def test_by_whichever_face_of_a_store_claims_first(self, mixed: RedisCluster) -> None:
        one, *others = names(mixed)

        async def main() -> None:
            store = open_cluster_url(urlsplit(mixed.url()), Tasks(), asynchronous=True)
            twin: Any = store.blocking()
            claim = Claim(one, uuid4().hex, 5.0)
            assert isinstance(await asyncio.to_thread(lambda: drive(twin.claim(claim))), Granted)
            for name in (one, *others):
                assert store._listener.subscription_of(name) == twin._listener.subscription_of(name)
                assert not store._listener.subscription_of(name)[0].startswith(b"S")
            await store.release(one, claim.id)
            await store.close()

        asyncio.run(main())


class TestWhoMayNot:
    def test_without_the_channels_a_user_hears_of_grants_as_ever(self, steady: RedisCluster) -> None:
        for node in steady.nodes.values():
            allowed = ("~*", "&interlock:*", "+@all")
            steady.ask(node, "ACL", "SETUSER", "narrow", "reset", "on", ">pw", *allowed)
        url = steady.url(f"{uuid4().hex}:").replace("://", "://narrow:pw@", 1)
        holder, client = (interlock.connect(url) for _ in range(2))
        handed_over(holder, client, "x")
        assert not is_sharded(client, "x")
        holder.close()
        client.close()

    def test_whoever_wants_them_is_told_of_the_first_node_that_has_none(self, mixed: RedisCluster) -> None:
        bad, good, _ = names(mixed)
        with interlock.connect(mixed.url(notices="sharded")) as client:
            with client.lock(good):
                assert is_sharded(client, good)
            with pytest.raises(StoreUnfit, match="has no sharded channels"):
                client.lock(bad).acquire(timeout=1)
            assert not client.inspect(bad).standings
            with client.lock(good):
                assert is_sharded(client, good)


class TestNobodyIsLeftUntold:
    def test_who_waits_within_a_shard_is_told_there_after_another_turned_out_to_be_old(
        self, mixed: RedisCluster
    ) -> None:
        bad, good, other = names(mixed)
        holder, client = (interlock.connect(mixed.url(), ttl=60) for _ in range(2))
        lease = holder.lock(good).acquire()
        waiter = Waiter(client, good)
        until(partial(told, client, good))
        for name in (bad, other):
            handed_over(holder, client, name)
            assert not is_sharded(client, name)
        assert is_sharded(client, good), "its claim stands with the channel it had"
        assert len(subscriptions(client)) == sum(listening(mixed)) == 1
        _released(lease, waiter)
        assert waiter.lease
        waiter.lease.release()
        handed_over(holder, client, good)
        holder.close()
        client.close()

    def test_who_waits_on_a_slot_that_moves_to_an_old_node_looks_for_itself(
        self, mixed: RedisCluster
    ) -> None:
        _, name, _ = names(mixed)
        source, target, number = mixed.masters[1], mixed.masters[0], slot(name.encode())
        holder, client = (interlock.connect(mixed.url(), ttl=60) for _ in range(2))
        lease = holder.lock(name).acquire()
        waiter = Waiter(client, name)
        until(partial(told, client, name))
        with mixed.moving(number, source, target):
            pass
        until(lambda: not sum(listening(mixed)))
        _released(lease, waiter)
        assert waiter.lease
        waiter.lease.release()
        with mixed.moving(number, target, source):
            pass
        holder.close()
        client.close()

    def test_all_who_wait_look_again_when_the_plain_subscription_is_lost(self, old: RedisCluster) -> None:
        two = names(old)[:2]
        holder, client = (interlock.connect(old.url(), ttl=60) for _ in range(2))
        leases = [holder.lock(name).acquire() for name in two]
        waiters = [Waiter(client, name) for name in two]  # one alone would read it, and find out
        until(lambda: all(told(client, name) for name in two))
        assert listener(client).reader is not None, "who waits may read it as any plain subscription"
        was = listener(client).subscription_of(two[0])[1]
        for node in old.masters:
            old.ask(node, "CLIENT", "KILL", "TYPE", "pubsub")
        followed(lambda: listener(client).subscription_of(two[0])[1] > was)
        for lease, waiter in zip(leases, waiters, strict=True):
            _released(lease, waiter)
        holder.close()
        client.close()

    def test_a_plain_message_brings_the_token(self, old: RedisCluster) -> None:
        name = names(old)[0]
        holder, client = (interlock.connect(old.url(), ttl=60) for _ in range(2))
        store: Any = client._core.store
        looked, claim = list[Any](), store.claim

        def noted(*args: Any) -> Any:
            looked.append(args)
            return claim(*args)

        store.claim = noted
        for _ in range(5):  # whoever has just begun to listen may still be about to look, once
            lease = holder.lock(name).acquire()
            waiter = Waiter(client, name)
            until(partial(told, client, name))
            looked.clear()
            _released(lease, waiter)
            waiter.lease.release()  # type: ignore[union-attr]
            if not looked:
                break
        assert not looked, "it asked again for what it was told"
        holder.close()
        client.close()

    def test_the_connection_for_plain_messages_ends_with_the_client(self, old: RedisCluster) -> None:
        holder, client = (interlock.connect(old.url()) for _ in range(2))
        handed_over(holder, client, names(old)[0])
        assert not listener(client).registers.topics, "it goes on for nobody"
        thread = listener(client).registers._thread
        assert thread.is_alive()
        client.close()
        assert not thread.is_alive()
        holder.close()

    def test_what_two_learn_of_a_node_at_once_is_plain_for_both(self, old: RedisCluster) -> None:
        name = names(old)[0]
        store: Any = open_cluster_url(urlsplit(old.url()), Threads(), asynchronous=False)
        store._listener.set_support(name, able=False)
        store._listener.set_support(name, able=True)  # asked before, and heard late
        assert store._listener.channel_known(name)
        assert not store._listener.subscription_of(name)[0].startswith(b"S"), (
            "the first has made its claim by now"
        )
        drive(store.close())

    def test_who_began_to_listen_before_it_was_plain_gets_the_subscription(self, old: RedisCluster) -> None:
        name = names(old)[0]
        store: Any = open_cluster_url(urlsplit(old.url()), Threads(), asynchronous=False)
        heard, signal = store._listener, threading.Event()
        heard.listen(signal, b"id")
        heard.set_support(name, able=False)
        assert not heard.subscribed(heard.subscription_of(name)[0], signal)
        assert signal.wait(PATIENCE)
        heard.forget(signal, b"id")
        drive(store.close())


class TestAScriptThatCannotPublish:
    """On an old node, for somebody who waits there with a sharded channel all the same."""

    @pytest.fixture
    def waiting(self, old: RedisCluster) -> Iterator[tuple[str, Any, Claim]]:
        name = names(old)[0]
        store: Any = open_cluster_url(urlsplit(old.url()), Threads(), asynchronous=False)
        drive(store.inspect(name))  # which finds out where it is
        store._listener.set_support(name, able=True)
        yield name, store, Claim(name, uuid4().hex, 30.0)
        drive(store.close())

    def test_does_all_else(self, old: RedisCluster, waiting: tuple[str, Any, Claim]) -> None:
        name, store, claim = waiting
        with interlock.connect(old.url()) as holder:
            lease: Any = holder.lock(name).acquire()
            assert isinstance(drive(store.claim(claim)), Busy)
            lease.release()
            assert drive(store.claim(claim)).token > lease.token
            held = drive(store.inspect(name)).standings
            assert [standing.id for standing in held] == [claim.id]
            holder.evict(name, reason="test")
            assert not drive(store.inspect(name)).standings

    def test_nor_does_the_drop_in_fail(self, old: RedisCluster, waiting: tuple[str, Any, Claim]) -> None:
        name, store, claim = waiting
        with redis.cluster.RedisCluster("127.0.0.1", old.masters[0].port) as theirs:
            lock: Any = theirs.lock(name, timeout=30, lock_class=Lock)
            assert lock.acquire()
            assert isinstance(drive(store.claim(claim)), Busy)
            assert lock.extend(1, replace_ttl=True)
            until(lambda: isinstance(drive(store.claim(claim)), Granted))
