"""A simulated cluster with five nodes: the shipped algorithm over a simulated transport, one for each process."""

from __future__ import annotations

from collections.abc import Iterator

from interlock.backends.redlock.algorithm.membership import Membership
from interlock.backends.redlock.quorum import Quorum
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.wire.requests import Admit, CheckIn
from interlock.store import Store
from interlock.testing.faults import Link
from interlock.testing.simulated_cluster import ClientProcess, SimulatedCluster
from interlock.testing.simulated_quorum import BORN, SimulatedNode, SimulatedQuorumTransport

SIZE = 5
NODE_TIMEOUT = 0.05


class QuorumCluster(SimulatedCluster):
    """Five servers, some of them durable; processes whose wall clocks are wrong, each by its own."""

    def __init__(
        self, seed: int, *, ttl: float = 1.0, new: bool | None = None, node_timeout: float = NODE_TIMEOUT
    ) -> None:
        super().__init__(seed, ttl=ttl)
        self.node_timeout = node_timeout
        self.servers = [
            SimulatedNode(
                self.world,
                f"node-{number}",
                drift=0.8 * self.drift(),  # with a client's own within what the clock watch allows for
                durable=self.random.random() < 0.4,
            )
            for number in range(SIZE)
        ]
        self.new = self.random.random() < 0.2 if new is None else new
        if not self.new:
            self._admit_all()
        self.ways: dict[str, list[Link]] = {}  # by process: its links to the nodes
        self.members: dict[str, Membership] = {}  # by process: what it knows of the nodes
        self.walls: dict[str, float] = {}  # by process: how wrong its wall clock is, seconds

    def _admit_all(self) -> None:
        for server in self.servers:
            since = server.memory.checkin(CheckIn())[2]
            server.memory.answer(Admit(since=since, quarantine=0, floor=0))

    def connect(self, process: ClientProcess) -> Store:
        runtime, name = process.runtime, process.name
        self.ways[name] = [Link(self.faults, self.random) for _ in self.servers]
        self.walls[name] = (self.random.random() - 0.5) * 10
        transport = SimulatedQuorumTransport(self.servers, self.ways[name], runtime, self.network)
        members = self.members[name] = Membership(list(transport.labels))
        quorum = Quorum(transport, members, runtime.now, lambda: self._wall(name), self.node_timeout)
        return RedlockStore(quorum, runtime, runtime.random, None)

    def _wall(self, process: str) -> int:
        return int((BORN + self.world.time + self.walls[process]) * 1e6)

    def left_in_store(self) -> Iterator[tuple[str, str, str]]:
        for server in self.servers:
            for name, claims in server.memory.claims.items():
                for id, stands in claims.items():
                    if stands.lapses > server.clock():
                        yield server.label, name, f"claim {id} stands"
            # New nodes whose start was cut off halfway wait for an operator: they might as well have forgotten.
            if not server.memory.votes and not self.new:
                yield server.label, "", "it has no vote though all has healed, and it was asked"
