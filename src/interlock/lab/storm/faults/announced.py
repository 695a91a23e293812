"""Redis servers that everybody reaches over a way of their own, because they announce its port as theirs.

Replicas, sentinels and other nodes come over it, too: whoever breaks it isolates the server, which stays
alive.
"""

from __future__ import annotations

from typing import Any

from interlock.lab.storm.faults.network import Way
from interlock.testing.servers.clock import MovableClock
from interlock.testing.servers.cluster import ClusterNode


class Announced(MovableClock):
    """Mixed into a redis-server: `port` is that of its way, and its clock can be moved."""

    announces = "replica"

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        own = self.port
        self.way = Way(own)
        self.port = self.way.port
        announced = (f"--{self.announces}-announce-ip", "127.0.0.1")
        at = (f"--{self.announces}-announce-port", str(self.port))
        self._options = (*self._options, "--port", str(own), *announced, *at)  # the last port counts

    def close(self) -> None:
        super().close()
        self.way.close()


class AnnouncedNode(Announced, ClusterNode):
    """A node of a Cluster; the nodes hear each other beside the ways."""

    announces = "cluster"
