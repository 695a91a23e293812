"""Directed schedules: the failures of the literature, step by step, for any lock.

Each is run twice: with a naive lock, which the judges must convict, and with interlock, which they must acquit.
`Cast` says who plays: the same steps, whatever the lock.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from interlock._support import clock
from interlock.testing.lag import stretched
from interlock.testing.servers.sentinel import until
from tests.patience import PATIENCE
from tests.storm.crew import Hand
from tests.storm.storm import Scene

X = "x"


@dataclass(frozen=True, slots=True)
class Cast:
    """A scene, and how its workers lock: a face of interlock, or a naive lock."""

    scene: Scene
    kind: str

    @property
    def naive(self) -> bool:
        return self.kind not in ("sync", "async")

    def hire(self) -> Hand:
        field = self.scene.field
        if not self.naive:
            return self.scene.hire(self.kind)
        servers = [field.set.master()] if field.kind == "sentinel" else field.servers
        return self.scene.crew.hire(self.kind, [server.port for server in servers])

    def lapse(self) -> None:
        """Let a ttl pass that began before now."""
        end = clock.now() + self.scene.ttl
        until(lambda: clock.now() > end)


Schedule = Callable[[Cast], None]


@contextmanager
def away(servers: list[Any]) -> Iterator[None]:
    """Crashed, and back with what their disks have. Not frozen: they would do later what they were asked then."""
    for server in servers:
        server.kill()
    yield
    for server in servers:
        server.start()


def both_count(first: Hand, second: Hand, value: int) -> bool:
    """The second reads and writes; then the first writes what it read before. True if that was accepted."""
    assert second.count(X)
    return first.write(X, value + 1)


def stopped_past_its_ttl(cast: Cast) -> None:
    """A is stopped while it holds, B takes over, A runs again: writes, and releases; C tries while B holds."""
    a, b, c = cast.hire(), cast.hire(), cast.hire()
    assert a.acquire(X) is not None
    value = a.tell("read", resource=X)["value"]
    with cast.scene.suffering("stop client", "E"):
        a.signal(signal.SIGSTOP)
        cast.lapse()
        assert b.acquire(X, PATIENCE) is not None
        a.signal(signal.SIGCONT)
    both_count(a, b, value)
    a.tell("release", resource=X)
    if c.acquire(X) is not None:
        c.tell("release", resource=X)
    b.tell("release", resource=X)
    _once(c)


def killed_while_it_holds(cast: Cast) -> None:
    """A is killed; B wants to be next."""
    a, b = cast.hire(), cast.hire()
    assert a.acquire(X) is not None
    with cast.scene.suffering("kill client", "E"):
        cast.scene.crew.kill(a)
    if b.acquire(X, cast.scene.ttl + stretched(2.0)) is not None:
        b.count(X)
        b.tell("release", resource=X)


def server_forgets(cast: Cast) -> None:
    """The server comes back empty while A holds: B is let in, and both write."""
    a, b = cast.hire(), cast.hire()
    assert a.acquire(X) is not None
    value = a.tell("read", resource=X)["value"]
    with cast.scene.suffering("empty restart", "L"):
        cast.scene.field.server.empty()
    _second(cast, a, b, value)


def master_lost_with_its_last_write(cast: Cast) -> None:
    """A's grant reached no replica, and one of those is master now."""
    sentinels = cast.scene.field.set
    a = cast.hire()
    with cast.scene.suffering("fail over, writes lost", "f"):
        old = sentinels.master()
        with sentinels.deaf():
            assert a.acquire(X, 20.0) is not None
            value = a.tell("read", resource=X)["value"]
            old.kill()
        sentinels.await_other_than(old)
    b = cast.hire()  # a naive one is led to the new master; interlock finds it
    _second(cast, a, b, value)


def node_restarted_empty(cast: Cast) -> None:
    """A holds on three of five; one of them comes back empty; B reaches that one and the two others."""
    nodes = cast.scene.field.servers
    a, b = cast.hire(), cast.hire()
    _once(a)  # five new nodes begin together: all of them must be there
    with away(nodes[3:]):
        assert a.acquire(X, 20.0) is not None
    value = a.tell("read", resource=X)["value"]
    with cast.scene.suffering("empty restart", "E"):
        nodes[2].empty()
        with away(nodes[:2]):
            granted = b.acquire(X, stretched(0.4)) is not None
            if granted:
                both_count(a, b, value)
    a.tell("release", resource=X)
    if granted:
        b.tell("release", resource=X)
    _once(b)


def node_clock_jumps(cast: Cast) -> None:
    """A holds on three of five; the clock of one of them jumps past the ttl; B reaches that one and the two others."""
    nodes = cast.scene.field.servers
    a, b = cast.hire(), cast.hire()
    _once(a)  # five new nodes begin together: all of them must be there
    with away(nodes[3:]):
        assert a.acquire(X, 20.0) is not None
    value = a.tell("read", resource=X)["value"]
    with cast.scene.suffering("clock forward", "f"):
        nodes[2].jump(3 * cast.scene.ttl)
        with away(nodes[:2]):
            granted = b.acquire(X, stretched(0.4)) is not None
            if granted:
                both_count(a, b, value)
    a.tell("release", resource=X)
    if granted:
        b.tell("release", resource=X)
    _once(b)


def first_node_restarted_empty(cast: Cast) -> None:
    """Three grants, one after the other; then the first node comes back empty, and there is a fourth."""
    a, b = cast.hire(), cast.hire()
    for _ in range(3):
        assert a.acquire(X, 20.0) is not None
        a.count(X)
        a.tell("release", resource=X)
    with cast.scene.suffering("empty restart", "E"):
        cast.scene.field.servers[0].empty()
    _once(b)


def _second(cast: Cast, a: Hand, b: Hand, value: int) -> None:
    assert b.acquire(X, PATIENCE) is not None
    both_count(a, b, value)
    for hand in (a, b):
        hand.tell("release", resource=X)


def _once(hand: Hand) -> None:
    """One more round; who is refused because too few servers are back asks again, as a program would."""
    end = clock.now() + PATIENCE
    while clock.now() < end:
        if hand.acquire(X, 2.0) is not None:
            hand.count(X)
            hand.tell("release", resource=X)
            return


def crowd_killed(cast: Cast) -> None:
    """A holds, a hundred wait, fifty of them are killed at once; A lets go, and the rest get through."""
    a = cast.hire()
    assert a.acquire(X) is not None
    dead, alive = cast.hire(), cast.hire()
    for hand in (dead, alive):
        hand.tell("loop", resources=[X], limits=[60.0], seed="crowd", hands=50, long=0.0)
    import interlock

    with interlock.connect(cast.scene.field.places()[0]) as client:
        until(lambda: len(client.inspect(X).waiters) == 100)
    with cast.scene.suffering("kill fifty", "E"):
        cast.scene.crew.kill(dead)
    a.tell("release", resource=X)
    cast.scene.await_counts([X], PATIENCE)


def played(cast: Cast, schedule: Schedule, resources: list[str]) -> Any:
    """The verdict on one schedule."""
    schedule(cast)
    cast.scene.journal.add("heal", "ok")
    if not cast.naive:
        cast.scene.finish()
    return cast.scene.verdict(resources, cast.scene.ttl + cast.scene.settles)
