"""Five independent Redis servers in a storm: all but two of them keep what they were told."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from interlock._support import clock
from interlock.lab.storm.faults import clients, network
from interlock.lab.storm.faults.fault import CONNECT_S, Fault, down, frozen, jump_back
from interlock.lab.storm.faults.redis import each, of_servers, refuse_writes, size
from interlock.testing.servers.clock import ClockedServer
from interlock.testing.servers.redlock import DURABLE

if TYPE_CHECKING:
    from interlock.lab.storm.workers.crew import Crew

QUORUM = 5
QUARANTINE_S = 5.0  # within which only two of five nodes may lose their memory


class Redlock:
    """The servers; workers come straight, or over a way to each."""

    kind = "redlock"
    settles = 4.0

    def __init__(self) -> None:
        self.faults: Sequence[Fault] = FAULTS
        self.servers = [ClockedServer(*DURABLE) for _ in range(QUORUM)]
        self.ways: list[network.Way] = []
        self.emptied: dict[int, float] = {}  # when a node lost its memory, by its port

    def start(self) -> None:
        for server in self.servers:
            server.start()
        self.ways = [network.Way(server.port) for server in self.servers]

    def places(self) -> list[str]:
        return [
            f"redlock://{','.join(f'127.0.0.1:{end.port}' for end in ends)}?connect_timeout={CONNECT_S}"
            for ends in (self.servers, self.ways)
        ]

    def naive_place(self) -> list[int]:
        return [server.port for server in self.servers]

    def minority(self, chance: Random) -> list[ClockedServer]:
        return chance.sample(self.servers, chance.choice((1, 2)))

    def keys(self) -> int:
        return max(size(server) for server in self.servers)

    def close(self) -> None:
        for way in self.ways:
            way.close()
        for server in self.servers:
            server.close()


def crash(field: Redlock, crew: Crew, chance: Random) -> None:
    """One or two nodes are killed, and come back with what their disks have."""
    with down(field.minority(chance)):
        time.sleep(chance.uniform(0.0, 0.8))


def freeze(field: Redlock, crew: Crew, chance: Random) -> None:
    with frozen(field.minority(chance)):
        time.sleep(crew.ttl * chance.uniform(0.2, 1.5))


def freeze_most(field: Redlock, crew: Crew, chance: Random) -> None:
    with frozen(chance.sample(field.servers, 3)):
        time.sleep(crew.ttl * chance.uniform(0.5, 1.5))


def crash_most(field: Redlock, crew: Crew, chance: Random) -> None:
    """Three nodes are gone at once: nobody is served. Then they come back."""
    with down(chance.sample(field.servers, 3)):
        time.sleep(crew.ttl * chance.uniform(0.2, 1.0))


def _one_of_two(field: Redlock, chance: Random) -> ClockedServer:
    """A node that may lose its memory: at most two are without theirs at a time."""
    now = clock.now()
    out = [port for port, when in field.emptied.items() if now - when < QUARANTINE_S]
    server = chance.choice([node for node in field.servers if len(out) < 2 or node.port in out])
    field.emptied[server.port] = now
    return server


def empty(field: Redlock, crew: Crew, chance: Random) -> None:
    """kill -9 of a node, and back without its disk."""
    _one_of_two(field, chance).empty()


def flush(field: Redlock, crew: Crew, chance: Random) -> None:
    each([_one_of_two(field, chance)], "FLUSHALL")


def refuse(field: Redlock, crew: Crew, chance: Random) -> None:
    """One or two nodes answer, and write nothing."""
    refuse_writes(field, crew, chance, field.minority(chance))


FAULTS = (
    *clients.FAULTS,
    *network.faults(lambda chance, ways: chance.choice((1, 2, 3))),
    *(fault for fault in of_servers() if fault.name != "frozen"),
    Fault("minority frozen", "server", "E", freeze),
    Fault("minority killed and back", "server", "E", crash, 3),
    Fault("node restarted empty", "amnesia", "E", empty, 3),
    Fault("node flushed", "amnesia", "E", flush, 2),
    Fault("clock back", "clock", "f", jump_back, 1, 2.0),
    Fault("majority frozen", "cluster", "R", freeze_most, 1),
    Fault("majority killed and back", "cluster", "R", crash_most, 1),
    Fault("writes refused by a minority", "refusal", "R", refuse, 1),
)
