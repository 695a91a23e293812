"""A holder whose master may have been replaced gains no time: replicas, or a majority of the sentinels, must vouch for it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest
import redis

import interlock
from interlock import aio
from interlock._core.drive import drive
from interlock.errors import StoreUnavailable
from interlock.model import Busy, Claim, Granted, Renewal
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers import cluster as clusters
from interlock.testing.servers.sentinel import SERVICE, SentinelSet, watched
from tests.patience import PATIENCE, until
from tests.redis.holders import FACES, Face, Holder
from tests.redis.waiter import Waiter

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def guarded() -> Iterator[SentinelSet]:
    """A set-up with passwords, whose replicas and sentinels are stopped and go on."""
    with watched(2, "secret") as made:
        yield made


def url_of(guarded: SentinelSet, **options: str) -> str:
    url = guarded.url(f"{uuid4().hex}:", 0, sentinel_password="s-secret", **options)
    return url.replace("://", "://:secret@", 1)


@contextmanager
def silent(guarded: SentinelSet, *numbers: int) -> Iterator[None]:
    """Sentinels that answer nobody."""
    pids = [guarded.sentinels[number].pid for number in numbers]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        # The next test may ask one sentinel alone, or stop one that takes another for dead.
        guarded.await_hearing()


class Hopeful(Waiter):
    """Waits for a lock, and may be told that there is nobody to ask."""

    def run(self) -> None:
        with suppress(StoreUnavailable):
            super().run()


def assert_writes_wait_for_replicas(url: str, face: Face, deaf: Any) -> None:
    """Each write is confirmed while the replicas hear of it, and told as uncertain while they do not."""

    async def over(client: Any) -> None:
        async def answer(value: Any) -> Any:
            return await value if asyncio.iscoroutine(value) else value

        register, event, latch = client.register("r"), client.event("e"), client.latch("l", 5)
        guard, token = client.guard("g"), [10**9]

        def accept() -> Any:
            token[0] += 1
            return guard.accept(token[0])

        writes = [lambda: register.update(lambda old: (old or 0) + 1), accept, latch.count_down]
        for write in (*writes, event.set):
            await answer(write())
        with deaf():
            # The last of each pair finds what it would write.
            again = lambda: guard.accept(token[0])  # noqa: E731
            for write in (*writes, again, event.clear, event.clear):
                with pytest.raises(StoreUnavailable, match=r"replicas wanted .* may have been applied"):
                    await answer(write())
        await answer(client.close())

    if face == "sync":
        drive(over(interlock.connect(url)))
    else:

        async def main() -> None:
            await over(aio.connect(url))

        asyncio.run(main())


def assert_removals_wait_for_replicas(url: str, face: Face, deaf: Any) -> None:
    """An eviction, and a release that leaves a `min_hold`, are told as uncertain if a failover may undo them."""

    async def over(client: Any) -> None:
        async def answer(value: Any) -> Any:
            return await value if asyncio.iscoroutine(value) else value

        await answer(client.lock("x").acquire())
        short, plain = client.lock("m", min_hold=60.0), client.lock("p")
        await answer(short.acquire())
        await answer(plain.acquire())
        with deaf():
            with pytest.raises(
                StoreUnavailable, match=r"replicas wanted .* the eviction may have been applied"
            ):
                await answer(client.evict("x", reason="a test"))
            with pytest.raises(StoreUnavailable, match="asked again in the background"):
                await answer(short.release())
            await answer(plain.release())  # a failover that undoes it costs a ttl, and no promise
        assert (await answer(client.inspect("m"))).holders
        await answer(client.close())

    if face == "sync":
        drive(over(interlock.connect(url)))
    else:

        async def main() -> None:
            await over(aio.connect(url))

        asyncio.run(main())


class TestReplicas:
    @pytest.mark.parametrize("face", FACES)
    def test_a_lease_that_replicas_do_not_confirm_is_lost_within_one_ttl(
        self, guarded: SentinelSet, face: Face
    ) -> None:
        ttl = stretched(1.5)
        guarded.await_attached(2)
        with Holder(url_of(guarded, replicas="majority"), "x", ttl, face) as holder:
            with guarded.deaf(), at_most(ttl, "it was renewed though no replica knows of it"):
                assert holder.lost.wait(PATIENCE)

    @pytest.mark.parametrize("face", ["sync", "async"])
    def test_a_write_that_replicas_do_not_confirm_may_have_been_applied(
        self, guarded: SentinelSet, face: Face
    ) -> None:
        """Of registers and whatever is made of them: told, as a failover may take it back."""
        guarded.await_attached(2)
        assert_writes_wait_for_replicas(url_of(guarded, replicas="majority"), face, guarded.deaf)

    @pytest.mark.parametrize("face", ["sync", "async"])
    def test_an_eviction_and_a_min_hold_that_replicas_do_not_confirm_are_told(
        self, guarded: SentinelSet, face: Face
    ) -> None:
        guarded.await_attached(2)
        assert_removals_wait_for_replicas(url_of(guarded, replicas="majority"), face, guarded.deaf)

    def test_a_min_hold_that_is_repeated_waits_for_the_replicas_again(self, guarded: SentinelSet) -> None:
        """By another connection, too, which has written nothing by itself."""
        guarded.await_attached(2)
        client = interlock.connect(url_of(guarded, replicas="majority"))
        store, lease = client._core.store, client.lock("m").acquire_or_raise()
        with guarded.deaf():
            for _ in range(2):
                with pytest.raises(
                    StoreUnavailable, match="0 of the 1 replicas wanted confirmed the min_hold"
                ):
                    drive(store.release("m", lease.id, 60.0, PATIENCE))
                drive(store._wait_transport._replace(store._wait_transport._now[0]))  # type: ignore[attr-defined]
        guarded.await_attached(2)
        assert drive(store.release("m", lease.id, 60.0, PATIENCE)) is False
        client.close()

    def test_a_write_that_is_repeated_waits_for_the_replicas_again(self, guarded: SentinelSet) -> None:
        """By another connection, too, which has written nothing by itself."""
        guarded.await_attached(2)
        store = interlock.connect(url_of(guarded, replicas="majority"))._core.store
        with guarded.deaf():
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="0 of the 1 replicas wanted confirmed"):
                    drive(store.compare_and_set("r", 0, "1", "writer", PATIENCE))
                drive(store._wait_transport._replace(store._wait_transport._now[0]))  # type: ignore[attr-defined]
        guarded.await_attached(2)
        written = drive(store.compare_and_set("r", 0, "1", "writer", PATIENCE))
        assert written is not None
        assert written.value == "1"
        drive(store.close())

    def test_one_replica_of_two_is_a_majority(self, guarded: SentinelSet) -> None:
        ttl = stretched(0.6)
        guarded.await_attached(2)
        dead = guarded.replicas()[0]
        with Holder(url_of(guarded, replicas="majority"), "x", ttl) as holder, dead.frozen():
            assert not holder.lost.wait(3 * ttl)

    def test_a_renewal_by_hand_says_how_many_confirmed(self, guarded: SentinelSet) -> None:
        guarded.await_attached(2)
        client = interlock.connect(url_of(guarded, replicas="majority"), ttl=30)
        with client.lock("x") as lease:
            before = lease.deadline
            with (
                guarded.deaf(),
                pytest.raises(StoreUnavailable, match="0 of the 1 replicas wanted confirmed"),
            ):
                lease.renew()
            assert lease.deadline == before
            guarded.await_attached(2)
            lease.renew()
            assert lease.deadline > before
        client.close()

    @pytest.mark.parametrize("deployment", ["sentinel", "cluster"])
    def test_a_task_renews_by_hand_on_a_connection_that_may_wait(
        self, guarded: SentinelSet, deployment: str
    ) -> None:
        url = url_of(guarded, replicas="majority")
        if deployment == "cluster":
            url = clusters.steady().url(f"{uuid4().hex}:", replicas="majority")
        else:
            guarded.await_attached(2)

        async def main() -> None:
            async with aio.connect(url, ttl=30) as client, client.lock("x") as lease, client.lock("y"):
                before = lease.deadline
                await lease.renew()
                assert lease.deadline > before

        asyncio.run(main())

    def test_a_renewal_that_changes_nothing_is_written_all_the_same(self, guarded: SentinelSet) -> None:
        """From Redis 7.2 on, a connection that wrote nothing is told that every replica has what it wrote."""
        client = interlock.connect(url_of(guarded, replicas="majority"), ttl=30)
        with guarded.admin() as admin:
            for capacity in (1, 2):
                with client.semaphore(f"s{capacity}", capacity=capacity) as lease:
                    store = client._core.store
                    before = _written(admin)
                    assert drive(store.renew([Renewal(lease.resource, lease.id, 0.001)], 5.0))
                    assert _written(admin) == before + 1
        client.close()


class TestSentinels:
    @pytest.mark.parametrize(
        ("face", "options"),
        [
            *((face, {}) for face in FACES),
            *(("sync", {"replicas": many}) for many in ("1", "majority", "all")),
        ],
    )
    def test_without_a_majority_a_lease_is_lost_within_two_ttls(
        self, guarded: SentinelSet, face: Face, options: dict[str, str]
    ) -> None:
        ttl = stretched(1.5)
        guarded.await_attached(2)
        with Holder(url_of(guarded, **options), "x", ttl, face) as holder:
            with silent(guarded, 1, 2), at_most(2 * ttl, "it was renewed without a majority"):
                assert holder.lost.wait(PATIENCE)

    def test_without_a_majority_nothing_is_granted_for_longer_than_a_ttl(self, guarded: SentinelSet) -> None:
        ttl = stretched(1.0)
        client = interlock.connect(url_of(guarded), ttl=ttl)
        with client.lock("y"):
            pass
        with silent(guarded, 0, 2):
            with pytest.raises(StoreUnavailable, match="no majority of the sentinels"):
                end = time.monotonic() + 4 * ttl
                while time.monotonic() < end:
                    with client.lock("x", timeout=2 * ttl):
                        pass
            fresh = interlock.connect(url_of(guarded), ttl=ttl)
            with pytest.raises(StoreUnavailable, match="no majority of the sentinels"):
                fresh.lock("x").acquire(timeout=0.3)
            fresh.close()
            assert client.inspect("x").standings == ()
        with client.lock("x", timeout=PATIENCE):
            pass
        client.close()

    def test_without_a_majority_nothing_is_written_to_a_register(self, guarded: SentinelSet) -> None:
        client = interlock.connect(url_of(guarded), ttl=30)
        register, guard = client.register("r"), client.guard("g")
        written = register.update(lambda _: 1)
        guard.accept(10**9)
        event, unset = client.event("e"), client.event("u")
        event.set()
        with silent(guarded, 0, 2):

            def refused() -> bool:
                try:
                    register.update(lambda old: old + 1)
                except StoreUnavailable as error:
                    return "no majority of the sentinels" in str(error) and "may have" not in str(error)
                return False

            until(refused)
            # A token that was accepted before, and an event that is set: a read alone would not do for them.
            for write in (lambda: guard.accept(10**9 + 1), lambda: guard.accept(10**9), event.set, unset.set):
                with pytest.raises(StoreUnavailable, match="no majority of the sentinels"):
                    write()
            before = register.read()
            assert guard.highest() == 10**9
        until(lambda: register.update(lambda old: old + 1).value == before.value + 1)
        assert register.read().version > written.version
        client.close()

    def test_without_a_majority_no_waiter_is_let_in(self, guarded: SentinelSet) -> None:
        ttl, url = stretched(1.0), url_of(guarded)
        holder, client = (interlock.connect(url, ttl=ttl) for _ in range(2))
        lease = holder.lock("x").acquire(timeout=PATIENCE)
        assert lease
        waiter = Hopeful(client, "x", timeout=6 * ttl)
        with silent(guarded, 0, 1):
            until(lambda: lease.state is interlock.State.LOST)
            # Its claim is taken back, and the old master hands the lock over.
            until(lambda: [one.id for one in client.inspect("x").holders] not in ([], [lease.id]))
            waiter.join(PATIENCE)
            assert not waiter.is_alive()
            assert not waiter.lease
        holder.close()
        client.close()

    def test_a_waiter_does_not_believe_the_hand_over_of_a_master_that_may_have_been_replaced(
        self, guarded: SentinelSet
    ) -> None:
        """It waits already when the last agreement grows too old: no question of its own would have told it."""
        url = url_of(guarded)
        holder, client = interlock.connect(url, ttl=60), interlock.connect(url, ttl=60)
        lease = holder.lock("x").acquire(timeout=PATIENCE)
        assert lease
        store = client.store
        claim = Claim("x", "a waiter", 1.0, 1, 1, True, 60.0, "", "")
        busy = drive(store.claim(claim))
        for _ in range(3):  # until it is subscribed, and has asked since
            assert isinstance(busy, Busy)
            drive(store.wait(claim, busy, 0.3))
            busy = drive(store.claim(claim))
        assert isinstance(busy, Busy)
        waits, told = store.wait(claim, busy, PATIENCE), list[Granted | None]()
        waiting = threading.Thread(target=lambda: told.append(drive(waits)))
        with silent(guarded, 0, 1):
            agreement = store._route.agreement  # type: ignore[attr-defined]
            until(lambda: not agreement.recent(claim.ttl))
            waiting.start()
            until(lambda: claim.id.encode() in store._listener.topics)  # type: ignore[attr-defined]
            lease.release()
            until(lambda: [one.id for one in client.inspect("x").holders] == [claim.id])
            waiting.join(PATIENCE)
            assert told == [None]
        assert isinstance(drive(store.claim(claim)), Granted)
        drive(store.release("x", claim.id))
        holder.close()
        client.close()

    def test_a_majority_is_enough(self, guarded: SentinelSet) -> None:
        ttl = stretched(1.0)
        with Holder(url_of(guarded), "x", ttl) as holder, silent(guarded, 0):
            assert not holder.lost.wait(4 * ttl)

    def test_one_sentinel_of_a_url_speaks_for_those_that_it_hears(self, guarded: SentinelSet) -> None:
        ttl = stretched(1.0)
        first, *others = (f"127.0.0.1:{sentinel.port}" for sentinel in guarded.sentinels)
        url = url_of(guarded).replace(",".join([first, *others]), first)
        with Holder(url, "x", ttl) as holder:
            assert not holder.lost.wait(4 * ttl)
            with silent(guarded, 1, 2), at_most(2 * ttl + 3, "it was renewed without a majority"):
                assert holder.lost.wait(PATIENCE)

    def test_one_sentinel_that_is_named_twice_is_no_majority(self, guarded: SentinelSet) -> None:
        first, *others = (f"127.0.0.1:{sentinel.port}" for sentinel in guarded.sentinels)
        url = url_of(guarded).replace(
            ",".join([first, *others]), f"{first},{first.replace('127.0.0.1', 'localhost')}"
        )
        client = interlock.connect(url, ttl=1)
        with silent(guarded, 1, 2):
            until(lambda: not _acquired(client))
        client.close()

    def test_a_master_that_the_sentinels_have_left_is_left_though_it_still_answers(self) -> None:
        with watched() as fragile, Holder(fragile.url(), "x", 6) as holder:
            old = fragile.master()
            with fragile.admin(old) as admin:
                # It cannot be demoted from now on, as if only its clients could reach it.
                admin.execute_command("ACL", "SETUSER", "default", "-replicaof", "-slaveof")
                fragile.await_attached(2)
                with fragile.sentinels[0].ask() as sentinel:
                    sentinel.execute_command("SENTINEL", "FAILOVER", SERVICE)
                fragile.await_other_than(old)
                until(lambda: not admin.exists("x"))
                assert _replication(admin)["role"] == "master"
                with fragile.admin() as new:
                    until(lambda: new.exists("x") or holder.lost.is_set())


class TestCluster:
    @pytest.mark.parametrize("face", FACES)
    def test_a_lease_that_replicas_do_not_confirm_is_lost_within_one_ttl(self, face: Face) -> None:
        ttl, cluster, prefix = stretched(1.5), clusters.steady(), f"{uuid4().hex}:"
        name = cluster.name_on(0, prefix)
        cluster.await_followed()
        with Holder(cluster.url(prefix, replicas="majority"), name, ttl, face) as holder:
            with (
                cluster.deaf(cluster.replicas[0], cluster.masters[0]),
                at_most(ttl, "it was renewed though no replica knows of it"),
            ):
                assert holder.lost.wait(PATIENCE)
        until(cluster.with_source)
        cluster.await_followed()

    @pytest.mark.parametrize("face", ["sync", "async"])
    @pytest.mark.parametrize("judge", [assert_writes_wait_for_replicas, assert_removals_wait_for_replicas])
    def test_what_replicas_do_not_confirm_may_have_been_applied(
        self, judge: Callable[[str, Face, Any], None], face: Face
    ) -> None:
        cluster, prefix = clusters.steady(), f"{uuid4().hex}:"

        @contextmanager
        def deaf() -> Iterator[None]:
            with ExitStack() as stack:
                for replica, master in zip(cluster.replicas, cluster.masters, strict=True):
                    stack.enter_context(cluster.deaf(replica, master))
                yield

        cluster.await_followed()
        judge(cluster.url(prefix, replicas="majority"), face, deaf)
        until(cluster.with_source)
        cluster.await_followed()

    def test_leases_of_other_shards_are_kept(self) -> None:
        ttl, cluster, prefix = stretched(1.0), clusters.steady(), f"{uuid4().hex}:"
        client = interlock.connect(cluster.url(prefix, replicas="majority"), ttl=ttl)
        lost = []
        for shard in range(3):
            for number in range(3):
                name = cluster.name_on(shard, prefix, f"s{number}")
                assert client.lock(name, on_lost=lambda lease: lost.append(lease.resource)).acquire()
        with cluster.deaf(cluster.replicas[1], cluster.masters[1]):
            until(lambda: len(lost) == 3)
        assert {cluster.shard(f"{prefix}{name}") for name in lost} == {1}
        client.close()
        until(cluster.with_source)
        cluster.await_followed()


def _written(admin: redis.Redis) -> int:
    """How often a server was told to move an expiry. A script's commands are counted, too."""
    facts: Any = admin.info("commandstats")
    return int(facts.get("cmdstat_pexpire", {"calls": 0})["calls"])


def _replication(admin: redis.Redis) -> dict[str, Any]:
    facts: Any = admin.info("replication")
    return dict(facts)


def _acquired(client: interlock.Client) -> bool:
    try:
        with client.lock("x", timeout=0.2):
            return True
    except StoreUnavailable:
        return False
