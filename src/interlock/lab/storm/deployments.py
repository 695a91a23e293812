"""The kinds of servers on which a storm can take place, by name; a kind is imported only when it is used."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple

from interlock.errors import InterlockError
from interlock.lab.storm.faults.fault import Deployment


class Kind(NamedTuple):
    """Where a kind is written, what it is, and what it needs."""

    place: str
    text: str
    servers: str  # the kind of servers in `interlock.lab.deployments`, for packages and versions


KINDS: dict[str, Kind] = {
    "durable": Kind("redis.Single", "one Redis that writes everything to its disk", "redis-clock"),
    "forgetful": Kind("redis.Single", "one Redis without a disk", "redis-clock"),
    "mute": Kind("redis.Single", "one Redis whose user may not publish or subscribe", "redis-clock"),
    "sentinel": Kind("sentinel.Sentinel", "a Redis master, two replicas, three sentinels", "sentinel"),
    "cluster": Kind("cluster.Cluster", "a Redis Cluster: three masters, each with a replica", "sentinel"),
    "redlock": Kind("redlock.Redlock", "a quorum of five Redis servers", "redlock-clock"),
    "etcd": Kind("etcd.Etcd", "three members of etcd", "etcd"),
    "zookeeper": Kind("zookeeper.Zookeeper", "three servers of ZooKeeper", "zookeeper"),
    "postgresql": Kind("postgresql.Postgres", "one PostgreSQL", "postgresql"),
    "mysql": Kind("mysql.Mysql", "one MariaDB", "mysql"),
    "sqlite": Kind("sqlite.Sqlite", "one SQLite file", "none"),
}


MEANT = {"redis": "durable", "valkey": "durable", "mariadb": "mysql", "postgres": "postgresql"}
"""Names of products, and the kind that most who type them mean."""


class UnknownKind(InterlockError, ValueError):
    """No servers have this name; the sentence has the nearest, and all others."""

    def __init__(self, name: str) -> None:
        near = [MEANT[name]] if name in MEANT else get_close_matches(name, KINDS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        super().__init__(f"there are no servers of the kind {name!r}: {hint}there are {', '.join(KINDS)}")
        self.name = name


def deployment(kind: str) -> Deployment:
    """A deployment of this kind, not started yet."""
    if kind not in KINDS:
        raise UnknownKind(kind)
    module, _, name = KINDS[kind].place.partition(".")
    made = getattr(import_module(f"interlock.lab.storm.faults.{module}"), name)
    found: Deployment = made(kind) if name == "Single" else made()
    return found
