"""A real Redis Cluster for tests: three masters, each with a replica, all ended by their pids."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.backends.redis.wire.keys import slot
from interlock.testing.servers import redis as server
from interlock.testing.servers.process import free_port
from interlock.testing.servers.redis import Server, Some
from interlock.testing.servers.sentinel import until
from interlock.testing.servers.tls import SecureServer

if TYPE_CHECKING:
    import redis

SHARDS = 3
SLOTS = 16384
SHARDED = ("SSUBSCRIBE", "SUNSUBSCRIBE", "SPUBLISH")
BEFORE = tuple(word for name in SHARDED for word in ("--rename-command", name, ""))
"""The options of a server that has no sharded channels, as all had before Redis 7."""


class ClusterNode(Server):
    """One node; known to the others by its id."""

    def __init__(self, *options: str) -> None:
        self.bus = _port_of_its_own()
        super().__init__(
            *("--cluster-enabled", "yes", "--cluster-port", str(self.bus), "--cluster-node-timeout", "1000"),
            *("--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"),
            *("--repl-ping-replica-period", "1", "--appendonly", "yes", "--appendfsync", "always", *options),
        )
        self.port = _port_of_its_own()
        self.id = ""

    @property
    def stopped(self) -> bool:
        """Whether it was killed, or is frozen."""
        if self._process is None:
            return True
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].startswith("T")


_ports: set[int] = set()


def _port_of_its_own() -> int:
    """A free port that no other node was given: twelve are chosen before the first is used."""
    while (port := free_port()) in _ports:
        pass
    _ports.add(port)
    return port


class RedisCluster:
    """Nodes by port. `masters` and `replicas` are as they were at the beginning, shard by shard; the first
    `old` are old.
    """

    node_type: type[ClusterNode] = ClusterNode

    def __init__(
        self, replicas: int = 1, password: str | None = None, options: tuple[str, ...] = (), old: int = 0
    ) -> None:
        guarded = ("--requirepass", password, "--masterauth", password) if password else ()
        self._password = password
        lacks = [BEFORE if shard < old else () for shard in range(SHARDS)]
        self.masters = [self.node_type(*guarded, *options, *lack) for lack in lacks]
        self.replicas = [self.node_type(*guarded, *options, *lack) for lack in lacks * replicas]
        self.nodes = {node.port: node for node in (*self.masters, *self.replicas)}

    def start(self) -> None:
        for number, node in enumerate(self.nodes.values()):
            node.start()
            node.id = self.ask(node, "CLUSTER MYID")
            self._failovers(node, False)
            self.ask(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, master in enumerate(self.masters):
            first, last = SLOTS * number // SHARDS, SLOTS * (number + 1) // SHARDS - 1
            self.ask(master, "CLUSTER", "ADDSLOTSRANGE", first, last)
        for one, other in combinations(self.nodes.values(), 2):  # not by hearsay, which takes longer
            self.ask(one, "CLUSTER", "MEET", "127.0.0.1", other.port, other.bus)
        until(lambda: all(self._knows_all(node) for node in self.nodes.values()))
        for number, replica in enumerate(self.replicas):
            master = self.masters[number % SHARDS]
            until(partial(self.ask, replica, "CLUSTER", "REPLICATE", master.id))
        until(self.with_source)
        self.await_followed()
        for node in self.nodes.values():
            self._failovers(node, True)

    def _failovers(self, node: ClusterNode, may: bool) -> None:
        """Whether a replica may take over: not before all is whole, or on a busy machine it never is."""
        self.ask(node, "CONFIG", "SET", "cluster-replica-no-failover", "no" if may else "yes")

    def _knows_all(self, node: ClusterNode) -> bool:
        """They meet in no time; that they say so takes 2 s after a master's start, whatever is set."""
        return int(self.ask(node, "CLUSTER INFO")["cluster_known_nodes"]) == len(self.nodes)

    def with_source(self) -> bool:
        """Whether every node agrees, and every replica is connected to its master."""
        for node in self.nodes.values():
            if self.ask(node, "CLUSTER INFO")["cluster_state"] != "ok":
                return False
            facts = self.ask(node, "INFO", "replication")
            if facts["role"] == "slave" and facts["master_link_status"] != "up":
                return False
            shards: Any = self.ask(node, "CLUSTER", "SLOTS")  # a list each: first, last, master, replicas
            if any(len(shard) != 3 + len(self.replicas) // SHARDS for shard in shards):
                return False
        return True

    def await_followed(self, *masters: ClusterNode) -> None:
        """Wait until all replicas of these masters (by default, of all) have what the masters have now."""
        for master in masters or self.masters:
            now = self.ask(master, "INFO", "replication")["master_repl_offset"]
            until(partial(self._followed, master, now))

    def _followed(self, master: ClusterNode, offset: int) -> bool:
        """Whether all replicas of a master have told it that they have so much: what it has meanwhile, they
        may not.
        """
        facts = self.ask(master, "INFO", "replication")
        slaves = [facts[f"slave{n}"] for n in range(facts["connected_slaves"])]
        level = [s["state"] == "online" and s["offset"] >= offset for s in slaves]
        return len(level) == len(self.replicas) // SHARDS and all(level)

    def admin(self, node: ClusterNode) -> redis.Redis:
        """A client that says at once that a node does not answer; redis-py would ask ten times more."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        once = Retry(NoBackoff(), 0)
        return redis.Redis(
            port=node.port, password=self._password, socket_timeout=2, decode_responses=True, retry=once
        )

    def ask(self, node: ClusterNode, *words: Any) -> Any:
        with self.admin(node) as admin:
            return admin.execute_command(*words)

    def url(self, prefix: str = "", **options: str) -> str:
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.masters)
        query = "".join(f"&{name}={value}" for name, value in options.items())
        return f"redis+cluster://{hosts}?prefix={prefix}{query}"

    def shard(self, key: str | bytes) -> int:
        """Which shard had a key at the beginning."""
        number = slot(key.encode() if isinstance(key, str) else key)
        return next(n for n in range(SHARDS) if number < SLOTS * (n + 1) // SHARDS)

    def name_on(self, shard: int, prefix: str = "", start: str = "name") -> str:
        """A name whose keys are on this shard."""
        return next(f"{start}-{n}" for n in range(1000) if self.shard(f"{prefix}{start}-{n}") == shard)

    def await_promoted(self, replica: ClusterNode) -> None:
        """Wait until a replica is master, and all nodes that run know of it."""
        until(lambda: all(self._knows_master(node, replica) for node in self.nodes.values()))

    def _knows_master(self, node: ClusterNode, master: ClusterNode) -> bool:
        if node.stopped:
            return True
        state: Any = self.ask(node, "CLUSTER INFO")["cluster_state"]
        shards: Any = self.ask(node, "CLUSTER", "SLOTS")
        return state == "ok" and any(int(shard[2][1]) == master.port for shard in shards)

    @contextmanager
    def moving(self, number: int, source: ClusterNode, target: ClusterNode) -> Iterator[None]:
        """A slot that is being moved: its keys are moved when the block ends, and the slot with them."""
        self.ask(target, "CLUSTER", "SETSLOT", number, "IMPORTING", source.id)
        self.ask(source, "CLUSTER", "SETSLOT", number, "MIGRATING", target.id)
        yield
        self.move_keys(number, source, target)
        for node in (target, source):
            self.ask(node, "CLUSTER", "SETSLOT", number, "NODE", target.id)

    def move_keys(self, number: int, source: ClusterNode, target: ClusterNode, most: int = 1000) -> None:
        import redis

        with redis.Redis(port=source.port, password=self._password) as admin:
            keys: Any = admin.execute_command("CLUSTER", "GETKEYSINSLOT", number, most)
            for key in keys:
                admin.execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)

    @contextmanager
    def deaf(self, replica: ClusterNode, master: ClusterNode) -> Iterator[None]:
        """A replica that gets nothing of what is written now."""
        os.kill(replica.pid, signal.SIGSTOP)
        self.ask(master, "CLIENT", "KILL", "TYPE", "replica")
        try:
            yield
        finally:
            os.kill(replica.pid, signal.SIGCONT)

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()


def started(
    replicas: int = 1, password: str | None = None, options: tuple[str, ...] = (), old: int = 0
) -> RedisCluster:
    """A whole Cluster. On a busy machine a master may be replaced before it is whole: then it never is, as
    it should be.
    """
    for more in (True, False):
        made = RedisCluster(replicas, password, options, old)
        try:
            made.start()
        except BaseException as error:
            made.close()
            if not more or not isinstance(error, AssertionError):
                raise
        else:
            break
    return made


@cache
def steady() -> RedisCluster:
    """The Cluster for all tests of a worker that do not break it; started by the first that needs it."""
    made = started()
    atexit.register(made.close)
    return made


@contextmanager
def fragile(
    replicas: int = 1, password: str | None = None, *options: str, old: int = 0
) -> Iterator[RedisCluster]:
    """A Cluster of this test's own, to be broken; the first `old` shards of it have no sharded channels."""
    made = started(replicas, password, options, old)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def alone(*options: str, last: int = SLOTS - 1) -> Iterator[Server]:
    """A Cluster of one node, which has the slots up to `last`."""
    with _serving(Server(*_of_one(), *options), last) as node:
        yield node


@contextmanager
def secure(shown: Path) -> Iterator[SecureServer]:
    """A Cluster of one node that speaks TLS under this certificate, and tells others to."""
    with _serving(SecureServer(shown, *_of_one(), "--tls-cluster", "yes"), SLOTS - 1) as node:
        yield node


def _of_one() -> tuple[str, ...]:
    return "--cluster-enabled", "yes", "--cluster-port", str(free_port())


@contextmanager
def _serving(node: Some, last: int) -> Iterator[Some]:
    with server.started(node):
        import redis

        admin: Any
        with redis.Redis(port=node.port) as admin:
            admin.execute_command("CLUSTER ADDSLOTSRANGE", 0, last)
            until(lambda: admin.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        yield node
