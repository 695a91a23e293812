"""The failures of the literature, step by step, for any lock.

Each is played twice: with a naive lock, which the judge must convict, and with interlock, which it must
acquit. `Cast` says who plays: the same steps, whatever the lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from interlock._support import clock
from interlock.lab.storm.director import Scene
from interlock.lab.storm.faults.fault import down
from interlock.lab.storm.faults.zookeeper import cut
from interlock.lab.storm.verdict import Verdict
from interlock.lab.storm.workers.crew import Worker
from interlock.lab.storm.workers.naive import is_naive
from interlock.testing.lag import stretched
from interlock.testing.patience import PATIENCE
from interlock.testing.servers.sentinel import until

X = "x"


@dataclass(frozen=True, slots=True)
class Cast:
    """A scene, and how its workers lock: a face of interlock, or a naive lock."""

    scene: Scene
    kind: str

    @property
    def naive(self) -> bool:
        return is_naive(self.kind)

    def hire(self) -> Worker:
        field = self.scene.field
        place = field.naive_place() if self.naive else field.places()[0]
        return self.scene.crew.hire(self.kind, place)

    @property
    def servers(self) -> Any:
        """The deployment; a schedule knows which it is."""
        return self.scene.field

    def lapse(self) -> None:
        """Let a ttl pass that began before now."""
        end = clock.now() + self.scene.ttl
        until(lambda: clock.now() > end)


Schedule = Callable[[Cast], None]


def both_count(first: Worker, second: Worker, value: int) -> bool:
    """The second reads and writes; then the first writes what it read before. True if that was accepted."""
    assert second.count(X)
    return first.write(X, value + 1)


def stopped_past_its_ttl(cast: Cast) -> None:
    """A is stopped while it holds, B takes over; A wakes up, writes, releases; C tries while B holds."""
    a, b, c = cast.hire(), cast.hire(), cast.hire()
    assert a.acquire(X) is not None
    value = a.tell("read", resource=X)["value"]
    with cast.scene.suffering("stop client", "E"):
        a.freeze()
        cast.lapse()
        assert b.acquire(X, PATIENCE) is not None
        a.thaw()
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
        cast.servers.server.empty()
    _second(cast, a, b, value)


def master_lost_with_its_last_write(cast: Cast) -> None:
    """A's grant reached no replica, and one of those is master now."""
    sentinels = cast.servers.set
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
    _one_of_three(cast, "node restarted empty", "E", lambda node: node.empty())


def node_clock_jumps(cast: Cast) -> None:
    """A holds on three of five; the clock of one of them jumps past the ttl; B reaches it and two more."""
    _one_of_three(cast, "clock forward", "f", lambda node: node.jump(3 * cast.scene.ttl))


def _one_of_three(cast: Cast, fault: str, promise: str, strike: Callable[[Any], object]) -> None:
    nodes = cast.servers.servers
    a, b = cast.hire(), cast.hire()
    _once(a)  # five new nodes begin together: all of them must be there
    with down(nodes[3:]):
        assert a.acquire(X, 20.0) is not None
    value = a.tell("read", resource=X)["value"]
    with cast.scene.suffering(fault, promise):
        strike(nodes[2])
        with down(nodes[:2]):
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
    with cast.scene.suffering("node restarted empty", "E"):
        cast.servers.servers[0].empty()
    _once(b)


def _second(cast: Cast, a: Worker, b: Worker, value: int) -> None:
    assert b.acquire(X, PATIENCE) is not None
    both_count(a, b, value)
    for worker in (a, b):
        worker.tell("release", resource=X)


def _once(worker: Worker) -> None:
    """One more round; who is refused because too few servers are back asks again, as a program would."""
    end = clock.now() + PATIENCE
    while clock.now() < end:
        if worker.acquire(X, 2.0) is not None:
            worker.count(X)
            worker.tell("release", resource=X)
            return


def two_buyers(cast: Cast) -> None:
    """A reads what is left and takes its time; B, if it is let in, sells meanwhile; then A sells, too."""
    a, b = cast.hire(), cast.hire()
    assert a.acquire(X, PATIENCE) is not None
    value = a.tell("read", resource=X)["value"]
    _work_side_by_side(a, b, X, value)
    _once(b)


def entered_twice(cast: Cast) -> None:
    """A enters twice and leaves once: it is still inside. B wants to come in, and A goes on working."""
    name = X if cast.naive else f"rlock:{X}"
    a, b = cast.hire(), cast.hire()
    for _ in range(2):
        assert a.acquire(name, PATIENCE) is not None
    value = a.tell("read", resource=name)["value"]
    a.tell("release", resource=name)
    _work_side_by_side(a, b, name, value)


def _work_side_by_side(a: Worker, b: Worker, name: str, value: int) -> None:
    """B counts if it is let in; then A writes what it had read before, and both leave."""
    granted = b.acquire(name, stretched(0.3)) is not None
    if granted:
        b.count(name)
    a.write(name, value + 1)
    a.tell("release", resource=name)
    if granted:
        b.tell("release", resource=name)


def standby_promoted(cast: Cast) -> None:
    """A's grant reached no standby, and the standby is the primary now."""
    server = cast.servers.server
    a, b = cast.hire(), cast.hire()
    _once(a)
    with cast.scene.suffering("standby promoted, writes lost", "f"):
        standby = server.copy()
        assert a.acquire(X, 20.0) is not None
        value = a.tell("read", resource=X)["value"]
        server.promote(standby)
    _second(cast, a, b, value)


def follower_that_answers_pings(cast: Cast) -> None:
    """A is connected to a follower, and holds; the follower is cut off; B, elsewhere, wants the lock."""
    field, crew = cast.servers, cast.scene.crew
    follower = field.ensemble.follower()
    others = [node.port for node in field.ensemble.nodes if node is not follower]
    a = crew.hire(cast.kind, field.place(follower.port))
    b = crew.hire("sync", field.place(*others))
    assert a.acquire(X, PATIENCE) is not None
    value = a.tell("read", resource=X)["value"]
    with cast.scene.suffering("follower cut off", "E"):
        cut(field, follower, "hole")
        assert b.acquire(X, PATIENCE) is not None
        a.tell("check", resource=X)
        time.sleep(0.3)  # both may believe
        both_count(a, b, value)
        cut(field, follower, "pass")
        field.ensemble.ready()
    for worker in (a, b):
        worker.tell("release", resource=X)
    _once(b)


def crowd_killed(cast: Cast) -> None:
    """A holds, a hundred wait, fifty of them are killed at once; A lets go, and the rest get through."""
    a = cast.hire()
    assert a.acquire(X) is not None
    dead, alive = cast.hire(), cast.hire()
    for worker in (dead, alive):
        worker.tell("loop", resources=[X], limits=[60.0], seed="crowd", hands=50, long=0.0)
    import interlock

    with interlock.connect(cast.scene.field.places()[0]) as client:
        until(lambda: len(client.inspect(X).waiters) == 100)
    with cast.scene.suffering("kill fifty", "E"):
        cast.scene.crew.kill(dead)
    a.tell("release", resource=X)
    cast.scene.await_counts([X], PATIENCE)


def played(cast: Cast, schedule: Schedule) -> Verdict:
    """The verdict on one schedule."""
    schedule(cast)
    cast.scene.journal.add("heal", "ok")
    if not cast.naive:
        cast.scene.finish()
    return cast.scene.verdict([X], cast.scene.ttl + cast.scene.settles)
