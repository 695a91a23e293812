"""A client of a Cluster that maps the addresses which nodes announce is followed to where they lead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import pytest
import redis.asyncio.cluster
import redis.cluster

import interlock
from interlock import aio
from interlock.testing.servers import cluster as clusters
from interlock.testing.servers.proxy import Proxy, proxies
from tests.patience import PATIENCE

Ways = dict[int, Proxy]


@pytest.fixture
def ways() -> Iterator[Ways]:
    """The proxy before each node, by the node's port: the way that the user's client takes."""
    ports = list(clusters.steady().nodes)
    with proxies(ports) as made:
        yield dict(zip(ports, made, strict=True))


def test_a_blocking_client(ways: Ways) -> None:
    cluster = clusters.steady()
    start = ways[cluster.masters[0].port].port
    theirs = redis.cluster.RedisCluster(
        "127.0.0.1", start, address_remap=lambda place: (place[0], ways[place[1]].port)
    )
    name = uuid4().hex
    theirs.ping(target_nodes="all")
    before = {port: way.accepted for port, way in ways.items()}
    with interlock.connect(theirs) as client:
        for shard in range(clusters.SHARDS):
            with client.lock(cluster.name_on(shard, start=name), timeout=PATIENCE):
                pass
    assert all(ways[master.port].accepted > before[master.port] for master in cluster.masters)
    theirs.close()


def test_an_asyncio_client(ways: Ways) -> None:
    cluster = clusters.steady()
    start = ways[cluster.masters[0].port].port

    async def main() -> None:
        theirs = redis.asyncio.cluster.RedisCluster(
            "127.0.0.1", start, address_remap=lambda place: (place[0], ways[place[1]].port)
        )
        name = uuid4().hex
        await theirs.initialize()
        before = {port: way.accepted for port, way in ways.items()}
        async with aio.connect(theirs) as client:
            for shard in range(clusters.SHARDS):
                async with client.lock(cluster.name_on(shard, start=name), timeout=PATIENCE):
                    pass
        assert all(ways[master.port].accepted > before[master.port] for master in cluster.masters)
        await theirs.aclose()

    asyncio.run(main())
