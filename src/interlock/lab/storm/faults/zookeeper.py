"""A ZooKeeper ensemble in a storm: three servers whose connections among each other can be cut.

The fault that matters most is a follower that is cut off from its leader: it goes on answering pings until
its own patience is over, `syncLimit` ticks, which is longer than the sessions here. The leader has ended the
session of such a client by then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from interlock.lab.storm.faults import clients, network
from interlock.lab.storm.faults.fault import CONNECT_S, Fault, down
from interlock.testing.lag import stretched
from interlock.testing.servers.clock import clocked, set_offset
from interlock.testing.servers.zookeeper import Node
from interlock.testing.servers.zookeeper_partition import PartedEnsemble

if TYPE_CHECKING:
    from interlock.lab.storm.workers.crew import Crew

SESSION = 2.0  # seconds after which the servers give a silent client up
# Seconds, not stretched: it must be below the session's, and a lease that a busy machine loses is no crime.
TTL = 1.5
SYNC_LIMIT = 40  # ticks after which a follower that does not hear from its leader stops serving: 8 s
SECRET = 0xB3415C00  # from which the servers make the password of a session


class Zookeeper:
    """The ensemble as the field of a storm; workers come straight, or over a way to each server."""

    kind = "zookeeper"

    def __init__(self) -> None:
        self.faults: Sequence[Fault] = FAULTS
        self.settles = 15.0  # an election, on a busy machine, and a session of the dead
        self.session = stretched(SESSION)
        self.ensemble = PartedEnsemble(SYNC_LIMIT)
        self._offsets = dict.fromkeys(self.ensemble.nodes, 0.0)
        self.ways: list[network.Way] = []

    def start(self) -> None:
        for node in self.ensemble.nodes:
            node.environment = clocked(dict(os.environ), self._clock(node), 0.0)
        self.ensemble.start()
        self.ways = [network.Way(node.port) for node in self.ensemble.nodes]

    def _clock(self, node: Node) -> Path:
        return Path(node.folder, "clock")

    def jump(self, node: Node, seconds: float) -> None:
        """Move the wall clock of one server, for good."""
        self._offsets[node] += seconds
        set_offset(self._clock(node), self._offsets[node])

    def place(self, *ports: int) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"zookeeper://{hosts}/storm?session_timeout={self.session:g}&connect_timeout={CONNECT_S}"

    def places(self) -> list[str]:
        nodes = self.ensemble.nodes
        return [self.place(*(node.port for node in nodes)), self.place(*(way.port for way in self.ways))]

    def naive_place(self) -> str:
        return self.ensemble.hosts

    def keys(self) -> int:
        return self.ensemble.leader().metric("zk_znode_count")

    def close(self) -> None:
        self.ensemble.close()
        for way in self.ways:
            way.close()


# ---- faults ----------------------------------------------------------------------------


def _crash(field: Zookeeper, node: Node, chance: Random) -> None:
    with down([node]):
        time.sleep(chance.uniform(0.2, 1.0))
    field.ensemble.ready()


def kill_leader(field: Zookeeper, crew: Crew, chance: Random) -> None:
    """kill -9; the others choose another leader, and it comes back as a follower."""
    _crash(field, field.ensemble.leader(), chance)


def kill_follower(field: Zookeeper, crew: Crew, chance: Random) -> None:
    _crash(field, field.ensemble.follower(), chance)


def cut_off_follower(field: Zookeeper, crew: Crew, chance: Random) -> None:
    """A follower hears nothing from the others any more, and goes on answering the pings of its clients."""
    follower = field.ensemble.follower()
    cut(field, follower, "hole")
    time.sleep(field.session * chance.uniform(1.2, 2.0))
    cut(field, follower, "pass")
    field.ensemble.ready()


def cut(field: Zookeeper, node: Node, mode: Any) -> None:
    for way in field.ensemble.between[node.number]:
        way.set(mode)


def lose_quorum(field: Zookeeper, crew: Crew, chance: Random) -> None:
    """Two of three are away: nobody is granted anything; then they are back."""
    with down(chance.sample(field.ensemble.nodes, 2)):
        time.sleep(field.session * chance.uniform(0.3, 1.2))
    field.ensemble.ready()


def freeze_node(field: Zookeeper, crew: Crew, chance: Random) -> None:
    """One server, the leader perhaps, stands still, and goes on with what it was sent meanwhile."""
    with chance.choice(field.ensemble.nodes).frozen():
        time.sleep(field.session * chance.uniform(0.3, 1.5))
    field.ensemble.ready()


def jump(field: Zookeeper, crew: Crew, chance: Random) -> None:
    """The wall clock of one server jumps by an hour, forward or back: sessions are not counted by it."""
    field.jump(chance.choice(field.ensemble.nodes), chance.choice((-3600.0, 3600.0)))
    time.sleep(field.session * chance.uniform(0.3, 1.0))


def expire_session(field: Zookeeper, crew: Crew, chance: Random) -> None:
    """Another program ends the session of a worker, as the servers would: its claims are gone before it is
    told.
    """
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
    """The password of a session: the servers draw it from Java's random numbers, with a seed that everybody
    knows.
    """

    def draw() -> Any:
        seed = ((session ^ SECRET) ^ 0x5DEECE66D) & (2**48 - 1)
        while True:
            seed = (seed * 0x5DEECE66D + 0xB) & (2**48 - 1)
            number = seed >> 16
            for _ in range(4):
                yield number & 0xFF
                number >>= 8

    return bytes(islice(draw(), 16))


FAULTS = (
    *clients.FAULTS,
    *network.faults(lambda chance, ways: ways if chance.random() < 0.3 else 1),
    Fault("server frozen", "server", "E", freeze_node, 2),
    Fault("follower killed", "server", "E", kill_follower, 1),
    Fault("clock moved", "clock", "E", jump, 2),
    Fault("leader killed", "cluster", "E", kill_leader, 2),
    Fault("follower cut off", "cluster", "E", cut_off_follower, 3),
    Fault("quorum lost", "cluster", "R", lose_quorum, 1),
    Fault("session expired", "refusal", "f", expire_session, 3),
)
