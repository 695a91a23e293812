"""Sharded channels follow their slots to another node or a promoted replica, and a dead node delays no other."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock.backends.redis.wire.keys import slot
from interlock.errors import StoreUnavailable
from interlock.testing.lag import at_most
from interlock.testing.servers.cluster import SHARDS, ClusterNode, RedisCluster, fragile
from interlock.testing.servers.sentinel import until
from tests.patience import PATIENCE
from tests.redis.shard_channels import TOLD, followed, heard_at, listener, listening, subscriptions, told
from tests.redis.slot_move import Move
from tests.redis.waiter import Waiter

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def movable() -> Iterator[RedisCluster]:
    """A Cluster whose slots may be moved."""
    with fragile(0) as made:
        yield made


@pytest.fixture
def move(movable: RedisCluster) -> Move:
    return Move(movable)


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    with fragile(1, None, "--cluster-require-full-coverage", "no") as made:
        yield made


def url(cluster: RedisCluster) -> str:
    return cluster.url()


def handed_over(lease: Any, waiter: Waiter) -> None:
    """From one to the other, by a message."""
    with at_most(TOLD, "nobody told it: it looked for itself"):
        lease.release()
        waiter.join(PATIENCE)
    assert waiter.lease
    assert waiter.lease.token > lease.token


class TestASlotMoves:
    def test_who_waits_is_told_at_its_new_place(self, movable: RedisCluster, move: Move) -> None:
        holder, client = (interlock.connect(url(movable), ttl=60) for _ in range(2))
        lease = holder.lock(move.name).acquire()
        waiter = Waiter(client, move.name)
        until(lambda: heard_at(movable, move.source, move.number))
        with movable.moving(move.number, move.source, move.target):
            assert heard_at(movable, move.source, move.number)
        followed(lambda: heard_at(movable, move.target, move.number))
        followed(lambda: told(client, move.name))
        handed_over(lease, waiter)
        holder.close()
        client.close()

    def test_and_so_is_a_task(self, movable: RedisCluster, move: Move) -> None:
        async def main() -> None:
            async with aio.connect(url(movable), ttl=60) as holder, aio.connect(url(movable)) as client:
                lease: Any = await holder.lock(move.name).acquire()
                task = asyncio.create_task(client.lock(move.name, timeout=30).acquire())
                await asyncio.to_thread(until, lambda: heard_at(movable, move.source, move.number))
                with movable.moving(move.number, move.source, move.target):
                    pass
                await asyncio.to_thread(followed, lambda: heard_at(movable, move.target, move.number))
                await asyncio.to_thread(followed, lambda: listener(client).subscription_of(move.name)[1])
                with at_most(TOLD, "nobody told it: it looked for itself"):
                    await lease.release()
                    entered = await task
                assert entered

        asyncio.run(main())

    def test_what_is_released_on_the_way_is_handed_over_when_the_move_ends(
        self, movable: RedisCluster, move: Move
    ) -> None:
        """Its keys are there, its listeners still here. Nobody is let in before all are at one place."""
        holder, client = (interlock.connect(url(movable), ttl=60) for _ in range(2))
        lease = holder.lock(move.name).acquire()
        assert lease
        waiter = Waiter(client, move.name)
        until(lambda: told(client, move.name))
        with movable.moving(move.number, move.source, move.target):
            movable.move_keys(move.number, move.source, move.target)
            with pytest.raises(StoreUnavailable, match="asked again in the background"):
                lease.release()
            assert waiter.is_alive()
        waiter.join(PATIENCE)
        assert waiter.lease
        holder.close()
        client.close()

    def test_those_of_other_slots_hear_on(self, movable: RedisCluster, move: Move) -> None:
        """One connection serves both; only one of them leaves it."""
        other = next(name for n in range(10**4) if movable.shard(name := f"o{n}") == movable.shard(move.name))
        holder, client = (interlock.connect(url(movable), ttl=60) for _ in range(2))
        leases = [holder.lock(name).acquire() for name in (move.name, other)]
        waiters = [Waiter(client, name) for name in (move.name, other)]
        until(lambda: told(client, move.name) and told(client, other))
        before = listener(client).subscription_of(other)
        with movable.moving(move.number, move.source, move.target):
            pass
        followed(lambda: heard_at(movable, move.target, move.number))
        assert listener(client).subscription_of(other) == before, "it was torn down for another's sake"
        for lease, waiter in zip(leases, waiters, strict=True):
            handed_over(lease, waiter)
        holder.close()
        client.close()

    def test_whose_map_is_of_before_the_move_finds_the_channels_place(
        self, movable: RedisCluster, move: Move
    ) -> None:
        holder, client = (interlock.connect(url(movable), ttl=60) for _ in range(2))
        with client.lock(move.name):
            pass
        lease = holder.lock(move.name).acquire()
        with movable.moving(move.number, move.source, move.target):
            pass
        waiter = Waiter(client, move.name)
        followed(lambda: heard_at(movable, move.target, move.number))
        followed(lambda: told(client, move.name))
        handed_over(lease, waiter)
        holder.close()
        client.close()

    def test_a_slot_that_goes_to_and_fro_is_followed_each_time(
        self, movable: RedisCluster, move: Move
    ) -> None:
        holder, client = (interlock.connect(url(movable), ttl=60) for _ in range(2))
        lease = holder.lock(move.name).acquire()
        waiter = Waiter(client, move.name, timeout=60)
        until(lambda: told(client, move.name))
        here, there = move.source, move.target
        for _ in range(6):
            with movable.moving(move.number, here, there):
                pass
            here, there = there, here
            followed(lambda at=here: heard_at(movable, at, move.number))  # type: ignore[misc]
        followed(lambda: told(client, move.name))
        handed_over(lease, waiter)
        holder.close()
        client.close()


class TestAMasterFails:
    def test_who_waits_there_is_told_by_its_successor(self, cluster: RedisCluster) -> None:
        holder, client = (interlock.connect(url(cluster), ttl=60) for _ in range(2))
        name = cluster.name_on(0)
        number = _slot(name)
        lease = holder.lock(name).acquire()
        waiter = Waiter(client, name, timeout=60)
        until(lambda: told(client, name))
        cluster.await_followed(cluster.masters[0])
        cluster.masters[0].kill()
        cluster.await_promoted(cluster.replicas[0])
        until(lambda: heard_at(cluster, cluster.replicas[0], number))
        until(lambda: _told(client, name))
        handed_over(lease, waiter)
        holder.close()
        client.close()

    def test_a_master_that_gives_way_sends_those_who_wait_to_its_successor(
        self, cluster: RedisCluster
    ) -> None:
        holder, client = (interlock.connect(url(cluster), ttl=60) for _ in range(2))
        name = cluster.name_on(0)
        lease = holder.lock(name).acquire()
        waiter = Waiter(client, name, timeout=60)
        until(lambda: told(client, name))
        until(lambda: cluster.ask(cluster.replicas[0], "CLUSTER FAILOVER"))
        cluster.await_promoted(cluster.replicas[0])
        followed(lambda: heard_at(cluster, cluster.replicas[0], _slot(name)))
        followed(lambda: _told(client, name))
        handed_over(lease, waiter)
        holder.close()
        client.close()

    def test_one_that_is_frozen_deafens_nobody_else(self, cluster: RedisCluster) -> None:
        holder, client = (interlock.connect(url(cluster), ttl=60) for _ in range(2))
        names = [cluster.name_on(shard) for shard in range(SHARDS)]
        leases: list[Any] = [holder.lock(name).acquire() for name in names]
        waiters = [Waiter(client, name, timeout=60) for name in names]
        until(lambda: all(told(client, name) for name in names))
        cluster.await_followed(cluster.masters[0])
        assert sum(listening(cluster)) == SHARDS
        os.kill(cluster.masters[0].pid, signal.SIGSTOP)
        try:
            for shard in (1, 2):
                handed_over(leases[shard], waiters[shard])
            cluster.await_promoted(cluster.replicas[0])
            until(lambda: heard_at(cluster, cluster.replicas[0], _slot(names[0])))
            followed(lambda: _told(client, names[0]))
            handed_over(leases[0], waiters[0])
        finally:
            os.kill(cluster.masters[0].pid, signal.SIGCONT)
        holder.close()
        client.close()

    def test_a_connection_that_is_cut_is_made_again(self, cluster: RedisCluster) -> None:
        holder, client = (interlock.connect(url(cluster), ttl=60) for _ in range(2))
        name = cluster.name_on(1)
        lease = holder.lock(name).acquire()
        waiter = Waiter(client, name, timeout=60)
        for _ in range(5):
            followed(lambda: told(client, name))
            followed(lambda: heard_at(cluster, cluster.masters[1], _slot(name)))
            was = listener(client).subscription_of(name)[1]
            _cut(cluster, cluster.masters[1])
            followed(lambda was=was: listener(client).subscription_of(name)[1] > was)  # type: ignore[misc]
        followed(lambda: told(client, name))
        handed_over(lease, waiter)
        assert len(subscriptions(client)) == 1
        holder.close()
        client.close()

    def test_what_was_published_while_nobody_listened_is_found(self, cluster: RedisCluster) -> None:
        """Many hand-overs, in the midst of cuts: none waits for its poll."""
        holder, client = (interlock.connect(url(cluster), ttl=60) for _ in range(2))
        name = cluster.name_on(2)
        for _ in range(30):
            lease = holder.lock(name, timeout=30).acquire()
            waiter = Waiter(client, name, timeout=60)
            _cut(cluster, cluster.masters[2])
            handed_over(lease, waiter)
            assert waiter.lease
            waiter.lease.release()
        holder.close()
        client.close()


def _cut(cluster: RedisCluster, node: ClusterNode) -> None:
    """Cut every connection that listens to shards' channels."""
    with cluster.admin(node) as admin:
        for found in admin.client_list():
            if found.get("ssub", "0") != "0":
                admin.client_kill_filter(_id=found["id"])


def _told(client: interlock.Client, name: str) -> bool:
    try:
        return told(client, name)
    except interlock.StoreUnavailable:
        return False


def _slot(name: str) -> int:
    return slot(name.encode())
