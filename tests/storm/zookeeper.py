"""A ZooKeeper ensemble for storms: three servers whose connections among each other can be cut, and the faults it can suffer.

The row that matters most is the follower that is cut off from its leader: it goes on answering pings until its own patience is over,
`syncLimit` ticks, which is longer than the sessions here. The leader has ended the session of such a client by then.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from random import Random
from typing import Any, Literal

from interlock.backends.zookeeper import session_client as seam
from interlock.backends.zookeeper.deadline_rule import ConfirmedWrites
from interlock.backends.zookeeper.store import ZooKeeperStore
from interlock.testing.lag import stretched
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.zookeeper import Ensemble, Node, until
from tests.patience import PATIENCE
from tests.storm.journal import Journal
from tests.storm.verdict import CONNECT
from tests.storm.witness import Interlock

SESSION = 2.0  # seconds after which the servers give a silent client up
# Seconds, not stretched: it must be below the session's, and a lease that a busy machine loses is no crime.
TTL = 1.5
SYNC_LIMIT = 40  # ticks after which a follower that does not hear from its leader stops serving: 8 s
SECRET = 0xB3415C00  # from which the servers make the password of a session


class CutEnsemble(Ensemble):
    """Three servers; each speaks to the others over ways of its own."""

    def __init__(self) -> None:
        super().__init__(3, SYNC_LIMIT)
        self.between: dict[int, list[Proxy]] = {}  # ways that a server has to the others, by its number

    def members_for(self, node: Node, members: list[str]) -> list[str]:
        found: list[str] = []
        self.between[node.number] = []
        for other in self.nodes:
            port = other.peer_port
            if other is not node:
                way = Proxy(port)
                self.between[node.number].append(way)
                port = way.port
            found.append(f"server.{other.number}=127.0.0.1:{port}:{other.election_port}")
        return found

    def close(self) -> None:
        super().close()
        for ways in self.between.values():
            for way in ways:
                way.close()


class Zookeeper:
    """The ensemble as the field of a storm; workers come straight, or over a way to each server."""

    kind = "zookeeper"

    def __init__(self) -> None:
        self.settles = 15.0  # an election, on a busy machine, and a session of the dead
        self.session = stretched(SESSION)
        self.ensemble = CutEnsemble()
        self.ways: list[Proxy] = []

    def start(self) -> None:
        self.ensemble.start()
        self.ways = [Proxy(node.port) for node in self.ensemble.nodes]

    def place(self, *ports: int) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"zookeeper://{hosts}/storm?session_timeout={self.session:g}&connect_timeout={CONNECT}"

    def places(self) -> list[str]:
        nodes = self.ensemble.nodes
        return [self.place(*(node.port for node in nodes)), self.place(*(way.port for way in self.ways))]

    def keys(self) -> int:
        return self.ensemble.leader().metric("zk_znode_count")

    def close(self) -> None:
        self.ensemble.close()
        for way in self.ways:
            way.close()


# ---- faults ----------------------------------------------------------------------------


def stop_past_session(field: Zookeeper, crew: Any, chance: Random) -> None:
    """Stopped until its session is over, then run again."""
    victim = chance.choice(crew.hands)
    victim.signal(signal.SIGSTOP)
    time.sleep(field.session * chance.uniform(1.1, 1.5))
    victim.signal(signal.SIGCONT)


def _crash(field: Zookeeper, node: Node, chance: Random) -> None:
    node.kill()
    time.sleep(chance.uniform(0.2, 1.0))
    node.start()
    field.ensemble.ready()


def kill_leader(field: Zookeeper, crew: Any, chance: Random) -> None:
    """kill -9; the others choose another leader, and it comes back as a follower."""
    _crash(field, field.ensemble.leader(), chance)


def kill_follower(field: Zookeeper, crew: Any, chance: Random) -> None:
    _crash(field, field.ensemble.follower(), chance)


def cut_off_follower(field: Zookeeper, crew: Any, chance: Random) -> None:
    """A follower hears nothing from the others any more, and goes on answering the pings of its clients."""
    follower = field.ensemble.follower()
    cut(field, follower, "hole")
    time.sleep(field.session * chance.uniform(1.2, 2.0))
    cut(field, follower, "pass")
    field.ensemble.ready()


def cut(field: Zookeeper, node: Node, mode: Any) -> None:
    for way in field.ensemble.between[node.number]:
        way.set(mode)


def lose_quorum(field: Zookeeper, crew: Any, chance: Random) -> None:
    """Two of three are away: nobody is granted anything; then they are back."""
    nodes = chance.sample(field.ensemble.nodes, 2)
    for node in nodes:
        node.kill()
    time.sleep(field.session * chance.uniform(0.3, 1.2))
    for node in nodes:
        node.start()
    field.ensemble.ready()


def freeze_node(field: Zookeeper, crew: Any, chance: Random) -> None:
    """One server, the leader perhaps, stands still, and goes on with what it was sent meanwhile."""
    node = chance.choice(field.ensemble.nodes)
    node.freeze()
    time.sleep(field.session * chance.uniform(0.3, 1.5))
    node.thaw()
    field.ensemble.ready()


def expire_session(field: Zookeeper, crew: Any, chance: Random) -> None:
    """Another program ends the session of a worker, as the servers would: its claims are gone before it is told."""
    from kazoo.client import KazooClient

    sessions = [number for node in field.ensemble.nodes for number in _sessions(node)]
    if not sessions:
        return
    number = chance.choice(sessions)
    hosts = field.ensemble.hosts
    with suppress(Exception):
        other = KazooClient(hosts=hosts, client_id=(number, password(number)), timeout=field.session)
        try:
            other.start(5)
        finally:
            other.stop()
            other.close()


def _sessions(node: Node) -> list[int]:
    found: list[int] = []
    for line in node.word("cons").splitlines():
        _, there, rest = line.partition("sid=0x")
        if there:
            number = int(rest.split(",")[0], 16)
            found.append(number - 2**64 if number >= 2**63 else number)
    return found


def password(session: int) -> bytes:
    """The password of a session: the servers draw it from Java's random numbers, with a seed that everybody knows."""

    def draw() -> Any:
        seed = ((session ^ SECRET) ^ 0x5DEECE66D) & (2**48 - 1)
        while True:
            seed = (seed * 0x5DEECE66D + 0xB) & (2**48 - 1)
            number = seed >> 16
            for _ in range(4):
                yield number & 0xFF
                number >>= 8

    return bytes(islice(draw(), 16))


def break_way(field: Zookeeper, crew: Any, chance: Random) -> None:
    """The way of some clients to one server, or to all of them, is broken in one of several manners."""
    ways = field.ways if chance.random() < 0.3 else [chance.choice(field.ways)]
    mode: Any = chance.choice(("mute", "deaf", "hole", "half_open", "cut", "late"))
    for way in ways:
        way.set(mode)
    time.sleep(field.session * chance.uniform(0.2, 1.4))
    for way in ways:
        way.set("pass")


FaultRow = tuple[str, Literal["E", "f", "R"], Callable[[Any, Any, Random], None], int]

ROWS: list[FaultRow] = [
    ("stop past session", "E", stop_past_session, 2),
    ("kill leader", "E", kill_leader, 2),
    ("kill follower", "E", kill_follower, 1),
    ("cut off follower", "E", cut_off_follower, 3),
    ("quorum lost", "R", lose_quorum, 1),
    ("freeze node", "E", freeze_node, 2),
    ("session expired", "f", expire_session, 3),
    ("way broken", "E", break_way, 4),
]


# ---- the naive rule --------------------------------------------------------------------


class Pinged(Interlock):
    """interlock with its rule taken away: a session lives for a timeout from the last answered ping, and so do its claims."""

    def __init__(self, place: str, ttl: float, journal: Journal) -> None:
        _believe_in_pings()
        super().__init__(place, ttl, journal, asynchronous=False)


class _Belief:
    answered = 0.0


def _believe_in_pings() -> None:
    made = seam.SessionClient._new_client

    def new_client(self: seam.SessionClient) -> Any:
        client = made(self)
        connection = client._connection
        send, sent = connection._send_ping, [0.0]
        clear = connection.ping_outstanding.clear

        def send_ping(timeout: float) -> None:
            sent[0] = self.now()
            send(timeout)

        def answered() -> None:
            _Belief.answered = sent[0]
            clear()

        connection._send_ping, connection.ping_outstanding.clear = send_ping, answered
        return client

    async def standing(self: ZooKeeperStore, *_: Any) -> set[str]:
        return {entry.path for entry in self._ledger.claims.values()}

    def ends(self: ConfirmedWrites) -> float:
        return max(self.counts_from, _Belief.answered) + self.timeout

    loose: Any = (seam.SessionClient, ZooKeeperStore, ConfirmedWrites)
    loose[0]._new_client, loose[1]._standing_paths, loose[2].ends = new_client, standing, property(ends)


# ---- the directed schedule -------------------------------------------------------------


def follower_that_answers_pings(made: Any, kind: str) -> Any:
    """A is connected to a follower, and holds; the follower is cut off; B, elsewhere, wants the lock. The verdict on that."""
    field: Zookeeper = made.field
    follower = field.ensemble.follower()
    others = [node.port for node in field.ensemble.nodes if node is not follower]
    a = made.crew.hire(kind, field.place(follower.port))
    b = made.crew.hire("sync", field.place(*others))
    assert a.acquire("x", PATIENCE) is not None
    value = a.tell("read", resource="x")["value"]
    with made.suffering("cut off follower", "E"):
        cut(field, follower, "hole")
        assert b.acquire("x", PATIENCE) is not None
        a.tell("check", resource="x")
        time.sleep(0.3)  # both may believe
        b.count("x")
        a.write("x", value + 1)
        cut(field, follower, "pass")
        until(lambda: all(node.mode() for node in field.ensemble.nodes))
    for hand in (a, b):
        hand.tell("release", resource="x")
    assert b.acquire("x", PATIENCE) is not None
    b.count("x")
    b.tell("release", resource="x")
    made.journal.add("heal", "ok")
    return made.verdict(["x"], 1e9)
