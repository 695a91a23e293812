"""Examines a Cluster: whether every slot has a master, every master a replica, and where they run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from interlock._support.record import record
from interlock.backends.kit.examining import Examiner
from interlock.backends.redis import checks
from interlock.backends.redis.cluster.slots import HostPort
from interlock.backends.redis.cluster.topology import Topology
from interlock.backends.redis.errors import understood
from interlock.backends.redis.replicated import ReplicasWanted
from interlock.backends.redis.transport.handshake import Handshake, info_lines
from interlock.backends.redis.wire.keys import SLOTS
from interlock.model import Finding

NODE_FIELDS = 8  # of a line of CLUSTER NODES, before the slots


@record
class Node:
    """One line of CLUSTER NODES."""

    id: str
    host: str
    port: int
    flags: tuple[str, ...]
    master: str  # the id of its master; "-" if it is one
    slots: int

    @property
    def sound(self) -> bool:
        return not {"fail", "fail?", "noaddr", "handshake"}.intersection(self.flags)

    @property
    def is_master(self) -> bool:
        return "master" in self.flags


@record
class ClusterFacts:
    """The answers of one node about the whole Cluster."""

    state: str  # ok or fail
    nodes: tuple[Node, ...]

    @property
    def masters(self) -> list[Node]:
        """Those that have slots, alive or not."""
        return [node for node in self.nodes if node.is_master and node.slots]


async def examine_cluster(
    topology: Topology, handshake: Handshake, wanted: ReplicasWanted | None, examiner: Examiner
) -> None:
    """Examine the Cluster as the first node that answers sees it, then each of its masters."""
    facts = None
    for node in topology.nodes():
        facts = await examiner.answer(partial(_ask_node, topology, handshake, node))
        if facts is not None:
            break
    if facts is None:
        told = "none of the nodes that are known answers"
        examiner.add("cluster-coverage", "unknown", told, "redis-cli --cluster check host:port")
        return
    examiner.extend(list(coverage(facts)))
    servers: list[checks.Facts] = []
    for master in facts.masters:
        address = topology.server_at((master.host, master.port))
        found = await checks.read_facts(
            examiner, handshake, address, "redis-persistence", server=address.label
        )
        if found is None:
            continue
        servers.append(found)
        # `majority` of a shard counts its own replicas, dead ones included.
        replicas = sum(node.master == master.id for node in facts.nodes)
        count = max(1, (replicas + 1) // 2) if wanted is not None else None
        examiner.extend(checks.findings_of(found, count, fails_over=True, several=True))
    checks.expect(examiner, servers, confirmed=wanted is not None, fails_over=True)


async def _ask_node(topology: Topology, handshake: Handshake, node: HostPort, timeout: float) -> ClusterFacts:
    address = topology.server_at(node)
    connection = await handshake.connect(address, timeout)
    try:
        info, nodes = await handshake.ask_several(
            address, connection, timeout, (b"CLUSTER", b"INFO"), (b"CLUSTER", b"NODES")
        )
    finally:
        await handshake.close(connection)
    return understood(address.label, _facts, info, nodes or b"", node)


def _facts(info: bytes, nodes: Any, asked: HostPort) -> ClusterFacts:
    state = info_lines(info).get(b"cluster_state", b"").decode(errors="replace")
    lines = nodes.decode(errors="replace").splitlines()
    return ClusterFacts(state, tuple(_node(line.split(" "), asked) for line in lines if line.count(" ") >= 7))


def _node(words: list[str], asked: HostPort) -> Node:
    host, _, port = words[1].partition("@")[0].rpartition(":")
    slots = [_width(word) for word in words[NODE_FIELDS:]]
    flags = tuple(words[2].split(","))
    return Node(words[0], host or asked[0], int(port), flags, words[3], sum(slots))


def _width(word: str) -> int:
    """How many slots a range has; one that is being moved is in brackets, and counted where it still is."""
    if word.startswith("["):
        return 0
    first, _, last = word.partition("-")
    return int(last or first) - int(first) + 1


# -- the checks: pure ----------------------------------------------------------------------------


def coverage(facts: ClusterFacts) -> Iterator[Finding]:
    """cluster-coverage: slots without a master, masters without a replica, or with all of them beside it."""
    mend = "redis-cli --cluster check host:port, and --cluster fix"
    covered = sum(node.slots for node in facts.masters if node.sound)
    sound = facts.state == "ok" and covered == SLOTS
    if not sound:
        missing = f"{SLOTS - covered} of {SLOTS} slots have no master that works" if covered < SLOTS else ""
        said = missing or f"the Cluster says of itself that its state is {facts.state}"
        yield Finding("cluster-coverage", "danger", f"{said}: names there cannot be locked", mend)
    bare = [node for node in facts.masters if not _replicas_of(node, facts.nodes)]
    if bare:
        names = ", ".join(f"{node.host}:{node.port}" for node in bare)
        yield Finding(
            "cluster-coverage",
            "warning",
            f"no replica that works follows {names}: if it dies, nobody can lock the names in its slots",
            "redis-cli --cluster add-node host:port existing:port --cluster-slave",
        )
    together = [
        node
        for node in facts.masters
        if (followers := _replicas_of(node, facts.nodes))
        and {follower.host for follower in followers} == {node.host}
    ]
    if together:
        yield Finding(
            "cluster-coverage",
            "warning",
            f"{len(together)} of {len(facts.masters)} masters run on one host with all their replicas: they "
            "die together",
            "put a replica of each master on another machine",
        )
    if sound and not bare and not together:
        yield Finding(
            "cluster-coverage",
            "good",
            f"{len(facts.masters)} masters have all slots, and each has a replica elsewhere",
        )


def _replicas_of(master: Node, nodes: Sequence[Node]) -> list[Node]:
    return [node for node in nodes if node.master == master.id and node.sound]
