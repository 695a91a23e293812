"""A slot of a Cluster that moves from one node to another."""

from __future__ import annotations

from uuid import uuid4

from interlock.backends.redis.wire.keys import slot
from interlock.testing.servers.cluster import SHARDS, RedisCluster


class Move:
    """A name, and the way of its slot from one node to another."""

    def __init__(self, cluster: RedisCluster) -> None:
        self.name = f"moved-{uuid4().hex[:8]}"
        self.number = slot(self.name.encode())
        here = cluster.shard(self.name)
        self.source, self.target = cluster.masters[here], cluster.masters[(here + 1) % SHARDS]
