"""The servers of scenarios, by the name of their kind: each run gets its own, or a scenario none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from interlock.testing.servers.process import ServerMissing

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@dataclass(frozen=True, slots=True)
class Kind:
    """How servers of one kind are made, and which packages of Debian they come in."""

    make: Callable[[], Any]
    packages: tuple[str, ...]
    extra: str  # of interlock, with the client library
    program: str  # that tells its version, or nothing


def _from(module: str, name: str, *args: Any, **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        return getattr(import_module(f"interlock.testing.servers.{module}"), name)(*args, **options)

    return make


class RedisAndMariaDB:
    """A Redis server, and a MariaDB server for those who ask for one, if it is installed."""

    def __init__(self) -> None:
        from interlock.testing.servers.redis import Server

        self.redis = Server()
        self.port = self.redis.port
        self._database: Any = None

    def start(self) -> None:
        self.redis.start()

    def url(self) -> str:
        return self.redis.url()

    def connect(self) -> Any:
        """A redis-py client."""
        import redis

        return redis.Redis(port=self.port, decode_responses=True)

    def mariadb(self) -> Any:
        """The database server, started now; None where it, or its client library, is not installed."""
        try:
            from interlock.testing.servers.mysql import HASTY, Server

            self._database = Server(*HASTY)
            self._database.start()
        except (ServerMissing, ImportError):
            self._database = None
        return self._database

    def close(self) -> None:
        self.redis.close()
        if self._database is not None:
            self._database.close()


def _clocked_nodes() -> Any:
    """Five servers whose clocks can be moved."""
    from interlock.testing.servers.clock import ClockedServer
    from interlock.testing.servers.redlock import Servers

    nodes = Servers(0)
    nodes.all += [ClockedServer(*DURABLE) for _ in range(5)]
    return nodes


KINDS: dict[str, Kind] = {
    "none": Kind(lambda: None, (), "", ""),
    "redis": Kind(_from("redis", "Server"), ("redis-server",), "redis", "redis-server"),
    "redis-durable": Kind(_from("redis", "Server", *DURABLE), ("redis-server",), "redis", "redis-server"),
    "redis-clock": Kind(
        _from("clock", "ClockedServer"), ("redis-server", "gcc", "libc6-dev"), "redis", "redis-server"
    ),
    "redis-and-mariadb": Kind(RedisAndMariaDB, ("redis-server",), "redis", "redis-server"),
    "sentinel": Kind(_from("sentinel", "SentinelSet"), ("redis-server",), "redis", "redis-server"),
    "sentinel-zones": Kind(
        _from("namespaces", "SplitSentinels"),
        ("redis-server", "redis-tools", "iproute2", "util-linux"),
        "redis",
        "redis-server",
    ),
    "redlock": Kind(_from("redlock", "Servers", 5, *DURABLE), ("redis-server",), "redis", "redis-server"),
    "redlock-forgetful": Kind(_from("redlock", "Servers", 5), ("redis-server",), "redis", "redis-server"),
    "redlock-clock": Kind(_clocked_nodes, ("redis-server", "gcc", "libc6-dev"), "redis", "redis-server"),
    "zookeeper": Kind(
        _from("zookeeper", "Ensemble"), ("default-jre-headless", "zookeeper"), "zookeeper", "zookeeper"
    ),
    "zookeeper-parted": Kind(
        _from("zookeeper_partition", "PartedEnsemble"),
        ("default-jre-headless", "zookeeper"),
        "zookeeper",
        "zookeeper",
    ),
    "etcd": Kind(_from("etcd", "EtcdCluster"), ("etcd-server", "etcd-client"), "etcd", "etcd"),
    "postgresql": Kind(_from("postgresql", "Server"), ("postgresql",), "postgresql", "postgres"),
    "postgresql-standby": Kind(
        _from("postgresql", "ReplicatedServer"), ("postgresql",), "postgresql", "postgres"
    ),
    "mysql-pair": Kind(_from("mysql", "ReplicatingPair"), ("mariadb-server",), "mysql", "mariadbd"),
    "mysql": Kind(_from("mysql", "Server"), ("mariadb-server",), "mysql", "mariadbd"),
}
