"""On a Cluster each request finds its node, also while slots move, and one sentence says what is wrong."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis.asyncio.cluster
import redis.cluster

import interlock
from interlock import aio
from interlock._core.drive import drive
from interlock.backends.redis.cluster.router import ClusterRouter
from interlock.backends.redis.errors import COMMANDS
from interlock.backends.redis.wire.keys import slot
from interlock.contrib.redis_py import AsyncLock, Lock
from interlock.errors import InvalidURL, StoreUnavailable, StoreUnfit
from interlock.model import Claim, Granted, Renewal, Renewed
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers import cluster as clusters
from interlock.testing.servers.cluster import SHARDS, RedisCluster, fragile
from interlock.testing.servers.redis import Server
from interlock.testing.servers.sentinel import until
from interlock.testing.servers.tls import certificate
from tests.patience import PATIENCE
from tests.redis.clients import held_and_shown, held_and_shown_async
from tests.redis.slot_move import Move
from tests.redis.waiter import Waiter


@pytest.fixture
def steady() -> RedisCluster:
    """A Cluster that no test breaks, nor moves slots of."""
    return clusters.steady()


def waited_for(client: interlock.Client, name: str) -> bool:
    return bool(client.inspect(name).waiters)


class TestClients:
    def test_a_url_with_nodes_that_are_gone_leads_to_the_cluster(self, steady: RedisCluster) -> None:
        url = steady.url(f"{uuid4().hex}:").replace("://", "://127.0.0.1:1,127.0.0.1:2,", 1)
        held_and_shown(interlock.connect(url))
        asyncio.run(held_and_shown_async(aio.connect(url)))

    @pytest.mark.parametrize("decoded", [False, True])
    def test_a_blocking_client_of_redis_py_serves_both_faces(
        self, steady: RedisCluster, decoded: bool
    ) -> None:
        with redis.cluster.RedisCluster(
            "127.0.0.1", steady.masters[1].port, decode_responses=decoded
        ) as theirs:
            held_and_shown(interlock.connect(theirs))
            asyncio.run(held_and_shown_async(aio.connect(theirs)))
            assert theirs.ping()

    @pytest.mark.parametrize("decoded", [False, True])
    def test_an_asyncio_client_of_redis_py_serves_both_faces(
        self, steady: RedisCluster, decoded: bool
    ) -> None:
        async def main() -> None:
            port = steady.masters[2].port
            theirs = redis.asyncio.cluster.RedisCluster("127.0.0.1", port, decode_responses=decoded)
            await held_and_shown_async(aio.connect(theirs))
            held_and_shown(interlock.connect(theirs))
            await theirs.aclose()

        asyncio.run(main())

    def test_one_subscription_to_plain_messages_hears_of_grants_on_all_shards(
        self, steady: RedisCluster
    ) -> None:
        prefix = f"{uuid4().hex}:"
        holder, client = (interlock.connect(steady.url(prefix, notices="plain")) for _ in range(2))
        names = [steady.name_on(shard, prefix) for shard in range(SHARDS)]
        leases = [holder.lock(name).acquire() for name in names]
        waiters = [Waiter(client, name) for name in names]
        for name in names:
            until(partial(waited_for, holder, name))
        channels = {
            node.port: steady.ask(node, "PUBSUB CHANNELS", "interlock:*") for node in steady.nodes.values()
        }
        assert len([port for port, found in channels.items() if found]) <= 2, "more than one for each client"
        for lease, waiter in zip(leases, waiters, strict=True):
            assert lease
            with at_most(1, "nobody told it: it looked for itself"):
                lease.release()
                waiter.join(PATIENCE)
                assert waiter.lease
                assert waiter.lease.token > lease.token
            waiter.lease.release()
        holder.close()
        client.close()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_forked_child_gets_connections_of_its_own(self, steady: RedisCluster) -> None:
        client, name = interlock.connect(steady.url(f"{uuid4().hex}:")), "x"
        with client.lock(name):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    ours: Any = client.lock(name).acquire(blocking=False)
                    with client.lock("child", timeout=PATIENCE), client.lock("another", timeout=PATIENCE):
                        code = 0 if not ours and not client.lock(name).owned() else 2
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert len(client.inspect(name).holders) == 1
        client.close()

    @pytest.mark.parametrize("replicas", ["1", "majority", "all"])
    def test_grants_and_hand_overs_wait_for_the_replicas_of_the_shard(
        self, steady: RedisCluster, replicas: str
    ) -> None:
        url = steady.url(f"{uuid4().hex}:", replicas=replicas)
        held_and_shown(interlock.connect(url))
        asyncio.run(held_and_shown_async(aio.connect(url)))

    def test_a_grant_that_too_few_replicas_confirm_is_taken_back(self, steady: RedisCluster) -> None:
        client = interlock.connect(steady.url(f"{uuid4().hex}:", replicas="2"))
        with pytest.raises(StoreUnavailable, match="1 of the 2 replicas wanted confirmed"):
            client.lock("x").acquire(timeout=1)
        assert client.inspect("x").standings == ()
        client.close()


class TestTheDropIn:
    """`interlock.contrib.redis_py` on a client for a Cluster."""

    def test_it_stands_in_for_the_lock_of_redis_py(self, steady: RedisCluster) -> None:
        with redis.cluster.RedisCluster("127.0.0.1", steady.masters[0].port) as theirs:
            for name in {steady.name_on(shard, start=uuid4().hex) for shard in range(SHARDS)}:
                ours: Any = theirs.lock(name, timeout=5, lock_class=Lock)
                plain: Any = theirs.lock(name, timeout=5)
                assert ours.acquire()
                assert ours.lease.token > 0
                ours.extend(3)
                ours.reacquire()
                assert not plain.acquire(blocking=False)
                ours.release()
                assert plain.acquire(blocking=False)
                assert not ours.acquire(blocking=False)
                plain.release()

    def test_its_asyncio_twin_does_too(self, steady: RedisCluster) -> None:
        async def main() -> None:
            theirs = redis.asyncio.cluster.RedisCluster("127.0.0.1", steady.masters[0].port)
            for name in {steady.name_on(shard, start=uuid4().hex) for shard in range(SHARDS)}:
                ours: Any = theirs.lock(name, timeout=5, lock_class=AsyncLock)
                async with ours:
                    assert await ours.owned()
                    await ours.extend(3)
                    plain: Any = theirs.lock(name, timeout=5)
                    assert not await plain.acquire(blocking=False)
            await theirs.aclose()

        asyncio.run(main())


class TestRefusals:
    @pytest.mark.parametrize(
        ("url", "hint"),
        [
            ("redis+cluster://localhost:7000/3", "no databases but 0"),
            ("redis+cluster://localhost:7000#x", "write redis\\+cluster://"),
            ("redis+cluster://localhost:99999,b", "port must be"),
            ("redis+cluster://localhost?colour=red", "unknown option 'colour'"),
            ("redis+cluster://localhost?replicas=some", "replicas=some"),
            ("redis://localhost?replicas=all", "redis\\+cluster://"),
        ],
    )
    def test_a_wrong_url_is_refused_with_a_hint(self, url: str, hint: str) -> None:
        with pytest.raises(InvalidURL, match=hint):
            interlock.connect(url)

    def test_a_server_that_is_no_node_says_so(self, server: Server) -> None:
        client = interlock.connect(f"redis+cluster://127.0.0.1:{server.port}")
        with pytest.raises(StoreUnfit, match="is no node of a Redis Cluster; use redis://"):
            client.lock("x").acquire(timeout=1)
        client.close()

    def test_a_node_that_is_taken_for_a_server_says_so(self, steady: RedisCluster) -> None:
        client = interlock.connect(steady.masters[0].url())
        with pytest.raises(StoreUnfit, match="belongs to a Redis Cluster; use redis\\+cluster://"):
            client.lock(steady.name_on(1)).acquire(timeout=1)
        client.close()

    def test_nobody_there_is_said_in_time(self) -> None:
        client = interlock.connect("redis+cluster://locker:secret@127.0.0.1:1,127.0.0.1:2")
        with at_most(2):
            with pytest.raises(StoreUnavailable, match="no node tells who has which slot") as refusal:
                client.lock("x").acquire(timeout=0.3)
        assert "secret" not in repr(client) + repr(client._core.store) + str(refusal.value)
        client.close()

    def test_a_slot_that_nobody_has_is_said_in_time(self) -> None:
        with clusters.alone("--cluster-require-full-coverage", "no", last=99) as alone:
            client = interlock.connect(f"redis+cluster://127.0.0.1:{alone.port}")
            name = next(f"n{n}" for n in range(10**6) if slot(f"n{n}".encode()) > 99)
            with pytest.raises(StoreUnavailable, match="nobody tells who has slot"):
                client.lock(name).acquire(timeout=0.3)
            served = next(f"n{n}" for n in range(10**6) if slot(f"n{n}".encode()) <= 99)
            with client.lock(served):
                pass
            client.close()

    def test_the_permissions_that_the_page_names_are_enough(self, steady: RedisCluster) -> None:
        words = f"{COMMANDS} info cluster|slots cluster|nodes cluster|info asking"
        keys, channels = ("~locks:*", "~{locks:*", "~{????}?=locks:*"), ("&interlock:*", "&locks:*")
        for node in steady.nodes.values():
            allowed = [f"+{word}" for word in words.split()]
            steady.ask(node, "ACL", "SETUSER", "locker", "on", ">pw", *keys, *channels, *allowed)
        url = steady.url("locks:").replace("://", "://locker:pw@", 1)
        held_and_shown(interlock.connect(url))
        client = interlock.connect(url)
        client.event("set").set()
        for name in [*(steady.name_on(shard, "locks:") for shard in range(SHARDS)), "a}b", "c{}d", "e}{f"]:
            with client.lock(name), client.semaphore("s" + name, 2):
                assert name in client.scan()
        client.close()

    def test_a_password_is_for_every_node(self) -> None:
        with fragile(0, "secret") as guarded:
            right = guarded.url().replace("://", "://:secret@", 1)
            held_and_shown(interlock.connect(right))
            asyncio.run(held_and_shown_async(aio.connect(right)))
            with redis.cluster.RedisCluster(
                "127.0.0.1", guarded.masters[0].port, password="secret"
            ) as theirs:
                held_and_shown(interlock.connect(theirs))
                asyncio.run(held_and_shown_async(aio.connect(theirs)))
            stranger = interlock.connect(guarded.url())
            with pytest.raises(StoreUnfit, match="wants a password"):
                stranger.lock("x").acquire(timeout=0.5)
            stranger.close()


def test_tls_works_on_both_faces(tmp_path: Path) -> None:
    shown = certificate(tmp_path, "shown")
    with clusters.secure(shown) as alone:
        url = f"rediss+cluster://127.0.0.1:{alone.secure}?ssl_ca_certs={shown}"
        held_and_shown(interlock.connect(url))
        asyncio.run(held_and_shown_async(aio.connect(url)))
        theirs = redis.cluster.RedisCluster("127.0.0.1", alone.secure, ssl=True, ssl_ca_certs=str(shown))
        held_and_shown(interlock.connect(theirs))
        asyncio.run(held_and_shown_async(aio.connect(theirs)))
        theirs.close()
        stranger = interlock.connect(f"rediss+cluster://127.0.0.1:{alone.secure}")
        with pytest.raises(StoreUnavailable, match="certificate"):
            stranger.lock("x").acquire(timeout=0.5)
        stranger.close()


class TestManyNames:
    def test_names_of_all_shards_are_listed_in_one_order(self, steady: RedisCluster) -> None:
        client = interlock.connect(steady.url(prefix := f"{uuid4().hex}:"))
        names = sorted(f"n{number}" for number in range(40))
        assert {steady.shard(prefix + name) for name in names} == set(range(SHARDS))
        leases = [client.lock(name).acquire() for name in reversed(names)]
        assert list(client.scan()) == names
        assert list(client.scan("n1")) == [name for name in names if name.startswith("n1")]
        for lease in leases:
            assert lease
            lease.release()
        client.close()

    def test_idle_names_leave_no_more_than_a_counter_for_their_slot(self, steady: RedisCluster) -> None:
        client = interlock.connect(steady.url(prefix := f"{uuid4().hex}:"))
        names = [f"{{{n % 7}}}{n}" for n in range(100)]  # in seven slots
        for name in names:
            with client.lock(name), client.semaphore(name + "s", 2):
                client.register(name).compare_and_set(0, "value")
                client.register(name).update(lambda _: None)
        left = [key for master in steady.masters for key in steady.ask(master, "KEYS", f"*{prefix}*")]
        counters = [key for key in left if "\x1ftoken" in key]
        others = {key for key in left if "\x1fregister" not in key} - set(counters)
        assert not others
        registers = {slot(f"{prefix}\x1fregister\x1f{name}".encode()) for name in names}
        assert len(counters) <= 7 + len(registers)
        client.close()

    def test_renewals_go_to_each_node_together_and_are_answered_in_order(
        self, steady: RedisCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = interlock.connect(steady.url(f"{uuid4().hex}:"))
        store = client._core.store
        claims = [Claim(f"r{n}", f"id{n}", 30.0) for n in range(250)]
        for claim in claims[::2]:
            assert isinstance(drive(store.claim(claim)), Granted)
        asked: list[Any] = []
        send = ClusterRouter.ask_at

        def counted(shards: ClusterRouter, place: Any, *rest: Any, **options: Any) -> Any:
            asked.append(place)
            return send(shards, place, *rest, **options)

        monkeypatch.setattr(ClusterRouter, "ask_at", counted)
        answers = drive(store.renew([Renewal(claim.resource, claim.id, 30.0) for claim in claims], 5.0))
        assert [isinstance(answer, Renewed) for answer in answers] == [True, False] * 125
        assert len(set(asked)) == SHARDS
        assert len(asked) <= 2 * SHARDS, "once, and once more with the source of the script"
        monkeypatch.undo()
        for claim in claims[::2]:
            drive(store.release(claim.resource, claim.id))
        client.close()


@pytest.fixture(scope="class")
def movable() -> Iterator[RedisCluster]:
    """A Cluster whose slots may be moved."""
    with fragile(0) as made:
        yield made


@pytest.fixture
def move(movable: RedisCluster) -> Move:
    return Move(movable)


class TestMovingASlot:
    def test_a_holder_is_renewed_before_and_after_its_key_has_moved(
        self, movable: RedisCluster, move: Move
    ) -> None:
        lost: list[Any] = []
        ttl = stretched(1.0)
        client = interlock.connect(movable.url(), ttl=ttl)
        lease = client.lock(move.name, on_lost=lost.append).acquire()
        assert lease
        with movable.moving(move.number, move.source, move.target):
            end = time.monotonic() + 1.3 * ttl
            while time.monotonic() < end:  # longer than its ttl
                lease.renew()
                lease.check()
            movable.move_keys(move.number, move.source, move.target)
            end = time.monotonic() + 1.3 * ttl
            while time.monotonic() < end:
                lease.renew()
                lease.check()
        assert not lost
        assert f"\x1f{lease.token}\x1f" in str(movable.ask(move.target, "GET", move.name)), (
            "it was not signed"
        )
        assert [s.token for s in client.inspect(move.name).holders] == [lease.token]
        lease.release()
        assert movable.ask(move.target, "EXISTS", move.name) == 0
        client.close()

    def test_who_comes_and_who_waits_is_let_in_once_the_slot_has_moved(
        self, movable: RedisCluster, move: Move
    ) -> None:
        holder, client = (interlock.connect(movable.url(), ttl=20) for _ in range(2))
        lease = holder.lock(move.name).acquire()
        assert lease
        waiter = Waiter(client, move.name)
        until(lambda: holder.inspect(move.name).waiters)
        with movable.moving(move.number, move.source, move.target):
            came: list[Any] = []
            lock = holder.lock(f"{{{move.name}}}newcomer", timeout=PATIENCE)
            newcomer = threading.Thread(target=lambda: came.append(lock.acquire()))
            newcomer.start()
            with at_most(2, "a release waited for the slot"):
                with pytest.raises(StoreUnavailable, match="asked again in the background"):
                    lease.release()  # a slot on the move answers for none of its keys while some are nowhere
            assert not came, "a slot on the move grants nothing: half of a queue may be elsewhere"
        newcomer.join(PATIENCE)
        assert came[0]
        waiter.join(PATIENCE)
        assert waiter.lease
        assert waiter.lease.token > lease.token
        assert [s.token for s in client.inspect(move.name).holders] == [waiter.lease.token]
        holder.close()
        client.close()

    def test_tokens_and_versions_rise_across_the_move(self, movable: RedisCluster, move: Move) -> None:
        async def main() -> None:
            async with aio.connect(movable.url()) as client:
                async with client.lock(move.name) as before:
                    pass
                register = client.register(f"{{{move.name}}}")
                version = (await register.update(lambda _: "old")).version
                future = 2**53 // 4  # a clock that was far ahead: only the counter knows
                counters = movable.ask(move.source, "KEYS", "*token{*")
                assert counters
                for key in counters:
                    movable.ask(move.source, "SET", key, future)
                number = slot(f"\x1fregister\x1f{{{move.name}}}".encode())
                assert number == move.number
                with movable.moving(move.number, move.source, move.target):
                    write = asyncio.create_task(register.update(lambda _: "new"))
                    movable.move_keys(move.number, move.source, move.target)
                    assert (await register.read()).value == "old"
                assert (await write).version > future > version
                async with client.lock(move.name, timeout=PATIENCE) as after:
                    assert after.token > future > before.token
                for key in movable.ask(move.target, "KEYS", "*token{*"):
                    movable.ask(move.target, "DEL", key)

        asyncio.run(main())

    def test_a_map_of_before_leads_to_the_new_node_without_a_word(
        self, movable: RedisCluster, move: Move
    ) -> None:
        client = interlock.connect(movable.url())
        doubts: list[int] = []
        with client.lock(move.name):
            pass
        client._core.store.on_doubt(lambda: doubts.append(1))
        with movable.moving(move.number, move.source, move.target):
            pass
        assert client.lock(move.name).acquire(blocking=False)
        client.lock(move.name).locked()
        assert not doubts, "a slot that moves with its keys is no failover"
        client.close()

    def test_a_semaphore_that_moved_keeps_its_holders(self, movable: RedisCluster, move: Move) -> None:
        client = interlock.connect(movable.url(), ttl=20)
        leases: list[Any] = [client.semaphore(move.name, 2).acquire() for _ in range(2)]
        with movable.moving(move.number, move.source, move.target):
            pass
        assert not client.semaphore(move.name, 2).acquire(blocking=False)
        for lease in leases:
            lease.renew()
            lease.release()
        assert client.inspect(move.name).standings == ()
        client.close()

    def test_forgotten_scripts_are_no_trouble_on_the_way(self, movable: RedisCluster, move: Move) -> None:
        client = interlock.connect(movable.url(), ttl=20)
        lease = client.lock(move.name).acquire()
        assert lease
        with movable.moving(move.number, move.source, move.target):
            movable.move_keys(move.number, move.source, move.target)
            for master in movable.masters:
                movable.ask(master, "SCRIPT FLUSH")
            lease.renew()  # ASK, ASKING, NOSCRIPT, and again with the source
        lease.renew()
        lease.release()
        client.close()


def test_many_threads_and_tasks_share_one_question_for_the_map(steady: RedisCluster) -> None:
    url = steady.url(f"{uuid4().hex}:")

    def asked() -> int:
        stats = [steady.ask(node, "INFO", "commandstats") for node in steady.nodes.values()]
        return sum(facts.get("cmdstat_cluster|slots", {}).get("calls", 0) for facts in stats)

    before = asked()
    client = interlock.connect(url)
    threads = [threading.Thread(target=lambda n=n: client.lock(f"t{n}").locked()) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    client.close()

    async def main() -> None:
        async with aio.connect(url) as client:
            await asyncio.gather(*(client.lock(f"t{n}").locked() for n in range(50)))

    asyncio.run(main())
    assert asked() - before <= 4
