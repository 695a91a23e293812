"""Clients follow a failover: grants that a replica has survive, a loss is reported, and tokens rise."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import pytest
import redis.asyncio.sentinel
import redis.sentinel

import interlock
from interlock import aio
from interlock.backends.redis.replicated import checked_replicas, enough
from interlock.errors import InvalidURL, LeaseLost, StoreUnavailable, StoreUnfit, Unsupported
from interlock.testing.lag import at_most
from interlock.testing.servers import sentinel as sentinels
from interlock.testing.servers.sentinel import SERVICE, SentinelSet, until, watched
from tests.patience import PATIENCE
from tests.redis.clients import held_and_shown, held_and_shown_async
from tests.redis.waiter import Waiter

FAILOVER = 12.0  # seconds a failover may take here


@pytest.fixture
def steady() -> SentinelSet:
    """A set-up that no test breaks."""
    return sentinels.steady()


@pytest.fixture
def fragile() -> Iterator[SentinelSet]:
    with watched() as made:
        yield made


class TestClients:
    def test_a_url_with_sentinels_that_are_gone_leads_to_the_master(self, steady: SentinelSet) -> None:
        url = steady.url(f"{uuid4().hex}:").replace("://", "://127.0.0.1:1,127.0.0.1:2,", 1)
        held_and_shown(interlock.connect(url))
        asyncio.run(held_and_shown_async(aio.connect(url)))

    def test_a_client_that_sentinel_made_serves_both_faces(self, steady: SentinelSet) -> None:
        with redis.sentinel.Sentinel(steady.addresses(), socket_timeout=2) as sentinel:
            theirs = sentinel.master_for(SERVICE)
            held_and_shown(interlock.connect(theirs))
            asyncio.run(held_and_shown_async(aio.connect(theirs)))
            theirs.close()

    def test_an_asyncio_client_that_sentinel_made_serves_both_faces(self, steady: SentinelSet) -> None:
        async def main() -> None:
            sentinel = redis.asyncio.sentinel.Sentinel(steady.addresses(), socket_timeout=2)
            theirs = sentinel.master_for(SERVICE)
            await held_and_shown_async(aio.connect(theirs))
            held_and_shown(interlock.connect(theirs))
            await theirs.aclose()
            for one in sentinel.sentinels:
                await one.aclose()

        asyncio.run(main())

    def test_a_client_for_replicas_is_refused(self, steady: SentinelSet) -> None:
        with redis.sentinel.Sentinel(steady.addresses()) as sentinel:
            theirs = sentinel.slave_for(SERVICE)
            with pytest.raises(Unsupported, match="master_for"):
                interlock.connect(theirs)
            theirs.close()

    def test_the_database_of_a_url_is_used(self, steady: SentinelSet) -> None:
        client, name = interlock.connect(steady.url(database=5)), uuid4().hex
        with client.lock(name), redis.Redis(port=steady.master().port, db=5) as admin:
            assert admin.exists(name)
        client.close()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @pytest.mark.parametrize("replicas", ["1", "majority"])
    def test_a_forked_child_gets_connections_of_its_own(self, steady: SentinelSet, replicas: str) -> None:
        client, name = interlock.connect(steady.url(replicas=replicas)), uuid4().hex
        with client.lock(name):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    free = client.lock(name).acquire(blocking=False)
                    with client.lock(name + "-child", timeout=PATIENCE):
                        code = 2 if free else 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert len(client.inspect(name).holders) == 1
        client.close()

    def test_sentinels_that_do_not_know_the_service_say_so(self, steady: SentinelSet) -> None:
        client = interlock.connect(steady.url().replace(f"/{SERVICE}/", "/other/"))
        with pytest.raises(StoreUnavailable, match="No such master"):
            client.lock("x").acquire(timeout=0.3)
        client.close()

    @pytest.mark.parametrize(
        ("url", "hint"),
        [
            ("redis+sentinel://localhost:26379", "write redis\\+sentinel://"),
            ("redis+sentinel://localhost:26379/main/zero", "is a number"),
            ("redis+sentinel://localhost:99999,b/main", "port must be"),
            ("redis+sentinel://localhost/main#x", "write redis\\+sentinel://"),
            ("redis+sentinel://localhost/main?colour=red", "unknown option 'colour'"),
            ("redis+sentinel://localhost/main?replicas=some", "replicas=some"),
            ("redis+sentinel://localhost/main?replicas=0", "replicas=0"),
            ("redis://localhost?replicas=majority", "name its sentinels"),
        ],
    )
    def test_a_wrong_url_is_refused_with_a_hint(self, url: str, hint: str) -> None:
        with pytest.raises(InvalidURL, match=hint):
            interlock.connect(url)

    def test_servers_and_sentinels_have_passwords_of_their_own(self) -> None:
        with watched(1, "secret") as guarded:
            right = guarded.url(replicas="all", sentinel_password="s-secret").replace("://", "://:secret@", 1)
            held_and_shown(interlock.connect(right))
            asyncio.run(held_and_shown_async(aio.connect(right)))
            stranger = interlock.connect(right.replace("s-secret", "guess"))
            with pytest.raises(StoreUnavailable, match="refuses this user name and password"):
                stranger.lock("x").acquire(timeout=0.3)
            stranger.close()
            half = interlock.connect(right.replace(":secret@", ""))
            with pytest.raises(StoreUnfit, match="wants a password"):
                half.lock("x").acquire(timeout=0.3)
            half.close()

    def test_passwords_are_never_shown(self) -> None:
        url = "redis+sentinel://locker:secret@localhost:1,localhost:2/main?sentinel_password=hidden"
        client = interlock.connect(url)
        with pytest.raises(StoreUnavailable) as refusal:
            client.lock("x").acquire(timeout=0.1)
        shown = repr(client) + repr(client._core.store) + str(refusal.value)
        assert "secret" not in shown
        assert "hidden" not in shown
        client.close()


class TestReplicas:
    @pytest.mark.parametrize(
        ("wanted", "replicas", "confirmed"),
        [
            ("majority", 1, 1),
            ("majority", 2, 1),
            ("majority", 3, 2),
            ("majority", 4, 2),
            ("all", 2, 2),
            (1, 2, 1),
        ],
    )
    def test_the_master_is_one_of_the_majority(self, wanted: Any, replicas: int, confirmed: int) -> None:
        assert enough(checked_replicas(str(wanted)), replicas) == confirmed

    @pytest.mark.parametrize("replicas", ["1", "2", "majority", "all"])
    def test_grants_and_hand_overs_wait_for_replicas(self, steady: SentinelSet, replicas: str) -> None:
        url = steady.url(f"{uuid4().hex}:", replicas=replicas)
        held_and_shown(interlock.connect(url))
        asyncio.run(held_and_shown_async(aio.connect(url)))

    def test_a_grant_that_too_few_replicas_confirm_is_taken_back(self, steady: SentinelSet) -> None:
        url = steady.url(f"{uuid4().hex}:", replicas="3")
        client = interlock.connect(url)
        with pytest.raises(StoreUnavailable, match=r"[0-2] of the 3 replicas wanted confirmed"):
            client.lock("x").acquire(timeout=1)
        assert client.inspect("x").standings == ()
        client.close()

        async def main() -> None:
            async with aio.connect(url) as client:
                with pytest.raises(StoreUnavailable, match=r"[0-2] of the 3 replicas wanted confirmed"):
                    await client.lock("x").acquire(timeout=1)
                assert (await client.inspect("x")).standings == ()

        asyncio.run(main())

    def test_who_waits_for_replicas_keeps_no_other_task_waiting(self, steady: SentinelSet) -> None:
        async def main() -> None:
            async with aio.connect(steady.url(f"{uuid4().hex}:", replicas="3")) as client:
                short = asyncio.create_task(client.lock("x").acquire(timeout=1))
                while not (await client.inspect("x")).holders:
                    assert not short.done()
                with at_most(0.3):
                    await client.inspect("y")
                with pytest.raises(StoreUnavailable):
                    await short

        asyncio.run(main())

    def test_one_server_takes_a_number(self, steady: SentinelSet) -> None:
        client = interlock.connect(steady.master().url(f"{uuid4().hex}:", replicas="2"))
        with client.lock("x"):
            pass
        client.close()
        alone = interlock.connect(steady.master().url(f"{uuid4().hex}:", replicas="3"))
        with pytest.raises(StoreUnavailable, match="taken back"):
            alone.lock("x").acquire(timeout=1)
        alone.close()


class Spared:
    """A failover that lost nothing: who held and waited before it, and what came of them."""

    def __init__(self, watched: SentinelSet) -> None:
        self.lost: list[Any] = []
        self.holder, self.client = (interlock.connect(watched.url(), ttl=30) for _ in range(2))
        self.confirmed = interlock.connect(watched.url(replicas="all"), ttl=30)
        self.majority = interlock.connect(watched.url(replicas="majority"), ttl=30)
        self.lease = self._held(self.holder, "x")
        self.safe = self._held(self.majority, "safe")
        self.waiter = Waiter(self.client, "x", timeout=60)
        watched.await_attached(2)
        watched.crash()
        watched.await_attached(1)
        self.watched = watched

    def close(self) -> None:
        if self.lease.state is interlock.State.HELD:
            self.lease.release()
        self.waiter.join(PATIENCE)
        for client in (self.holder, self.client, self.confirmed, self.majority):
            client.close()

    def _held(self, client: interlock.Client, name: str) -> interlock.Lease:
        lease = client.lock(name, on_lost=self.lost.append).acquire()
        assert lease
        return lease


@pytest.fixture(scope="class")
def spared() -> Iterator[Spared]:
    with watched() as made:
        after = Spared(made)
        yield after
        after.close()


@pytest.mark.chaos
class TestAFailoverThatLostNothing:
    def test_holders_keep_their_leases(self, spared: Spared) -> None:
        for lease in (spared.lease, spared.safe):
            lease.check()
            lease.renew()
            assert lease.state is interlock.State.HELD
        assert [s.token for s in spared.client.inspect("x").holders] == [spared.lease.token]
        assert not spared.lost

    def test_waiters_are_told_by_the_new_master(self, spared: Spared) -> None:
        with spared.watched.admin() as admin:
            until(lambda: admin.pubsub_channels("interlock:*"))
        with at_most(2, "nobody told it: it looked for itself"):
            spared.lease.release()
            spared.waiter.join(PATIENCE)
            assert spared.waiter.lease
        assert spared.waiter.lease.token > spared.lease.token
        spared.waiter.lease.release()

    def test_the_dead_master_counts_as_a_replica_that_does_not_confirm(self, spared: Spared) -> None:
        with pytest.raises(StoreUnavailable, match="1 of the 2 replicas wanted"):
            spared.confirmed.lock("y").acquire(timeout=1)
        with spared.majority.lock("y", timeout=PATIENCE):
            pass


@pytest.mark.chaos
def test_what_a_failover_lost_is_told_and_tokens_rise(fragile: SentinelSet) -> None:
    async def lose(client: aio.Client, deaf: ExitStack) -> None:
        """Hold while nothing reaches the replicas, until the body is cancelled for the loss."""
        async with client.lock("async"):
            fragile.master().kill()
            deaf.close()
            await asyncio.sleep(60)

    async def main() -> None:
        lost = threading.Event()
        client, deaf = interlock.connect(fragile.url(), ttl=6), ExitStack()
        with client.lock("x") as first:  # so that the replicas know of a token
            fragile.await_attached(2)
        deaf.enter_context(fragile.deaf())
        lease = client.lock("x", on_lost=lambda _: lost.set()).acquire()
        assert lease
        async with aio.connect(fragile.url(), ttl=6) as asynchronous:
            with pytest.raises(LeaseLost):
                await lose(asynchronous, deaf)
        other = interlock.connect(fragile.url(), ttl=6)
        after = until(lambda: _acquired(other, "x"))
        assert after.token > lease.token > first.token
        with at_most(6):  # its own ttl
            assert lost.wait(PATIENCE)
        with pytest.raises(LeaseLost):
            lease.check()
        assert after.state is interlock.State.HELD
        after.release()
        client.close()
        other.close()

    asyncio.run(main())


@pytest.mark.chaos
def test_a_frozen_master_that_comes_back_is_not_believed(fragile: SentinelSet) -> None:
    client = interlock.connect(fragile.url(), ttl=20)
    old = fragile.master()
    with client.lock("x"):
        pass
    fragile.await_attached(2)
    os.kill(old.pid, signal.SIGSTOP)
    fragile.await_other_than(old)
    with client.lock("x", timeout=PATIENCE) as lease:
        os.kill(old.pid, signal.SIGCONT)
        other = interlock.connect(fragile.url())
        assert not other.lock("x").acquire(blocking=False)
        assert [s.token for s in client.inspect("x").holders] == [lease.token]
    for _ in range(20):
        with other.lock("x", timeout=PATIENCE), client.lock("y", timeout=PATIENCE):
            pass
    client.close()
    other.close()


@pytest.mark.chaos
def test_a_master_that_was_made_a_replica_is_left(fragile: SentinelSet) -> None:
    async def main() -> None:
        async with aio.connect(fragile.url(), ttl=20) as client:
            async with client.lock("x"):
                old = fragile.master()
                fragile.await_attached(2)
                with fragile.sentinels[0].ask() as sentinel:
                    sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE)
                await asyncio.to_thread(fragile.await_other_than, old)
                assert len((await client.inspect("x")).holders) == 1

    asyncio.run(main())


def _acquired(client: interlock.Client, name: str) -> interlock.Lease | None:
    try:
        return client.lock(name).acquire(timeout=0.2)
    except StoreUnavailable:
        return None
