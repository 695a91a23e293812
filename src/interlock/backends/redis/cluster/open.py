"""From a URL, or a user's own client, to a store on a Cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import SplitResult, parse_qsl

from interlock._core.runtime import Runtime
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.redis.address import Address, Route
from interlock.backends.redis.assembly import Assembly
from interlock.backends.redis.cluster.checks import examine_cluster
from interlock.backends.redis.cluster.router import ClusterRouter
from interlock.backends.redis.cluster.sharded_pubsub import ShardedListener
from interlock.backends.redis.cluster.store import ClusterStore, ReplicatedClusterStore
from interlock.backends.redis.cluster.topology import PORT, Topology
from interlock.backends.redis.replicated import Replicas, ReplicasWanted, enough
from interlock.backends.redis.store import RedisStore
from interlock.backends.redis.transport.handshake import Handshake
from interlock.backends.redis.transport.interface import Transport
from interlock.backends.redis.url_options import host_and_port, options
from interlock.backends.redis.wire.keys import ClusterKeys
from interlock.errors import InvalidURL
from interlock.store import CONNECT_TIMEOUT


def open_cluster_url(
    parts: SplitResult, runtime: Runtime, *, asynchronous: bool, connect_timeout: float = CONNECT_TIMEOUT
) -> RedisStore:
    """The store at `redis+cluster://host:port,host:port`, some of its nodes, or `rediss+cluster://` with
    TLS.
    """
    if parts.fragment or parts.path.strip("/") not in ("", "0"):
        raise InvalidURL(f"write {parts.scheme}://host:port,host:port; a Cluster has no databases but 0")
    prefix, replicas, rest = options(parts)
    credentials, at, hosts = parts.netloc.rpartition("@")
    nodes = [host_and_port(parts, host, PORT) for host in hosts.split(",")]
    host, port = nodes[0]
    bracketed = f"[{host}]" if ":" in host else host
    scheme = parts.scheme.partition("+")[0]
    server = Address.of_url(f"{scheme}://{credentials}{at}{bracketed}:{port}/0?{rest}", connect_timeout)
    topology = Topology(server, nodes)
    return open_cluster(
        topology, prefix, runtime, asynchronous=asynchronous, replicas=replicas, notices=_notices(parts)
    )


def _notices(parts: SplitResult) -> str | None:
    """How grants are published: `plain` or `sharded`; None if the nodes' abilities decide."""
    word = dict(parse_qsl(parts.query, keep_blank_values=True)).get("notices")
    if word not in (None, "plain", "sharded"):
        raise InvalidURL(f"notices={word}: say how grants are told: plain, to all nodes, or sharded")
    return word


def open_cluster(
    topology: Topology,
    prefix: str,
    runtime: Runtime,
    *,
    asynchronous: bool,
    replicas: Replicas | None = None,
    notices: str | None = None,
) -> RedisStore:
    """The store on all nodes of a Cluster; `replicas` of the replicas of a shard must confirm its grants
    and renewals.
    """

    def wanted(transport: Transport, handshake: Handshake) -> ReplicasWanted | None:
        async def count(request: bytes, timeout: float, known: bool) -> int:
            assert isinstance(transport, ClusterRouter)
            # At least one: a shard with no known replica, dead or alive, has just lost its only one.
            return max(1, enough(replicas or 0, await transport.replicas(request, timeout)))

        return count if replicas else None

    def transport(
        make: Callable[[Route], Transport], runtime: WaitRuntime, handshake: Handshake, for_keeper: bool
    ) -> Transport:
        return ClusterRouter(topology, make, runtime, handshake, for_keeper=for_keeper)

    kinds, keys = (ClusterStore, ReplicatedClusterStore), ClusterKeys(prefix)
    listener = None if notices == "plain" else ShardedListener(topology, keys, must=notices == "sharded")
    checks = partial(examine_cluster, topology)
    parts = Assembly(topology, keys, runtime, transport, wanted, checks, kinds, listener)
    store = parts.store(asynchronous=asynchronous)
    topology.on_change = store.master_changed
    return store


def open_cluster_client(
    client: Any, runtime: Runtime, *, asynchronous: bool, connect_timeout: float
) -> RedisStore:
    """The store behind a `RedisCluster`."""
    topology = Topology.of_client(client, connect_timeout)
    return open_cluster(topology, "", runtime, asynchronous=asynchronous)
