"""A ZooKeeper ensemble whose servers can be cut off from each other, while their clients still reach them."""

from __future__ import annotations

from interlock.testing.servers.proxy import Mode, Proxy
from interlock.testing.servers.zookeeper import Ensemble, Node

SYNC_LIMIT = 120  # ticks for which a follower serves without hearing from its leader: 24 s


class PartedEnsemble(Ensemble):
    """Three servers, each of which speaks to the others over ways of its own."""

    def __init__(self, sync_limit: int = SYNC_LIMIT) -> None:
        super().__init__(3, sync_limit)
        self.between: dict[int, list[Proxy]] = {}  # the ways of a server to the others, by its number

    def members_for(self, node: Node, members: list[str]) -> list[str]:
        ways = {other.number: Proxy(other.peer_port) for other in self.nodes if other is not node}
        self.between[node.number] = list(ways.values())
        ports = {node.number: node.peer_port} | {number: way.port for number, way in ways.items()}
        return [
            f"server.{other.number}=127.0.0.1:{ports[other.number]}:{other.election_port}"
            for other in self.nodes
        ]

    def set_ways(self, node: Node, mode: Mode) -> None:
        """Break the ways of a server to the others, or mend them (`pass`)."""
        for way in self.between[node.number]:
            way.set(mode)

    def close(self) -> None:
        super().close()
        for ways in self.between.values():
            for way in ways:
                way.close()
