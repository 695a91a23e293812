"""Schedules that hurt a quorum, each on purpose and at the worst moment, in virtual time.

A schedule runs and returns the violations it found: none, with the shipped algorithm. A minority of the nodes may forget;
links may be slow or cut as they like.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from interlock.aio import Lease
from interlock.backends.redlock.wire.requests import Admit, CheckIn, Release, Vote
from interlock.errors import StoreUnavailable
from interlock.testing.checkers import Terms, Violation, judge
from interlock.testing.faults import Faults
from interlock.testing.simulated_cluster import ClientProcess
from interlock.testing.simulated_quorum import BORN
from interlock.testing.simulated_runtime import SimulatedRuntime
from tests.redlock.simulation.quorum_cluster import NODE_TIMEOUT, SIZE, QuorumCluster

Schedule = Callable[[], list[Violation]]
SCHEDULES: dict[str, Schedule] = {}


class Scene:
    """Five nodes, three processes that have met them, and a director who decides what is late and what is lost.

    If the nodes are `new`, nobody has met them, and they have no votes.
    """

    def __init__(self, ttl: float = 1.0, node_timeout: float = NODE_TIMEOUT, *, new: bool = False) -> None:
        self.cluster = QuorumCluster(7, ttl=ttl, new=new, node_timeout=node_timeout)
        self.servers = self.cluster.servers
        self.world = self.cluster.world
        self.director = SimulatedRuntime(self.world, "director")
        self.processes = [self.cluster.add_process() for _ in range(3)]
        for process in self.processes:
            self.cluster.walls[process.name] = 0.0
        if not new:
            self.run(1.0, *(self.held(process, f"{process.name}'s own") for process in self.processes))

    async def held(
        self,
        process: ClientProcess,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float = 0.5,
        keep: float = 0.0,
    ) -> None:
        """Take a lock, keep it a while, and let go; it is renewed as long as this runs."""
        lease = await self.taken(process, name, ttl, timeout)
        if lease is not None:
            await process.runtime.sleep(keep)
            await lease.release()

    async def taken(
        self, process: ClientProcess, name: str, ttl: float | None = None, timeout: float = 0.5
    ) -> Lease | None:
        """The lease; None where it is refused."""
        try:
            return await process.client.lock(name, ttl=ttl or self.cluster.ttl).acquire(timeout=timeout)
        except StoreUnavailable:
            return None

    async def looked(self, process: ClientProcess) -> None:
        """Look who holds the lock: whoever finds nodes without a vote looks after them."""
        with suppress(StoreUnavailable):
            await process.client.lock("r").locked()

    def run(self, seconds: float, *works: Coroutine[Any, Any, object]) -> None:
        """Let all of them work, and that much time pass."""

        async def run(work: Coroutine[Any, Any, object]) -> None:
            await work

        for work in works:
            self.director.spawn("work", run(work))
        self.world.run(self.world.time + seconds)
        assert not self.world.failures, self.world.failures

    def stall(self, process: ClientProcess, nodes: Iterable[int], seconds: float) -> None:
        """Nothing moves between a process and these nodes for a while; then all of it does."""
        for node in nodes:
            self.cluster.ways[process.name][node].stalled_until = self.cluster.network.now() + seconds

    def cut(self, process: ClientProcess, *nodes: int) -> None:
        for node in nodes:
            self.cluster.ways[process.name][node].cut()

    def mend(self, process: ClientProcess, *nodes: int) -> None:
        for node in nodes:
            self.cluster.ways[process.name][node].heal()

    def deafen(self, process: ClientProcess, *nodes: int) -> None:
        """What these nodes say is lost; what they are told is not."""
        for node in nodes:
            self.cluster.ways[process.name][node].faults = Faults(lose_reply=1.0)

    def found(self) -> list[Violation]:
        """What must never happen and did, by now."""
        found = judge(self.cluster.history, Terms(progress=100.0, heartbeat=100.0))
        self.world.close()
        return found


def schedule(run: Schedule) -> Schedule:
    SCHEDULES[run.__name__.replace("_", " ")] = run
    return run


@schedule
def a_node_forgets_while_a_round_that_counts_it_is_under_way() -> list[Violation]:
    """One asks with a ttl nobody has seen before; everybody else has short ones, and would readmit soon."""
    scene = Scene(ttl=0.06)
    slow, mender, other = scene.processes
    scene.stall(slow, (1, 2), 0.4)
    scene.cut(slow, 3, 4)
    scene.run(0.004, scene.taken(slow, "r", ttl=30.0))  # node 0 has said yes, and is heard
    scene.servers[0].flush()
    for _ in range(20):  # its loss is noticed, and looked after
        scene.run(0.02, scene.held(mender, "m"))
    scene.run(0.1)  # the slow one has its majority now, if an answer that was forgotten counts
    scene.cut(other, 1, 2)
    scene.run(0.5, scene.held(other, "r", keep=0.02))
    return scene.found()


@schedule
def a_stopped_client_hears_what_was_said_before_a_node_forgot() -> list[Violation]:
    """Stopped within its round, it finds all the answers when it goes on: one of them is no longer true."""
    scene = Scene(ttl=0.06)
    stopped, mender, other = scene.processes
    scene.stall(stopped, (1, 2), 10.0)
    scene.cut(stopped, 3, 4)
    stopped.runtime.spawn("work", _ignored(scene.taken(stopped, "r", ttl=3600.0)))
    scene.run(0.004)
    stopped.pause()
    scene.servers[0].flush()
    for _ in range(90):
        scene.run(0.1, scene.held(mender, "m"))
    assert scene.servers[0].memory.votes
    scene.run(1.5)  # nodes 1 and 2 have said yes now, too
    stopped.resume()
    scene.run(0.01)
    scene.cut(other, 1, 2)
    scene.run(0.3, scene.held(other, "r", keep=0.02))
    return scene.found()


@schedule
def the_forgetful_node_is_slow_to_say_that_its_time_is_over() -> list[Violation]:
    """The others are read while a grant that counts it is still under way: that floor would be too low."""
    return [
        violation
        for round in (0.4, 0.9, 1.4, 1.9)  # seconds until the grant is complete
        for hush in (0.2, 0.7, 1.0, 1.3, 1.6, 1.9)  # seconds until the node is slow, for almost one
        for violation in _read_early(round, hush)
    ]


def _read_early(round: float, hush: float) -> list[Violation]:
    scene = Scene(ttl=1.0, node_timeout=0.2)
    ahead, mender, behind = scene.processes
    scene.cluster.walls[ahead.name] = 3600.0
    scene.stall(ahead, (1, 2), round)
    scene.cut(ahead, 3, 4)
    scene.run(0.004, scene.taken(ahead, "r", ttl=10.0, timeout=3.0))
    scene.servers[0].flush()
    scene.run(hush, scene.held(mender, "m"))  # noticed: its quarantine begins
    scene.stall(mender, (0,), 0.95)  # a look hears the others at once, and it when its time may be over
    for _ in range(16):
        scene.run(1.0, scene.held(mender, "m"))
    assert scene.servers[0].memory.votes
    scene.cut(behind, 1, 2)
    scene.run(1.0, scene.held(behind, "r"))
    return scene.found()


@schedule
def a_node_forgets_the_highest_number() -> list[Violation]:
    """It is readmitted, and meets a client whose clock is behind, which those who remember do not reach."""
    scene = Scene(ttl=0.5)
    ahead, mender, behind = scene.processes
    scene.cluster.walls[ahead.name] = 3600.0
    scene.cut(ahead, 3, 4)
    scene.run(0.1, scene.held(ahead, "r"))
    scene.servers[0].flush()
    for _ in range(16):
        scene.run(0.5, scene.held(mender, "m"))
    assert scene.servers[0].memory.votes
    scene.cut(behind, 1, 2)
    scene.run(1.0, scene.held(behind, "r"))
    return scene.found()


def _first_try(scene: Scene, process: ClientProcess) -> tuple[Vote, Release]:
    """A try that enters on node 0 and fails; it answers what node 0 was sent, copies of which may come late."""
    scene.cut(process, 1, 2, 3, 4)
    scene.deafen(process, 0)
    process.runtime.spawn("work", scene.held(process, "r", timeout=5.0, keep=60.0))
    scene.run(0.4)
    ((id, stands),) = scene.servers[0].memory.claims["r"].items()
    scene.run(0.12)  # given up, and taken back
    return Vote(stands.claim, stands.token), Release("r", id, upto=stands.token)


@schedule
def a_release_of_the_first_try_meets_the_second() -> list[Violation]:
    """ClientProcess 0 is told to forget the try that failed when it holds the next one, and the holder counts on it."""
    scene = Scene(ttl=6.0)
    holder, _, other = scene.processes
    _, late = _first_try(scene, holder)
    scene.mend(holder, 0, 1, 2)
    scene.run(1.0)
    scene.servers[0].memory.answer(late)
    scene.cut(other, 1, 2)
    scene.run(0.5, scene.held(other, "r"))
    return scene.found()


@schedule
def a_renewal_meets_what_the_first_try_left() -> list[Violation]:
    """ClientProcess 0 takes a late copy of the try that failed, and then hears of its release, after the next one was renewed."""
    scene = Scene(ttl=12.0)
    holder, _, other = scene.processes
    vote, release = _first_try(scene, holder)
    scene.cut(holder, 0)
    scene.mend(holder, 1, 2, 3)
    scene.run(0.5)  # granted by 1, 2 and 3
    scene.mend(holder, 0)
    scene.cut(holder, 3)
    scene.run(3.0)
    scene.servers[0].memory.answer(vote)
    scene.run(1.5)  # renewed by 1 and 2, and by 0 if that counts
    scene.servers[0].memory.answer(release)
    scene.cut(other, 1, 2)
    for _ in range(52):
        scene.run(0.2, scene.held(other, "r", keep=0.05))
    return scene.found()


@schedule
def a_node_restarts_with_old_numbers() -> list[Violation]:
    """It had not written the newest to its disk when it died, and comes back as if nothing had happened."""
    scene = Scene(ttl=1.0)
    ahead, _, behind = scene.processes
    server = next(server for server in scene.servers if not server.memory.durable)
    rest = [n for n in range(SIZE) if scene.servers[n] is not server]
    scene.run(0.1, scene.held(behind, "r"))
    server.save()
    scene.cluster.walls[ahead.name] = 3600.0
    scene.cut(ahead, *rest[2:])
    scene.run(0.1, scene.held(ahead, "r"))
    server.crash()
    server.start(saved=True)
    scene.cut(behind, *rest[:2])
    for _ in range(8):
        scene.run(0.5, scene.held(behind, "r"))
    return scene.found()


@schedule
def a_usual_vote_meets_a_node_that_has_just_forgotten() -> list[Violation]:
    """Nobody has noticed yet, and the client that asks has locked the name a moment ago."""
    scene = Scene(ttl=6.0)
    holder, _, other = scene.processes
    for _ in range(3):
        scene.run(0.1, scene.held(other, "r"))
    scene.cut(holder, 3, 4)
    scene.run(0.2, scene.taken(holder, "r"))
    scene.servers[0].flush()
    scene.cut(other, 1, 2)
    scene.run(0.5, scene.held(other, "r", keep=0.02))
    return scene.found()


@schedule
def a_usual_vote_meets_numbers_that_were_rolled_back() -> list[Violation]:
    """The node has its vote again, with a floor above what it had forgotten, when the client comes back to the name."""
    scene = Scene(ttl=0.5)
    ahead, mender, behind = scene.processes
    server = next(server for server in scene.servers if not server.memory.durable)
    rest = [n for n in range(SIZE) if scene.servers[n] is not server]
    for _ in range(3):
        scene.run(0.1, scene.held(behind, "r"))
    server.save()
    scene.cluster.walls[ahead.name] = 3600.0
    scene.cut(ahead, *rest[2:])
    scene.run(0.1, scene.held(ahead, "r"))
    server.crash()
    server.start(saved=True)
    for _ in range(16):
        scene.run(0.5, scene.held(mender, "m"))
    assert server.memory.votes
    scene.cut(behind, *rest[:2])
    for _ in range(2):  # its connection to the old process breaks
        scene.run(1.0, scene.held(behind, "r"))
    return scene.found()


@schedule
def a_usual_vote_meets_nodes_that_began_anew() -> list[Violation]:
    """They remember a shorter ttl than when the client learnt their seats, and one of them forgets again."""
    scene = Scene(ttl=0.06)
    holder, mender, other = scene.processes
    known = scene.cluster.members[holder.name]
    for _ in range(30):  # until it knows all seats, and that they remember its ttl
        if None not in known.seats_for(30.0):
            break
        scene.run(0.1, scene.held(holder, "r", ttl=30.0))
    assert None not in known.seats_for(30.0)
    for server in scene.servers:  # as an operator may, with `interlock quorum init`
        server.flush()
        since = server.memory.checkin(CheckIn())[2]
        server.memory.admit(Admit(since=since, quarantine=0, floor=server.clock() - 1_000_000))
    scene.run(0.5, scene.held(other, "r"))  # from now on the nodes know a number for this name
    scene.cut(holder, 3, 4)
    scene.run(0.2, scene.taken(holder, "r", ttl=30.0))
    scene.servers[0].flush()
    for _ in range(50):
        scene.run(0.1, scene.held(mender, "m"))
    scene.cut(other, 1, 2)
    scene.run(0.5, scene.held(other, "r", keep=0.02))
    return scene.found()


@schedule
def a_node_that_forgot_has_its_clock_set_back() -> list[Violation]:
    """Its quarantine began an hour from now, as its clock says; it ends a ttl after somebody has looked."""
    scene = Scene(ttl=1.0)
    holder, mender, other = scene.processes
    scene.cut(holder, 3, 4)
    scene.run(0.2, scene.taken(holder, "r", ttl=6.0))
    scene.servers[0].jump(3600.0)
    scene.servers[0].flush()
    scene.run(1.0, scene.held(mender, "m"))
    scene.servers[0].jump(-3600.0)
    for _ in range(20):
        scene.run(1.0, scene.held(mender, "m"))
    assert scene.servers[0].memory.votes
    scene.cut(other, 1, 2)
    scene.run(0.5, scene.held(other, "r", keep=0.02))
    return scene.found()


@schedule
def two_clients_think_of_one_number() -> list[Violation]:
    """Their clocks are behind, and they have seen the same; one node meets them both."""
    scene = Scene()
    first, _, second = scene.processes
    for process in (first, second):
        scene.cluster.walls[process.name] = -3600.0
        scene.cluster.members[process.name].highest = int(BORN * 1e6)
    scene.cut(first, 3, 4)
    scene.cut(second, 1, 2)
    scene.run(0.3, scene.held(first, "r"))
    scene.run(0.3, scene.held(second, "r"))
    granted = [
        record for record in scene.cluster.history if record.call == "grant" and record.resource == "r"
    ]
    assert len(granted) == 2
    return scene.found()


@schedule
def a_majority_forgets() -> list[Violation]:
    """Two of five are not enough to let anybody in, whatever the others would grant."""
    scene = Scene(ttl=3.0)
    holder, _, other = scene.processes
    holder.runtime.spawn("work", scene.held(holder, "r", keep=60.0))
    scene.run(0.1)
    for server in scene.servers[:3]:
        server.flush()
    for _ in range(20):
        scene.run(0.5, scene.held(other, "r", keep=0.05))
    assert not any(server.memory.votes for server in scene.servers[:3])
    return scene.found()


def _the_majority_forgets(scene: Scene, holder: ClientProcess, other: ClientProcess) -> list[Violation]:
    """Somebody holds the lock on nodes 0, 1 and 2, which forget; another looks at the nodes first, and then wants it."""
    scene.run(0.5, scene.taken(holder, "r", ttl=60.0))
    assert len(scene.servers[0].memory.claims["r"]) == 1
    for server in scene.servers[:3]:
        server.flush()
    scene.run(5.0, scene.looked(other))
    for _ in range(10):
        scene.run(0.5, scene.held(other, "r", keep=0.05))
    return scene.found()


@schedule
def a_majority_forgets_before_the_others_have_voted_once() -> list[Violation]:
    """Nodes 3 and 4 have their votes, and accepted no number: they look as new as those that forgot."""
    scene = Scene(ttl=3.0, new=True)
    holder, first, other = scene.processes
    scene.run(0.5, scene.looked(first))
    assert all(server.memory.votes for server in scene.servers)
    scene.cut(holder, 3, 4)
    return _the_majority_forgets(scene, holder, other)


@schedule
def a_majority_forgets_that_began_without_the_others() -> list[Violation]:
    """Whoever started the nodes was cut off from two of them at every instant at which it may be."""
    return [violation for cut in range(1, 40) for violation in _began_without_the_others(cut / 1000)]


def _began_without_the_others(cut: float) -> list[Violation]:
    scene = Scene(ttl=3.0, new=True)
    holder, _, other = scene.processes
    scene.run(cut, scene.looked(holder))
    scene.cut(holder, 3, 4)
    scene.run(1.0)
    if not all(server.memory.votes for server in scene.servers[:3]):
        return []
    return _the_majority_forgets(scene, holder, other)


@schedule
def a_majority_forgets_while_the_others_are_in_quarantine() -> list[Violation]:
    """Nodes 3 and 4 forgot a moment ago, and so all five are empty; but two of them were seen among nodes in use."""
    scene = Scene(ttl=3.0)
    holder, mender, _ = scene.processes
    for server in scene.servers[3:]:
        server.flush()
    scene.run(0.5, scene.held(mender, "m"))
    return _the_majority_forgets(scene, holder, scene.cluster.add_process())


@schedule
def a_clock_leaps_under_a_lease_longer_than_others_know() -> list[Violation]:
    """Who has seen the node before does not count it, for as long as anybody may hold what lapsed there."""
    scene = Scene(ttl=1.0)
    holder, _, other = scene.processes
    scene.cut(holder, 3, 4)
    scene.run(0.1, scene.taken(holder, "r", ttl=30.0))
    scene.servers[0].jump(60.0)
    scene.cut(other, 1, 2)
    for _ in range(20):
        scene.run(0.2, scene.held(other, "r", keep=0.05))
    return scene.found()


async def _ignored(work: Coroutine[Any, Any, object]) -> None:
    await work
