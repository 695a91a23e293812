"""Where a storm takes place: real servers of one kind, ways to them, and how faults reach both.

A deployment is one class here: which places its workers connect to, and which faults it can suffer (`faults`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from random import Random
from typing import Any, Protocol

import pytest
import redis

import interlock
from interlock._support import clock
from interlock.errors import InvalidURL
from interlock.testing.servers.clock import ClockedServer
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.redis import Server
from interlock.testing.servers.sentinel import SentinelSet
from tests.storm.journal import Journal
from tests.storm.verdict import CONNECT

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")
QUORUM = 5
SWITCH = (
    3.0  # seconds between the promotion of a replica and the last sentinel's, or client's, knowledge of it
)


class Field(Protocol):
    """Servers under one name."""

    kind: str
    settles: float  # seconds, beside a ttl, after which everybody gets on once a fault has healed

    def start(self) -> None: ...
    def places(self) -> list[str]:
        """URLs for the workers; some lead over ways that faults can break."""
        ...

    def keys(self) -> int:
        """How many keys are on the fullest server."""
        ...

    def close(self) -> None: ...


class Single:
    """One server: `durable` with AOF always, `forgetful` without AOF. `mute`: its user may neither publish nor subscribe."""

    settles = 3.0

    def __init__(self, kind: str, *, mute: bool = False) -> None:
        self.kind = kind
        self.durable = kind == "durable"
        self._user = "mute:pw@" if mute else ""
        rights = ("--user", "mute", "on", ">pw", "~*", "+@all", "resetchannels") if mute else ()
        self.server = ClockedServer(*(ALWAYS if self.durable else ()), *rights)
        self.servers = [self.server]
        self.ways: list[Proxy] = []

    def start(self) -> None:
        self.server.start()
        self.ways = [Proxy(self.server.port)]

    def places(self) -> list[str]:
        ends = (self.server.port, self.ways[0].port)
        return [f"redis://{self._user}127.0.0.1:{port}/0?connect_timeout={CONNECT}" for port in ends]

    def keys(self) -> int:
        return size(self.server)

    def close(self) -> None:
        for way in self.ways:
            way.close()
        self.server.close()


class Redlock:
    """Five servers with AOF always; workers come straight, or over a way to each."""

    kind = "redlock"
    settles = 4.0

    def __init__(self, *, shipped: bool = True) -> None:
        self._shipped = shipped  # whether interlock's own store is used on them
        self.servers = [ClockedServer(*ALWAYS) for _ in range(QUORUM)]
        self.ways: list[Proxy] = []
        self.emptied: dict[int, float] = {}  # when a node lost its memory, by its port

    def start(self) -> None:
        for server in self.servers:
            server.start()
        self.ways = [Proxy(server.port) for server in self.servers]
        try:
            if self._shipped:
                interlock.connect(self.places()[0]).close()
        except InvalidURL as error:
            self.close()
            pytest.skip(f"needs the Redlock store: {error}")

    def places(self) -> list[str]:
        return [
            f"redlock://{','.join(f'127.0.0.1:{end.port}' for end in ends)}?connect_timeout={CONNECT}"
            for ends in (self.servers, self.ways)
        ]

    def minority(self, chance: Random) -> list[ClockedServer]:
        return chance.sample(self.servers, chance.choice((1, 2)))

    def keys(self) -> int:
        return max(size(server) for server in self.servers)

    def close(self) -> None:
        for way in self.ways:
            way.close()
        for server in self.servers:
            server.close()


class Sentinel:
    """A master, two replicas, three sentinels."""

    kind = "sentinel"
    settles = 12.0  # a failover, on a busy machine

    def __init__(self) -> None:
        self.set = SentinelSet()
        self._over = threading.Event()
        self._watching: threading.Thread | None = None

    def start(self) -> None:
        self.set.start()

    def watch(self, journal: Journal) -> None:
        """Write down every change of the master: sentinels may make one when nobody meant to."""
        self._watching = threading.Thread(target=self._watch, args=(journal,), daemon=True)
        self._watching.start()

    def _watch(self, journal: Journal) -> None:
        known, changes = self.set.master().port, 0
        while not self._over.wait(0.05):
            with suppress(redis.RedisError, OSError, KeyError):
                now = self.set.master().port
                if now != known:
                    known, changes = now, changes + 1
                    said: dict[str, Any] = {"attempt": f"switch-{changes}", "error": "f: master changed"}
                    seen = clock.now()  # it was promoted before, and others follow later
                    journal.add("fault", "invoke", at=seen - SWITCH, **said)
                    journal.add("fault", "ok", at=seen + SWITCH, **said)

    def clients(self) -> Iterator[str]:
        """The ids of the master's clients that are neither sentinels nor replicas."""
        with self.set.admin() as asked:
            listed: Any = asked.client_list(_type="normal") + asked.client_list(_type="pubsub")
        for client in listed:
            if not client["name"].startswith("sentinel-"):
                yield client["id"]

    def places(self) -> list[str]:
        return [self.set.url(connect_timeout=str(CONNECT))]

    def keys(self) -> int:
        return size(self.set.master())

    def close(self) -> None:
        self._over.set()
        if self._watching is not None:
            self._watching.join()
        self.set.close()


KINDS = (
    *("durable", "forgetful", "mute", "sentinel", "redlock", "cluster"),
    *("etcd", "zookeeper", "postgresql", "mysql"),
)


def field(kind: str) -> Any:
    """A deployment of this kind, not started yet."""
    if kind in ("durable", "forgetful"):
        return Single(kind)
    if kind == "mute":
        return Single("durable", mute=True)
    if kind == "redlock-nodes":  # the five servers alone, for locks of others
        return Redlock(shipped=False)
    if kind == "postgresql":
        from tests.storm.postgresql import Postgres

        return Postgres()
    if kind == "cluster":
        from tests.storm.shards import Cluster  # here, not above: it stands beside its faults

        return Cluster()
    if kind == "etcd":
        from tests.storm.members import Etcd

        return Etcd()
    if kind == "zookeeper":
        from tests.storm.zookeeper import Zookeeper

        return Zookeeper()
    if kind == "mysql":
        from tests.storm.mysql import Mysql  # here, not above: it stands beside its faults

        return Mysql()
    return {"sentinel": Sentinel, "redlock": Redlock}[kind]()


def admin(server: Server) -> redis.Redis:
    return redis.Redis(port=server.port, socket_timeout=3, decode_responses=True)


def size(server: Server) -> int:
    with admin(server) as asked:
        found: Any = asked.dbsize()
        return int(found)


def each(servers: list[Any], *words: Any) -> None:
    """Say something to servers; one that is away does not hear it."""
    for server in servers:
        with suppress(redis.RedisError), admin(server) as asked:
            asked.execute_command(*words)


def frozen(servers: list[Any]) -> ExitStack:
    """All of them stopped until the stack is left."""
    stack = ExitStack()
    for server in servers:
        stack.enter_context(server.frozen())
    return stack
