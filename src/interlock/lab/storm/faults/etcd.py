"""An etcd cluster in a storm: members die, freeze, are cut off from each other, and leases are revoked."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Literal

from interlock._core.drive import drive
from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.transport.blocking import BlockingTransport
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.protobuf import message
from interlock.errors import InterlockError
from interlock.lab.storm.faults import clients, network
from interlock.lab.storm.faults.fault import CONNECT_S, Fault, down, frozen
from interlock.testing.servers.etcd_partition import PartedCluster
from interlock.testing.servers.process import find_program

if TYPE_CHECKING:
    from interlock.lab.storm.workers.crew import Crew


ALARM = b"/etcdserverpb.Maintenance/Alarm"


class Etcd:
    """Three members. Workers come straight, or over a way to each."""

    kind = "etcd"
    # An election, the whole ttl that a new leader gives every lease, and half a second of its own.
    settles = 12.0

    def __init__(self) -> None:
        self.faults: Sequence[Fault] = FAULTS
        self.cluster = PartedCluster()
        self.servers = self.cluster.members
        self.ways: list[network.Way] = []

    def start(self) -> None:
        self.cluster.start()
        self.ways = [network.Way(member.port) for member in self.servers]

    def places(self) -> list[str]:
        return [
            f"etcd://{','.join(f'127.0.0.1:{end.port}' for end in ends)}?connect_timeout={CONNECT_S}"
            for ends in (self.servers, self.ways)
        ]

    def naive_place(self) -> list[int]:
        return self.cluster.ports

    def ask(self, method: bytes, request: bytes) -> bytes:
        endpoints = tuple(Endpoint("127.0.0.1", member.port) for member in self.servers)
        transport = BlockingTransport(Address(endpoints), Credentials("", ""))
        try:
            return drive(transport.ask(method, request, 5.0), nested=True)
        finally:
            drive(transport.close(), nested=True)

    def keys(self) -> int:
        """How many keys stand that would not vanish by themselves."""
        found = messages.RangeAnswer.of(self.ask(messages.RANGE, messages.get(b"\0", b"\0")))
        return sum(kv.lease == 0 for kv in found.kvs)

    def leases(self) -> list[int]:
        """Those under which claims stand."""
        found = messages.RangeAnswer.of(self.ask(messages.RANGE, messages.get(b"interlock/", b"interlock0")))
        return sorted({kv.lease for kv in found.kvs})

    def close(self) -> None:
        for way in self.ways:
            way.close()
        self.cluster.close()


def kill_leader(field: Etcd, crew: Crew, chance: Random) -> None:
    """The leader crashes, another is elected, the old one comes back."""
    with down([field.cluster.leader()]):
        time.sleep(crew.ttl * chance.uniform(0.5, 2.0))
    field.cluster.await_leader()


def cut_off(field: Etcd, crew: Crew, chance: Random) -> None:
    """One member, perhaps the leader, loses the others, and its clients still reach it."""
    with field.cluster.alone(chance.choice(field.servers)):
        time.sleep(crew.ttl * chance.uniform(0.5, 2.5))
    field.cluster.await_leader()


def lose_quorum(field: Etcd, crew: Crew, chance: Random) -> None:
    """Two of three crash: nobody is served. Then they come back."""
    with down(chance.sample(field.servers, 2)):
        time.sleep(crew.ttl * chance.uniform(0.5, 2.5))
    field.cluster.await_leader()


def freeze_member(field: Etcd, crew: Crew, chance: Random) -> None:
    """Not the leader: that is a fault of its own."""
    leader = field.cluster.leader()
    with chance.choice([member for member in field.servers if member is not leader]).frozen():
        time.sleep(crew.ttl * chance.uniform(0.2, 2.5))
    field.cluster.await_leader()


def freeze_leader(field: Etcd, crew: Crew, chance: Random) -> None:
    """For longer than an election takes: when it wakes up, it still believes that it leads."""
    with field.cluster.leader().frozen():
        time.sleep(max(1.2, crew.ttl * chance.uniform(1.0, 2.5)))
    field.cluster.await_leader()


@cache
def promise_when_a_leader_wakes() -> Literal["E", "L"]:
    """E; but before 3.4.31 and 3.5.13 it may revoke the leases that its successor keeps (etcd's issue 15247),
    as the page says.
    """
    program = find_program("etcd", "etcd-server")
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    assert found, said
    release = tuple(map(int, found.groups()))
    return "L" if release < (3, 4, 31) or (3, 5, 0) <= release < (3, 5, 13) else "E"


def freeze_most(field: Etcd, crew: Crew, chance: Random) -> None:
    with frozen(chance.sample(field.servers, 2)):
        time.sleep(crew.ttl * chance.uniform(0.5, 2.0))
    field.cluster.await_leader()


def revoke_lease(field: Etcd, crew: Crew, chance: Random) -> None:
    """An operator revokes the lease of one client: what it held is free, and its next renewal tells it."""
    with suppress(InterlockError):
        if leases := field.leases():
            field.ask(messages.REVOKE, messages.of_lease(chance.choice(leases)))


def run_out_of_space(field: Etcd, crew: Crew, chance: Random) -> None:
    """The cluster is told that a disk is full: it refuses whatever writes keys, until the alarm is off."""
    for action in (1, 2):  # activate, deactivate; 1: no space
        with suppress(InterlockError):
            field.ask(ALARM, message((1, action), (3, 1)))
        if action == 1:
            time.sleep(crew.ttl * chance.uniform(0.2, 1.0))
    field.cluster.ctl("alarm", "disarm")


FAULTS = (
    *clients.FAULTS,
    *network.faults(),
    Fault("member frozen", "server", "E", freeze_member, 3),
    Fault("leader killed", "cluster", "E", kill_leader, 3),
    Fault("leader frozen", "cluster", promise_when_a_leader_wakes, freeze_leader, 3),
    Fault("member cut off", "cluster", "E", cut_off, 3),
    Fault("quorum lost", "cluster", "R", lose_quorum, 2),
    Fault("majority frozen", "cluster", "R", freeze_most, 1),
    Fault("out of space", "refusal", "R", run_out_of_space, 1),
    Fault("lease revoked", "refusal", "f", revoke_lease, 2),
)
