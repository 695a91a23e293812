"""A shard that fails does not affect the others; grants that a replica has survive; a loss is reported; tokens rise."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock import State, aio
from interlock._core.drive import drive
from interlock.errors import LeaseLost, StoreUnavailable
from interlock.model import Claim, Granted, NoAnswer, Renewal, Renewed
from interlock.testing.lag import at_most
from interlock.testing.servers.cluster import SHARDS, RedisCluster, fragile
from interlock.testing.servers.sentinel import until
from tests.patience import PATIENCE
from tests.redis.waiter import Waiter

pytestmark = pytest.mark.chaos


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    with fragile(1, None, "--cluster-require-full-coverage", "no") as made:
        yield made


class Sampled(threading.Thread):
    """Which states leases went through, by their place in the list."""

    def __init__(self, leases: list[Any]) -> None:
        super().__init__(daemon=True)
        self.states: list[set[State]] = [set() for _ in leases]
        self._leases = leases
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.005):
            for lease, states in zip(self._leases, self.states, strict=True):
                states.add(lease.state)

    def end(self) -> list[set[State]]:
        self._over.set()
        self.join()
        return self.states


class TestAMasterIsKilled:
    def test_its_leases_are_doubtful_and_then_held_and_those_of_others_are_never_lost(
        self, cluster: RedisCluster
    ) -> None:
        holder, client = (interlock.connect(cluster.url(), ttl=12) for _ in range(2))
        names = [cluster.name_on(shard) for shard in range(SHARDS)]
        leases: list[Any] = [holder.lock(name).acquire() for name in names]
        waiter = Waiter(client, names[0], timeout=60)
        cluster.await_followed()
        before, after = Sampled(leases), Sampled(leases)
        before.start()
        with cluster.replicas[0].frozen():  # it takes over once this is over
            cluster.masters[0].kill()
            until(lambda: leases[0].state is State.DOUBTFUL)
            for name in (f"{{{names[1]}}}", f"{{{names[2]}}}"):
                with at_most(1, "a shard that is alive waited for one that is not"):
                    with client.lock(name, timeout=PATIENCE):
                        pass
            assert before.end() == [{State.HELD, State.DOUBTFUL}, {State.HELD}, {State.HELD}]
        after.start()
        cluster.await_promoted(cluster.replicas[0])
        until(lambda: all(lease.state is State.HELD for lease in leases))
        assert all(State.LOST not in states for states in after.end())
        with at_most(2, "nobody told it: it looked for itself"):
            leases[0].release()
            waiter.join(PATIENCE)
            assert waiter.lease
            assert waiter.lease.token > leases[0].token
        for lease in leases[1:]:
            lease.renew()
            lease.release()
        holder.close()
        client.close()

    def test_what_its_replica_missed_is_told_and_tokens_rise(self, cluster: RedisCluster) -> None:
        async def lose(client: aio.Client, name: str, dead: threading.Event) -> None:
            """Hold until the body is cancelled for the loss."""
            async with client.lock(name):
                dead.set()
                await asyncio.sleep(60)

        async def main() -> None:
            lost, dead = threading.Event(), threading.Event()
            client = interlock.connect(cluster.url(), ttl=9)
            name, kept = cluster.name_on(0), cluster.name_on(1)
            with client.lock(name) as first:  # so that the replica knows of a token
                cluster.await_followed(cluster.masters[0])
            safe = client.lock(kept).acquire()
            assert safe
            async with aio.connect(cluster.url(), ttl=9) as other:
                with cluster.deaf(cluster.replicas[0], cluster.masters[0]):
                    lease = client.lock(name, on_lost=lambda _: lost.set()).acquire()
                    assert lease
                    task = asyncio.create_task(lose(other, f"{{{name}}}async", dead))
                    await asyncio.to_thread(dead.wait, 10)
                    cluster.masters[0].kill()
                await asyncio.to_thread(cluster.await_promoted, cluster.replicas[0])
                with pytest.raises(LeaseLost):
                    await asyncio.wait_for(task, PATIENCE)
            stranger = interlock.connect(cluster.url(), ttl=9)
            after = until(lambda: _acquired(stranger, name))
            assert after.token > lease.token > first.token
            with at_most(9):  # its own ttl
                assert lost.wait(PATIENCE)
            with pytest.raises(LeaseLost):
                lease.check()
            assert after.state is State.HELD
            until(lambda: safe.state is State.HELD)
            for held in (after, safe):
                held.release()
            client.close()
            stranger.close()

        asyncio.run(main())

    def test_who_listened_there_to_plain_messages_hears_elsewhere(self, cluster: RedisCluster) -> None:
        url = cluster.url(notices="plain")
        holder, client = (interlock.connect(url, ttl=20) for _ in range(2))
        names = [cluster.name_on(shard) for shard in range(SHARDS)]
        leases: list[Any] = [holder.lock(name).acquire() for name in names]
        waiters = [Waiter(client, name, timeout=60) for name in names]

        def listened() -> list[int]:
            found = [cluster.ask(master, "PUBSUB CHANNELS", "interlock:*") for master in cluster.masters]
            return [shard for shard in range(SHARDS) if found[shard]]

        (there,) = until(listened)
        cluster.await_followed(cluster.masters[there])
        cluster.masters[there].kill()
        alive = [shard for shard in range(SHARDS) if shard != there]
        until(lambda: any(cluster.ask(cluster.masters[n], "PUBSUB CHANNELS", "interlock:*") for n in alive))
        for shard in alive:
            with at_most(2, "nobody told it: it looked for itself"):
                leases[shard].release()
                waiters[shard].join(PATIENCE)
                assert waiters[shard].lease
        cluster.await_promoted(cluster.replicas[there])
        leases[there].release()
        waiters[there].join(PATIENCE)
        assert waiters[there].lease
        holder.close()
        client.close()

    def test_a_shard_that_has_no_replica_any_more_confirms_nothing(self, cluster: RedisCluster) -> None:
        client = interlock.connect(cluster.url(replicas="majority"))
        with client.lock(cluster.name_on(0)):
            pass
        cluster.masters[0].kill()
        cluster.await_promoted(cluster.replicas[0])
        assert client.inspect(cluster.name_on(0)).standings == ()  # and so it has met the new master
        with pytest.raises(StoreUnavailable, match="0 of the 1 replicas wanted"):
            client.lock(cluster.name_on(0)).acquire(timeout=2)
        with client.lock(cluster.name_on(1), timeout=PATIENCE):
            pass
        client.close()


class TestAMasterIsFrozen:
    def test_its_leases_are_unanswered_in_time_and_the_others_renewed(self, cluster: RedisCluster) -> None:
        client = interlock.connect(cluster.url())
        store = client._core.store
        claims = [Claim(cluster.name_on(n % SHARDS, start=f"c{n}"), f"id{n}", 30.0) for n in range(12)]
        for claim in claims:
            assert isinstance(drive(store.claim(claim)), Granted)
        renewals = [Renewal(claim.resource, claim.id, 30.0) for claim in claims]
        with cluster.masters[0].frozen():
            with at_most(1.3):
                answers = drive(store.renew(renewals, 0.8))
            for number, answer in enumerate(answers):
                assert isinstance(answer, NoAnswer if number % SHARDS == 0 else Renewed), (number, answer)
            with pytest.raises(StoreUnavailable):
                drive(store.renew(renewals[:1], 0.2))
        client.close()

    def test_when_it_comes_back_it_is_not_believed(self, cluster: RedisCluster) -> None:
        client, name = interlock.connect(cluster.url(), ttl=20), cluster.name_on(0)
        old = cluster.masters[0]
        with client.lock(name) as before:
            cluster.await_followed(old)
        os.kill(old.pid, signal.SIGSTOP)
        cluster.await_promoted(cluster.replicas[0])
        with client.lock(name, timeout=PATIENCE) as lease:
            assert lease.token > before.token
            os.kill(old.pid, signal.SIGCONT)
            other = interlock.connect(f"redis+cluster://127.0.0.1:{old.port}")
            assert not _acquired(other, name)
            assert [s.token for s in client.inspect(name).holders] == [lease.token]
            lease.renew()
        for _ in range(20):
            with other.lock(name, timeout=PATIENCE), client.lock(cluster.name_on(1), timeout=PATIENCE):
                pass
        client.close()
        other.close()

    def test_a_release_that_was_not_answered_is_made_good(self, cluster: RedisCluster) -> None:
        client, name = interlock.connect(cluster.url(), ttl=30), cluster.name_on(0)
        lease = client.lock(name).acquire()
        assert lease
        cluster.await_followed(cluster.masters[0])
        with cluster.replicas[0].frozen():  # nobody takes over in the time that a release has
            cluster.masters[0].kill()
            with at_most(3, "its caller has no use for the wait"):
                with pytest.raises(StoreUnavailable, match="asked again in the background"):
                    lease.release()
        cluster.await_promoted(cluster.replicas[0])
        other = interlock.connect(cluster.url())
        until(lambda: _acquired(other, name))
        client.close()
        other.close()


class TestTheClusterIsDown:
    def test_calls_say_so_in_their_time_and_go_on_when_it_is_back(self, cluster: RedisCluster) -> None:
        client, name = interlock.connect(cluster.url(), ttl=60), cluster.name_on(1)
        lease = client.lock(name).acquire()
        assert lease
        for node in (cluster.masters[0], cluster.replicas[0], cluster.masters[2], cluster.replicas[2]):
            node.kill()
        until(lambda: cluster.ask(cluster.masters[1], "CLUSTER INFO")["cluster_state"] == "fail")
        with at_most(2):
            with pytest.raises(StoreUnavailable, match="cluster that is down"):
                client.lock(f"{{{name}}}2").acquire(timeout=1)
        lease.check()
        for node in (cluster.masters[0], cluster.masters[2]):
            node.start()
        with client.lock(f"{{{name}}}2", timeout=PATIENCE):
            lease.renew()
        lease.release()
        client.close()

    def test_a_node_that_restarts_without_its_memory_makes_holds_doubtful(self) -> None:
        with fragile(0) as cluster:
            doubts: list[float] = []
            client, name = interlock.connect(cluster.url(), ttl=60), cluster.name_on(0)
            with client.lock(name) as before:
                pass
            client._core.store.on_doubt(lambda: doubts.append(time.monotonic()))
            lease = client.lock(name, on_lost=lambda _: None).acquire()
            assert lease
            node = cluster.masters[0]
            node.kill()
            shutil.rmtree(f"{node.folder}/appendonlydir")
            node.start()
            until(cluster.with_source)
            other = interlock.connect(cluster.url())
            after = until(lambda: _acquired(other, name))
            assert after.token > lease.token > before.token
            client.inspect(name)  # meets it again
            assert doubts
            until(lambda: lease.state is State.LOST)
            client.close()
            other.close()


def _acquired(client: interlock.Client, name: str) -> Any:
    try:
        return client.lock(name).acquire(timeout=0.2)
    except StoreUnavailable:
        return None
