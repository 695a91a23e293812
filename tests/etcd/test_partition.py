"""A member that is cut off from the others goes on answering its clients: nothing that it alone says may count."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import interlock
from interlock.backends.etcd.address import Endpoint
from interlock.errors import InterlockError, LeaseLost, StoreUnavailable
from interlock.testing.lag import stretched
from interlock.testing.servers.etcd_partition import PartedCluster, parted
from interlock.testing.servers.proxy import Proxy
from tests.patience import PATIENCE, until

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def parts() -> Iterator[PartedCluster]:
    with parted() as cluster:
        yield cluster


def at(cluster: PartedCluster, number: int, **options: object) -> str:
    query = "".join(f"&{name}={value}" for name, value in options.items())
    return f"etcd://127.0.0.1:{cluster.members[number].port}?prefix=parted/{query}"


@pytest.mark.parametrize("leads", [True, False])
def test_a_holder_on_a_cut_off_member_knows_of_its_loss_before_another_is_let_in(
    parts: PartedCluster, leads: bool
) -> None:
    """Its client knows only that member. The others let the next one in when the session has lapsed there."""
    leader = parts.leader()
    alone = leader if leads else next(member for member in parts.members if member is not leader)
    number = parts.members.index(alone)
    others = ",".join(f"127.0.0.1:{m.port}" for m in parts.members if m is not alone)
    ttl = stretched(2.0)
    name = f"cut-{leads}"
    lost: list[float] = []
    with interlock.connect(at(parts, number), ttl=ttl, connect_timeout=1.0) as ours:
        with interlock.connect(f"etcd://{others}?prefix=parted/", ttl=ttl) as theirs:
            lease = ours.lock(name, on_lost=lambda lease: lost.append(time.monotonic())).acquire()
            assert lease
            with parts.alone(alone):
                with theirs.lock(name, timeout=60.0) as next_lease:
                    let_in = time.monotonic()
                    assert next_lease.token > lease.token
                    with pytest.raises(LeaseLost):
                        lease.check()
                    until(lambda: lost)
                    assert lost[0] <= let_in + stretched(0.2)
            parts.await_leader()


def test_a_waiter_on_a_cut_off_member_moves_on_to_another(parts: PartedCluster) -> None:
    """Its watch ends because the member has no leader; the client knows the other members."""
    leader = parts.leader()
    alone = next(member for member in parts.members if member is not leader)
    number = parts.members.index(alone)
    got: list[int] = []
    # The cut-off member is named first, and it does not lead: so the client must be there, and be made to leave.
    with interlock.connect(at(parts, number), ttl=20) as waiting:
        waiting._core.store._side.transport.address.endpoints += tuple(  # type: ignore[attr-defined]
            Endpoint("127.0.0.1", m.port) for m in parts.members if m is not alone
        )
        with interlock.connect(parts.url("parted/"), ttl=20) as holding:
            lease = holding.lock("moved").acquire()
            assert lease

            def wait() -> None:
                with waiting.lock("moved", timeout=60.0) as mine:
                    got.append(mine.token)

            thread = threading.Thread(target=wait)
            thread.start()
            until(lambda: len(holding.inspect("moved").waiters) == 1)
            with parts.alone(alone):
                time.sleep(stretched(1.0))
                lease.release()
                until(lambda: got, 30.0)
            thread.join(30.0)
    assert got[0] > lease.token
    parts.await_leader()


def test_a_holder_on_a_cut_off_member_keeps_its_lease_by_another(parts: PartedCluster) -> None:
    """The member goes on to acknowledge data and to answer pings; only what needs a leader is not answered."""
    leader = parts.leader()
    alone = next(member for member in parts.members if member is not leader)
    ttl = stretched(3.0)
    with interlock.connect(at(parts, parts.members.index(alone)), ttl=ttl) as ours:
        with ours.lock("kept") as lease:
            ours._core.store._side.transport.address.endpoints += tuple(  # type: ignore[attr-defined]
                Endpoint("127.0.0.1", m.port) for m in parts.members if m is not alone
            )
            with parts.alone(alone):
                time.sleep(1.5 * ttl)
                lease.check()
                with ours.lock("another", timeout=PATIENCE):
                    pass
    parts.await_leader()


def test_without_a_majority_calls_end_in_time_and_the_cluster_recovers(parts: PartedCluster) -> None:
    leader = parts.leader()
    others = [member for member in parts.members if member is not leader]
    with interlock.connect(parts.url("parted/"), ttl=20) as client:
        with client.lock("before"):
            pass
        for member in others:
            member.freeze()
        try:
            began = time.monotonic()
            with pytest.raises(InterlockError):
                pytest.fail(f"{client.lock('majority').acquire(timeout=1.0)} without a majority")
            assert time.monotonic() - began < stretched(3.0) + 5.0
        finally:
            for member in others:
                member.thaw()
        parts.await_leader()
        with client.lock("majority", timeout=30.0) as lease:
            lease.check()
        assert client.inspect("majority").standings == ()


@pytest.mark.parametrize("leads", [True, False])
def test_behind_a_balancer_a_cut_off_member_is_left(parts: PartedCluster, leads: bool) -> None:
    """A single address was never given up: its connection stayed at the member that is cut off, and no acquire got through."""
    leader = parts.leader()
    alone = leader if leads else next(member for member in parts.members if member is not leader)
    with (
        Proxy(alone.port) as balancer,
        interlock.connect(f"etcd://127.0.0.1:{balancer.port}?prefix=parted/", ttl=20) as client,
    ):
        with client.lock("before"):
            pass
        balancer.aim(alone.port, *(m.port for m in parts.members if m is not alone))
        with parts.alone(alone):
            held = 0
            for _ in range(7):
                try:
                    lease = client.lock("behind").acquire(timeout=5.0)
                    assert lease
                    lease.release()
                    held += 1
                except StoreUnavailable:
                    pass
            assert held >= 5, f"{held} of 7"
    parts.await_leader()


def test_short_calls_leave_a_cut_off_member(parts: PartedCluster) -> None:
    """Only a call that waited for a second by itself found out that the member serves nothing; none of these did."""
    leader = parts.leader()
    alone = next(member for member in parts.members if member is not leader)
    with interlock.connect(at(parts, parts.members.index(alone)), ttl=300) as client:
        with client.lock("before"):
            pass
        client._core.store._side.transport.address.endpoints += tuple(  # type: ignore[attr-defined]
            Endpoint("127.0.0.1", m.port) for m in parts.members if m is not alone
        )
        with parts.alone(alone):
            held: list[object] = []
            for _ in range(8):
                try:
                    held.append(client.lock("short").acquire(timeout=0.4))
                except StoreUnavailable:
                    held.append(None)
                if held[-1]:
                    break
            assert held[-1], "it stays at a member that is cut off"
    parts.await_leader()
