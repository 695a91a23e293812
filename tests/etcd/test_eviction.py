"""A member that is cut off does not know of an eviction: what a waiter that looks there may believe, and for how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

import interlock
from interlock.backends.etcd.address import Endpoint
from interlock.backends.etcd.algorithm import waits
from interlock.blocking import Client, Lease
from interlock.errors import Evicted, LeaseLost
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.etcd import Member
from interlock.testing.servers.etcd_partition import PartedCluster, parted
from tests.patience import PATIENCE, until

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def parts() -> Iterator[PartedCluster]:
    with parted() as cluster:
        yield cluster


class Scene:
    """A holder and an operator on the majority, and a waiter on a follower that is about to be cut off."""

    def __init__(self, parts: PartedCluster, ttl: float) -> None:
        self.ttl = ttl
        self.parts = parts
        leader = parts.leader()
        self.alone: Member = next(member for member in parts.members if member is not leader)
        others = ",".join(f"127.0.0.1:{m.port}" for m in parts.members if m is not self.alone)
        prefix = f"evict-{uuid4().hex}/"
        self.majority = interlock.connect(f"etcd://{others}?prefix={prefix}", ttl=ttl)
        self.behind = interlock.connect(f"etcd://{others}?prefix={prefix}", ttl=ttl)
        self.stale = interlock.connect(
            f"etcd://127.0.0.1:{self.alone.port}?prefix={prefix}", ttl=ttl, connect_timeout=1.0
        )
        self.threads: list[threading.Thread] = []
        self.over = threading.Event()

    def waits(self, client: Client, number: int) -> list[Lease | BaseException]:
        """Let a client wait on a thread of its own, and return what comes of it; it is the waiter with this number."""
        got: list[Lease | BaseException] = []

        def wait() -> None:
            try:
                lease = client.lock("x").acquire()
                assert lease
                got.append(lease)
                self.over.wait(PATIENCE)  # a lease is renewed while its owner lives
            except BaseException as error:
                got.append(error)

        self.threads.append(threading.Thread(target=wait))
        self.threads[-1].start()
        until(lambda: len(self.majority.inspect("x").waiters) == number)
        return got

    def evict(self, waiter: int) -> None:
        self.majority.evict("x", id=self.majority.inspect("x").waiters[waiter].id, reason="attack")

    def close(self) -> None:
        self.over.set()
        self.parts.heal()
        self.parts.await_leader()
        for client in (self.majority, self.behind, self.stale):
            client.close()
        for thread in self.threads:
            thread.join(PATIENCE)


@pytest.fixture
def scene(parts: PartedCluster) -> Iterator[Scene]:
    made = Scene(parts, ttl=stretched(3.0))
    try:
        yield made
    finally:
        made.close()


class Pause:
    """Stops one look, between the event that causes it and the request."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.armed, self.reached, self.go = threading.Event(), threading.Event(), threading.Event()
        original = waits._read_queue

        async def look(*arguments: object) -> object:
            if self.armed.is_set() and not self.reached.is_set() and arguments[2].id == self.id:  # type: ignore[attr-defined]
                self.reached.set()
                self.go.wait(PATIENCE)
            return await original(*arguments)  # type: ignore[arg-type]

        patch.setattr(waits, "_read_queue", look)
        self.id = ""


def test_the_claim_ahead_is_evicted_and_a_stale_member_lets_nobody_in_early(scene: Scene) -> None:
    held = scene.majority.lock("x").acquire()
    assert held
    got = scene.waits(scene.stale, 1)
    with scene.parts.alone(scene.alone):
        evicted = time.monotonic()
        scene.majority.evict("x", reason="attack")
        with pytest.raises(LeaseLost):
            held.renew()
        time.sleep(stretched(0.5))
        # Its session lives on the majority until it lapses there. The member does not know that it is first now, or it lapsed.
        assert not any(isinstance(found, Lease) for found in got), time.monotonic() - evicted
    scene.parts.await_leader()
    until(lambda: got)
    assert isinstance(got[0], Lease)
    assert got[0].token > held.token


def test_a_waiter_that_is_evicted_while_its_member_is_cut_off_is_never_let_in(scene: Scene) -> None:
    held = scene.majority.lock("x").acquire()
    assert held
    got = scene.waits(scene.stale, 1)
    with scene.parts.alone(scene.alone):
        scene.evict(0)
        held.release()
        with scene.behind.lock("x", timeout=PATIENCE):
            assert not got
    scene.parts.await_leader()
    until(lambda: got)
    assert isinstance(got[0], Evicted), got


@pytest.mark.parametrize("moves", [False, True])
def test_a_waiter_evicted_between_its_event_and_its_look_is_told_in_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    """The one moment in which a stale member's word is taken: the event was true, and the eviction came after it.

    The waiter believes that it holds, as a holder does that is evicted while it is cut off. Its token is lower than that of the next one, and it is
    told by its first renewal if its client reaches another member (`moves`), and at the end of its ttl at the latest.
    """
    pause = Pause(monkeypatch)
    held = scene.majority.lock("x").acquire()
    assert held
    between = scene.waits(scene.behind, 1)  # whoever follows the only claim ahead does not look
    got = scene.waits(scene.stale, 2)
    after = scene.waits(scene.behind, 3)
    pause.id = scene.majority.inspect("x").waiters[1].id
    pause.armed.set()
    held.release()
    until(lambda: between)
    assert isinstance(between[0], Lease)
    between[0].release()
    until(pause.reached.is_set)
    if moves:
        scene.stale._core.store._side.transport.address.endpoints += tuple(  # type: ignore[attr-defined]
            Endpoint("127.0.0.1", m.port) for m in scene.parts.members if m is not scene.alone
        )
    with scene.parts.alone(scene.alone):
        scene.majority.evict("x", id=pause.id, reason="attack")
        until(lambda: after)
        second = after[0]
        assert isinstance(second, Lease)
        with at_most(scene.ttl):
            pause.go.set()
            until(lambda: got)
            stale = got[0]
            assert isinstance(stale, Lease), "a stale member's word is no longer taken: say so in the page"
            assert stale.token < second.token
            assert stale.lost.wait(PATIENCE)
        with pytest.raises(LeaseLost, match="attack" if moves else "ran out"):
            stale.check()
        second.check()
