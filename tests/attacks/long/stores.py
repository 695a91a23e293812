"""A store of each kind for an attack: a folder, or servers of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

BUFFER = 16 << 20  # bytes that a server of ZooKeeper accepts in one piece

KINDS = ("memory", "sqlite", "redis", "redlock", "etcd", "zookeeper", "postgresql", "mysql")


@contextmanager
def opened(kind: str) -> Iterator[str]:
    """The URL of a store that nobody else uses."""
    if kind == "memory":
        yield f"memory://{uuid4().hex}"
    elif kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/locks.db"
    elif kind == "redis":
        from interlock.testing.servers.redis import (
            running,  # here, not above: a program without servers needs no redis-py
        )

        with running() as server:
            yield server.url()
    elif kind == "redlock":
        from interlock.testing.servers.redlock import quorum

        with quorum() as servers:
            yield servers.url()
    elif kind == "etcd":
        from interlock.testing.servers.etcd import running as cluster

        with cluster() as members:
            yield members.url()
    elif kind == "zookeeper":
        from interlock.testing.servers.zookeeper import running as ensemble

        # 60,000 leases of one client need more memory than small tests, and a larger buffer than usual (docs/backends/zookeeper.md).
        with ensemble(jvm=[f"-Djute.maxbuffer={BUFFER}", "-Xmx512m"]) as nodes:
            yield nodes.fresh(jute_maxbuffer=BUFFER)
    elif kind == "postgresql":
        from interlock.testing.servers.postgresql import running as postgres

        with postgres("max_connections=100") as database:
            yield database.url()
    else:
        from interlock.testing.servers.mysql import running as mariadb

        with mariadb() as database:
            yield database.url()
