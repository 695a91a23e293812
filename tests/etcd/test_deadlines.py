"""An acquire on a bad link is back in time, however many requests it makes and however long each of them takes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import interlock
from interlock import aio
from interlock.backends.etcd.address import Endpoint
from interlock.backends.etcd.algorithm.side import RECONNECT_S
from interlock.backends.etcd.store import EtcdStore
from interlock.backends.etcd.transport.blocking import UNCHECKED_S
from interlock.backends.kit.connect_pace import SPARE_S
from interlock.errors import InterlockError, StoreUnavailable
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.etcd import EtcdCluster, Member, running
from interlock.testing.servers.proxy import Mode, Proxy, proxies, through

TIMEOUT = 0.3
CONNECT = 0.5  # seconds that connecting may take, once in each call
LATE = 0.25  # seconds by which a call may be late beyond that

pytestmark = pytest.mark.chaos


@contextmanager
def linked(cluster: EtcdCluster, connect: float = CONNECT) -> Iterator[tuple[list[Proxy], str]]:
    """A way to each member, and the URL of all of them."""
    with proxies([member.port for member in cluster.members]) as ways:
        yield ways, through(ways, f"etcd://{cluster.hosts}?prefix=deadlines/&connect_timeout={connect}")


def spoil(ways: list[Proxy], mode: Mode) -> None:
    for way in ways:
        way.set(mode)


@pytest.mark.parametrize("mode", ["hole", "cut", "half_open", "late"])
def test_a_newcomer(cluster: EtcdCluster, mode: Mode) -> None:
    """It needs a session, and perhaps a connection, before it can claim: together they are late once."""
    with linked(cluster) as (ways, url), interlock.connect(url) as client:
        for ttl in range(3, 9):  # each has a session of its own
            with client.lock(f"warm-{mode}", ttl=20):
                pass
            spoil(ways, mode)
            with at_most(TIMEOUT + CONNECT + stretched(LATE), mode):
                try:
                    client.lock(f"new-{mode}", ttl=ttl).acquire(timeout=TIMEOUT)
                except InterlockError:
                    pass
            spoil(ways, "pass")


def test_a_connected_caller_does_not_wait_for_connect_timeout_when_its_member_fails(
    cluster: EtcdCluster,
) -> None:
    """Connecting again has a few times what it took before. It had all of `connect_timeout`: an acquire with 0.3 s took 1.3 s, or 5."""
    with linked(cluster, 10.0) as (ways, url), interlock.connect(url) as client:
        with client.lock("warm", ttl=20):
            pass
        store = client._core.store
        assert isinstance(store, EtcdStore)
        store._side.transport.took = 0.01  # on a busy machine it may have taken seconds
        for way in ways:  # what stands is cut, and nobody answers who connects again
            way.set("cut")
            way.set("hole")
        with at_most(TIMEOUT + RECONNECT_S + stretched(LATE)), pytest.raises(InterlockError):
            client.lock("new", ttl=20).acquire(timeout=TIMEOUT)
        spoil(ways, "pass")


def test_a_member_that_was_slow_once_makes_no_later_call_late(fragile: EtcdCluster) -> None:
    """It counted as far away for as long as the connection lived: an acquire with 0.3 s took 1.6 s when it hung again."""
    member = fragile.members[0]
    with interlock.connect(f"etcd://127.0.0.1:{member.port}?connect_timeout=10", ttl=20) as client:
        with client.lock("warm"):
            pass
        store = client._core.store
        assert isinstance(store, EtcdStore)
        line = store._side.transport.ready_connection()
        assert line is not None
        line.end("the test wants another")
        member.freeze()
        thaw = threading.Timer(0.8, member.thaw)
        thaw.start()
        with client.lock("warm"):
            thaw.join()
        for _ in range(10):
            with client.lock("warm"):
                pass
        line = store._side.transport.ready_connection()
        assert line is not None
        assert line.least < 0.8, "it counts as far away"
        store._side.transport.took = 0.01  # what connecting again may take is another matter
        with member.frozen(), at_most(TIMEOUT + RECONNECT_S + stretched(LATE)), pytest.raises(InterlockError):
            client.lock("new").acquire(timeout=TIMEOUT)


@pytest.mark.parametrize("mode", ["hole", "cut", "half_open", "late"])
@pytest.mark.parametrize("after", [0.02, 0.25])
def test_a_waiter(cluster: EtcdCluster, mode: Mode, after: float) -> None:
    """The link fails while it waits, so that it connects again, and asks a last time when its own time is up."""
    with (
        linked(cluster) as (ways, url),
        interlock.connect(url) as client,
        interlock.connect(cluster.url("deadlines/")) as direct,
        direct.lock(f"held-{mode}"),
    ):
        for _ in range(4):
            with client.lock(f"warm-{mode}"):
                pass
            fault = threading.Timer(after, spoil, (ways, mode))
            fault.start()
            with at_most(TIMEOUT + CONNECT + stretched(LATE), mode):
                try:
                    assert client.lock(f"held-{mode}").acquire(timeout=TIMEOUT) is None
                except InterlockError:
                    pass
            fault.join()
            spoil(ways, "pass")


def test_a_member_that_hangs_takes_no_more_than_the_timeout_from_the_second_call_on() -> None:
    """Every call that had to connect again took `connect_timeout` longer: 6 s with a timeout of 1, and 5 s with `blocking=False`."""
    with running(1) as alone, interlock.connect(alone.url("hangs/")) as client:
        with client.lock("warm"):
            pass
        with alone.members[0].frozen():
            for _ in range(3):
                with at_most(1.0 + RECONNECT_S + stretched(LATE)), pytest.raises(StoreUnavailable):
                    client.lock("x").acquire(timeout=1.0)
            for _ in range(3):
                with at_most(SPARE_S + RECONNECT_S + stretched(LATE)), pytest.raises(StoreUnavailable):
                    client.lock("x").acquire(blocking=False)
        with client.lock("x"):
            pass


def test_tasks_keep_their_timeouts_when_a_member_hangs() -> None:
    async def main(alone: EtcdCluster) -> None:
        async with aio.connect(alone.url("hangs/")) as client:
            async with client.lock("warm"):
                pass
            with alone.members[0].frozen():
                for _ in range(3):
                    with at_most(1.0 + RECONNECT_S + stretched(LATE)), pytest.raises(StoreUnavailable):
                        await client.lock("x").acquire(timeout=1.0)
                for _ in range(3):
                    with at_most(SPARE_S + RECONNECT_S + stretched(LATE)), pytest.raises(StoreUnavailable):
                        await client.lock("x").acquire(blocking=False)
            async with client.lock("x"):
                pass

    with running(1) as alone:
        asyncio.run(main(alone))


def test_short_calls_leave_a_frozen_member(fragile: EtcdCluster) -> None:
    """After half a second of rest, a call looked at the socket first, which counted as a sign of life: it stayed there for ever."""
    with interlock.connect(fragile.url("frozen/"), ttl=300) as client:
        with client.lock("warm"):
            pass
        store = client._core.store
        assert isinstance(store, EtcdStore)
        with used(fragile, store).frozen():
            held = []
            for _ in range(8):
                store_rests(store)
                try:
                    held.append(client.lock("x").acquire(timeout=0.5))
                except StoreUnavailable:
                    held.append(None)
                if held[-1]:
                    break
            assert held[-1], "it stays on a frozen member"


@pytest.mark.parametrize("ttl", [1.0, 4.0])
def test_a_release_at_a_frozen_member_goes_on_to_another(fragile: EtcdCluster, ttl: float) -> None:
    """One second at the frozen member was all that a lease with a short ttl had."""
    follower = fragile.followers()[0]  # no election is needed
    with interlock.connect(f"etcd://127.0.0.1:{follower.port}?prefix=frozen/", ttl=stretched(ttl)) as client:
        lease = client.lock("y").acquire()
        assert lease
        store = client._core.store
        assert isinstance(store, EtcdStore)
        store._side.transport.address.endpoints += tuple(
            Endpoint("127.0.0.1", member.port) for member in fragile.members if member is not follower
        )
        with follower.frozen():
            lease.release()


@pytest.mark.parametrize("first", [True, False], ids=["next-lives", "next-is-frozen-too"])
def test_a_call_that_is_under_way_behind_a_balancer_leaves_its_frozen_member(
    fragile: EtcdCluster, first: bool
) -> None:
    """It used up all of its time at the member that had it, and only the next call was served."""
    frozen, *others = fragile.followers()
    with (
        Proxy(fragile.leader().port) as way,
        interlock.connect(f"etcd://127.0.0.1:{way.port}?prefix=balanced/", ttl=300) as client,
    ):
        way.aim(frozen.port)
        with client.lock("warm"):
            pass
        # The keeper's connection stays where it is: nothing is renewed here.
        way.aim(*([] if first else [frozen.port]), others[0].port)
        with frozen.frozen():
            lease = client.lock("x").acquire(timeout=4.5)
        assert lease
        lease.release()


@pytest.mark.parametrize("first", [True, False], ids=["next-lives", "next-is-frozen-too"])
def test_a_task_leaves_a_frozen_member_behind_a_balancer(fragile: EtcdCluster, first: bool) -> None:
    async def main(url: str) -> None:
        async with aio.connect(url, ttl=300) as client:
            way.aim(frozen.port)
            async with client.lock("warm"):
                pass
            way.aim(*([] if first else [frozen.port]), others[0].port)
            with frozen.frozen():
                lease = await client.lock("x").acquire(timeout=4.5)
            assert lease
            await lease.release()

    frozen, *others = fragile.followers()
    with Proxy(fragile.leader().port) as way:
        asyncio.run(main(f"etcd://127.0.0.1:{way.port}?prefix=balanced/"))


def used(cluster: EtcdCluster, store: EtcdStore) -> Member:
    """The member that the calls of a store are sent to."""
    line = store._side.transport.ready_connection()
    assert line is not None
    return next(member for member in cluster.members if member.port == line.endpoint.port)


def store_rests(store: EtcdStore) -> None:
    """As if nothing had arrived for a while."""
    line = store._side.transport.ready_connection()
    if line is not None:
        line.heard -= 2 * UNCHECKED_S
