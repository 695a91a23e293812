"""A Redis Cluster in a storm: a shard's master dies, with its last writes or without, and slots move."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, cast

from interlock.backends.redis.wire.keys import slot
from interlock.lab.storm.faults import clients, network
from interlock.lab.storm.faults.announced import AnnouncedNode
from interlock.lab.storm.faults.fault import CONNECT_S, Fault, Strike
from interlock.testing.servers.cluster import ClusterNode, RedisCluster
from interlock.testing.servers.proxy import Mode
from interlock.testing.servers.sentinel import until

if TYPE_CHECKING:
    from interlock.lab.storm.workers.crew import Crew

HEALED_S = 30.0  # that a Cluster may take until all of it agrees again


class AnnouncedCluster(RedisCluster):
    node_type = AnnouncedNode


class Cluster:
    """Three masters, each with a replica. Who is what changes: it is asked each time."""

    kind = "cluster"
    settles = 12.0

    def __init__(self) -> None:
        self.faults: Sequence[Fault] = FAULTS
        self.cluster = AnnouncedCluster()

    def start(self) -> None:
        self.cluster.start()

    def places(self) -> list[str]:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.cluster.nodes)
        return [f"redis+cluster://{hosts}?connect_timeout={CONNECT_S}"]

    def naive_place(self) -> list[int]:
        return list(self.cluster.nodes)

    def keys(self) -> int:
        return max(int(self.cluster.ask(node, "DBSIZE")) for node in self.cluster.nodes.values())

    def close(self) -> None:
        self.cluster.close()

    def shard_of(self, key: str) -> tuple[ClusterNode, list[ClusterNode]]:
        """The master that has this key's slot now, and its replicas."""
        found: tuple[ClusterNode, list[ClusterNode]] = until(
            lambda: self._shard(slot(key.encode())), HEALED_S
        )
        return found

    def _shard(self, number: int) -> Any:
        import redis

        for node in self.cluster.nodes.values():
            with suppress(redis.RedisError, OSError):
                for first, last, *members in self.cluster.ask(node, "CLUSTER", "SLOTS"):
                    if first <= number <= last:
                        master, *replicas = [self.cluster.nodes[int(member[1])] for member in members]
                        return master, replicas
        return None

    def masters(self) -> list[ClusterNode]:
        return [n for n in self.cluster.nodes.values() if self._facts(n)["role"] == "master"]

    def _facts(self, node: ClusterNode) -> Any:
        return self.cluster.ask(node, "INFO", "replication")

    def whole(self) -> bool:
        for node in self.cluster.nodes.values():
            facts = self._facts(node)
            if self.cluster.ask(node, "CLUSTER INFO")["cluster_state"] != "ok":
                return False
            if facts["role"] == "slave" and facts["master_link_status"] != "up":
                return False
            if any(len(members) < 2 for _, _, *members in self.cluster.ask(node, "CLUSTER", "SLOTS")):
                return False  # a shard without its replica could not fail over
        return len(self.masters()) == 3


def fail_over(field: Cluster, crew: Crew, chance: Random) -> None:
    """A shard's master crashes, its replica is promoted, the old one comes back."""
    old, _ = field.shard_of(chance.choice(crew.resources))
    old.kill()
    _promoted(field, old)


def fail_over_with_loss(field: Cluster, crew: Crew, chance: Random) -> None:
    """What the master wrote last reached no replica, for certain."""
    old, replicas = field.shard_of(chance.choice(crew.resources))
    with field.cluster.deaf(replicas[0], old):
        time.sleep(crew.ttl * chance.uniform(0.1, 0.3))
        old.kill()
    _promoted(field, old)


def _break(mode: Mode) -> Strike:
    def strike(field: Cluster, crew: Crew, chance: Random) -> None:
        """The way to the master of one resource is broken; the nodes hear each other all the time."""
        master, _ = field.shard_of(chance.choice(crew.resources))
        network.broken([cast(AnnouncedNode, master).way], mode, crew.ttl * chance.uniform(0.2, 1.4))
        until(field.whole, HEALED_S)

    return strike


def _promoted(field: Cluster, old: ClusterNode) -> None:
    others = [node for node in field.cluster.nodes.values() if node is not old]
    until(lambda: sum(field._facts(node)["role"] == "master" for node in others) == 3, HEALED_S)
    old.start()
    until(field.whole, HEALED_S)


def move_slot(field: Cluster, crew: Crew, chance: Random) -> None:
    """A resource's slot goes to another master while it is locked and waited for."""
    name = chance.choice(crew.resources)
    source, _ = field.shard_of(name)
    target = chance.choice([node for node in field.masters() if node is not source])
    with field.cluster.moving(slot(name.encode()), source, target):
        time.sleep(chance.uniform(0.0, 0.3))
    until(lambda: field.shard_of(name)[0] is target, HEALED_S)


def freeze_master(field: Cluster, crew: Crew, chance: Random) -> None:
    """For less than it takes to be replaced."""
    master, _ = field.shard_of(chance.choice(crew.resources))
    with master.frozen():
        time.sleep(chance.uniform(0.1, 0.4))


def forget_scripts(field: Cluster, crew: Crew, chance: Random) -> None:
    for node in field.masters():
        field.cluster.ask(node, "SCRIPT", "FLUSH")


def hang_up(field: Cluster, crew: Crew, chance: Random) -> None:
    kind = chance.choice(("normal", "pubsub"))
    for node in field.masters():
        field.cluster.ask(node, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


def jump(field: Cluster, crew: Crew, chance: Random) -> None:
    """The clocks of all servers jump forward by more than a ttl."""
    seconds = crew.ttl * chance.uniform(1.2, 3.0)
    for node in field.cluster.nodes.values():
        cast(AnnouncedNode, node).jump(seconds)


def flush(field: Cluster, crew: Crew, chance: Random) -> None:
    """Everything on the shard of one resource is gone."""
    master, _ = field.shard_of(chance.choice(crew.resources))
    field.cluster.ask(master, "FLUSHALL")


FAULTS = (
    *clients.FAULTS,
    *(Fault(name, "network", "E", _break(mode), 1) for mode, name in network.MODES.items()),
    Fault("master frozen", "server", "f", freeze_master),
    Fault("connections ended", "server", "E", hang_up),
    Fault("shard flushed", "amnesia", "L", flush, 1),
    Fault("clock forward", "clock", "f", jump),
    Fault("slot moved", "failover", "E", move_slot, 3),
    Fault("fail over", "failover", "f", fail_over, 1),
    Fault("fail over, writes lost", "failover", "f", fail_over_with_loss, 1),
    Fault("scripts forgotten", "refusal", "E", forget_scripts, 1),
)
