"""What goes wrong in an etcd cluster: members die, freeze and are cut off from each other, and operators revoke leases."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from contextlib import suppress
from functools import cache
from random import Random
from typing import Literal

from interlock._core.drive import drive
from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.transport.blocking import BlockingTransport
from interlock.backends.etcd.transport.credentials import Credentials
from interlock.backends.etcd.wire import messages
from interlock.errors import InterlockError
from interlock.testing.servers.proxy import Proxy
from tests.etcd.partition import PartedCluster
from tests.storm.crew import Crew
from tests.storm.verdict import CONNECT

HEALED = 30.0


class Etcd:
    """Three members. Workers come straight, or over a way to each."""

    kind = "etcd"
    settles = (
        12.0  # an election, the whole ttl that a new leader gives every lease, and half a second of its own
    )

    def __init__(self) -> None:
        self.cluster = PartedCluster()
        self.servers = self.cluster.members
        self.ways: list[Proxy] = []

    def start(self) -> None:
        self.cluster.start()
        self.ways = [Proxy(member.port) for member in self.servers]

    def places(self) -> list[str]:
        return [
            f"etcd://{','.join(f'127.0.0.1:{end.port}' for end in ends)}?connect_timeout={CONNECT}"
            for ends in (self.servers, self.ways)
        ]

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
    leader = field.cluster.leader()
    leader.kill()
    time.sleep(crew.ttl * chance.uniform(0.5, 2.0))
    leader.start()
    field.cluster.await_leader()


def cut_off(field: Etcd, crew: Crew, chance: Random) -> None:
    """One member, perhaps the leader, loses the others, and its clients still reach it."""
    with field.cluster.alone(chance.choice(field.servers)):
        time.sleep(crew.ttl * chance.uniform(0.5, 2.5))
    field.cluster.await_leader()


def lose_quorum(field: Etcd, crew: Crew, chance: Random) -> None:
    """Two of three crash: nobody is served. Then they come back."""
    victims = chance.sample(field.servers, 2)
    for member in victims:
        member.kill()
    time.sleep(crew.ttl * chance.uniform(0.5, 2.5))
    for member in victims:
        member.start()
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
    """E; but before 3.4.31 and 3.5.13 it may revoke the leases that its successor keeps (etcd's issue 15247), as the page says."""
    program = shutil.which("etcd")
    assert program, "etcd is not installed: apt-get install etcd-server"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    assert found, said
    release = tuple(map(int, found.groups()))
    return "L" if release < (3, 4, 31) or (3, 5, 0) <= release < (3, 5, 13) else "E"


def freeze_most(field: Etcd, crew: Crew, chance: Random) -> None:
    victims = chance.sample(field.servers, 2)
    for member in victims:
        member.freeze()
    time.sleep(crew.ttl * chance.uniform(0.5, 2.0))
    for member in victims:
        member.thaw()
    field.cluster.await_leader()


def revoke_lease(field: Etcd, crew: Crew, chance: Random) -> None:
    """An operator revokes the lease of one client: all that it holds is free, and it is told with its next renewal."""
    with suppress(InterlockError):
        if leases := field.leases():
            field.ask(messages.REVOKE, messages.of_lease(chance.choice(leases)))
