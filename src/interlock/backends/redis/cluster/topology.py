"""The topology of a Cluster: which node has which slot, asked anew whenever a node contradicts it or is gone.

Every node can be asked, but one that was cut off knows an old map. So a map is never replaced by one of an
earlier epoch, and nodes that were in trouble are asked last.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from interlock._core.drive import drive
from interlock._core.runtime import Signal
from interlock._support import native
from interlock.backends.kit.connect_pace import ConnectPace
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.redis.address import Address
from interlock.backends.redis.cluster.slots import HostPort, Remap, SlotMap, read_map
from interlock.backends.redis.errors import understood
from interlock.backends.redis.transport.handshake import (
    AsyncHandshake,
    BlockingHandshake,
    Handshake,
    info_lines,
    one_then_all,
)
from interlock.errors import InterlockError, StoreUnavailable, StoreUnfit, Unreached
from interlock.store import CONNECT_TIMEOUT

NODE_TIMEOUT_S = 0.5  # seconds that one node may take before the others are asked
# Seconds for which an older epoch counts as outdated; later it means that the Cluster was set up anew.
OUTDATED_S = 30.0
PORT = 6379


class Topology:
    """The last known map of the nodes.

    As a route it leads to any of them, since a plain message reaches all nodes.
    """

    def __init__(self, server: Address, seeds: Sequence[HostPort], remap: Remap | None = None) -> None:
        self._server = server  # how to log in to any node: user, password, TLS
        self._seeds = list(seeds)
        self.remap = remap
        self.pace = ConnectPace(server.connect_timeout)
        self.label = f"Redis Cluster at {','.join(f'{host}:{port}' for host, port in self._seeds)}"
        self.map: SlotMap | None = None
        self.on_change: Callable[[], None] | None = None
        self._confirmed = 0.0  # when a node last confirmed the epoch of our map
        self._nodes = list(self._seeds)  # nodes in trouble come last
        # Nodes whose part of the map is in doubt, each with the node that knows better, if one was named.
        self.suspects: dict[HostPort, HostPort | None] = {}
        self._memories: dict[HostPort, bytes] = {}  # replication ids
        self.after_fork()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.label}>"

    def after_fork(self) -> None:
        self._mutex = native.mutex()
        self._asking = False
        self._waiting: list[Signal] = []

    def inside(self) -> bool:
        return self._mutex._is_owned()

    @classmethod
    def of_client(cls, client: Any, connect_timeout: float = CONNECT_TIMEOUT) -> Topology:
        """The Cluster behind a `RedisCluster` of redis-py or valkey-py, sync or async."""
        manager = client.nodes_manager
        found = list(manager.nodes_cache.values()) or list(manager.startup_nodes.values())
        nodes = [(str(node.host), int(node.port)) for node in found]
        remap: Remap | None = getattr(manager, "address_remap", None)
        return cls(Address.of_cluster(client, connect_timeout).at(*nodes[0]), nodes, remap)

    # ---- the map -------------------------------------------------------

    def suspect(self, node: HostPort, hint: HostPort | None = None) -> None:
        """Note that a node did not answer or named another for a slot: the map is refreshed before it is
        used again.
        """
        with self._mutex:
            self.suspects[node] = hint
            if node in self._nodes and hint is None:
                self._nodes.remove(node)
                self._nodes.append(node)

    async def refresh(
        self, handshake: Handshake, runtime: WaitRuntime, node: HostPort | None, timeout: float
    ) -> None:
        """Ask the nodes for the map, once for all concurrent callers; `StoreUnavailable` if no node
        answers.
        """
        with self._mutex:
            if self.map is not None and node is not None and node not in self.suspects:
                return  # another caller has refreshed it by now
            first, self._asking, signal = not self._asking, True, runtime.signal()
            if not first:
                self._waiting.append(signal)
        if not first:
            await runtime.wait(signal, timeout)
            return
        try:
            await self._ask_around(handshake, node, timeout)
        finally:
            with self._mutex:
                self._asking = False
                waiting, self._waiting = self._waiting, []
            for signal in waiting:
                signal.set()

    async def _ask_around(self, handshake: Handshake, node: HostPort | None, timeout: float) -> None:
        hint = self.suspects.get(node) if node is not None else None
        nodes = ([hint] if hint else []) + [node for node in self._nodes if node != hint]
        asks = [partial(self._ask_node, handshake, node) for node in nodes]
        until = time.monotonic() + timeout
        found, failures = await one_then_all(handshake, asks, 1, self.pace.share(NODE_TIMEOUT_S), until)
        if found:
            return
        errors = [error for _, error in failures if not isinstance(error, _Behind)]
        if errors and all(isinstance(error, StoreUnfit) for error in errors):
            raise errors[0]
        said = "; ".join(str(error) for error in errors)
        raise Unreached(  # the request itself was not sent
            f"{self.label}: no node tells who has which slot now ({said or 'those that answer are behind'})"
        )

    async def _ask_node(self, handshake: Handshake, node: HostPort, timeout: float) -> bool:
        """Ask one node and adopt its map; `_Behind` if we know a later one, or if the node knows no
        others.
        """
        began = time.monotonic()
        try:
            found = await self._fetch_map(handshake, node, timeout)
        except InterlockError:
            self.suspect(node)
            raise
        self.pace.reached(time.monotonic() - began)
        if not self._adopt(found):
            raise _Behind(f"{node[0]}:{node[1]} is behind")
        return True

    async def _fetch_map(self, handshake: Handshake, node: HostPort, timeout: float) -> SlotMap:
        address, until = self._server.at(*node), time.monotonic() + timeout
        connection = await handshake.connect(address, timeout)
        try:
            slots = await handshake.ask(address, connection, _left(until), b"CLUSTER", b"SLOTS")
            nodes = await handshake.ask(address, connection, _left(until), b"CLUSTER", b"NODES")
        finally:
            await handshake.close(connection)
        return understood(address.label, read_map, slots, nodes, node, self.remap)

    def _adopt(self, found: SlotMap) -> bool:
        """Adopt a map, unless a later one is known. Returns whether it was adopted."""
        now = time.monotonic()
        with self._mutex:
            old = self.map
            if not found.masters:
                return False  # a node that was never joined to the others
            if old is not None and found.epoch < old.epoch and now - self._confirmed < OUTDATED_S:
                return False
            self.map, self._confirmed = found, now
            masters = [master.node for master in found.masters]
            random.shuffle(masters)  # so that not all clients ask the same one
            known = [*masters, *(node for node in found.nodes if node not in masters)]
            self._nodes = known + [seed for seed in self._seeds if seed not in known]
            # A silent node holds up the questions to all after it.
            self._nodes.sort(key=self.suspects.__contains__)
            self.suspects.clear()
            failed_over = old is not None and not old.ids <= found.ids
        if failed_over:
            self._changed()
        return True

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def node_of(self, slot: int) -> HostPort:
        """The node that has a slot as far as we know; otherwise any node, which will redirect us."""
        node = None if self.map is None else self.map.node(slot)
        return self._nodes[0] if node is None else node

    # ---- connections ------------------------------------------------------------------

    @property
    def connect_timeout(self) -> float:
        """Seconds that connecting may take; less once a node was reached, since a slow one is then
        probably gone.
        """
        return self.pace.limit

    def nodes(self) -> list[HostPort]:
        """The nodes that are known, those in trouble last."""
        with self._mutex:
            return list(self._nodes)

    def server_at(self, node: HostPort) -> Address:
        """How to log in to a node."""
        return self._server.at(*node)

    def route_to(self, node: HostPort) -> NodeRoute:
        return NodeRoute(self, self._server.at(*node), node)

    def connected_to(self, node: HostPort, memory: bytes) -> None:
        """Note a new connection to a node.

        Another replication id means that it has another memory than before.
        """
        with self._mutex:
            changed = self._memories.get(node, memory) != memory
            self._memories[node] = memory
        if changed:
            self._changed()

    def connect(self, timeout: float) -> Any:
        return drive(self._open(BlockingHandshake(), timeout), nested=True)

    async def connect_async(self, timeout: float) -> Any:
        return await self._open(AsyncHandshake(), timeout)

    async def _open(self, handshake: Handshake, timeout: float) -> Any:
        """A connection to any node whose Cluster works; a node that was cut off receives no messages."""
        until = time.monotonic() + timeout
        for node in list(self._nodes):
            left = until - time.monotonic()
            if left <= 0:
                break
            address, share = (
                self._server.at(*node),
                max(0.001, min(self.pace.share(NODE_TIMEOUT_S), left / 2)),
            )
            told_until = time.monotonic() + share
            try:
                connection = await handshake.connect(address, share)
            except InterlockError:
                continue
            try:
                facts = await handshake.ask(address, connection, _left(told_until), b"CLUSTER", b"INFO")
                if isinstance(facts, bytes) and b"cluster_state:ok" in facts:
                    return connection
            except InterlockError:
                pass
            await handshake.close(connection)
        raise StoreUnavailable(f"{self.label}: no node can be reached that is part of a Cluster at work")


class NodeRoute:
    """The route to one node.

    A node that came back without its memory is detected when we connect to it again.
    """

    def __init__(self, cluster: Topology, address: Address, node: HostPort) -> None:
        self._cluster = cluster
        self._address = address
        self.node = node
        self.label = address.label

    @property
    def connect_timeout(self) -> float:
        return self._cluster.connect_timeout

    @property
    def pace(self) -> ConnectPace:
        return self._cluster.pace

    def connect(self, timeout: float) -> Any:
        return drive(self._open(BlockingHandshake(), timeout), nested=True)

    async def connect_async(self, timeout: float) -> Any:
        return await self._open(AsyncHandshake(), timeout)

    async def _open(self, handshake: Handshake, timeout: float) -> Any:
        try:
            facts, connection = await self._entered(handshake, timeout)
        except StoreUnavailable as error:
            raise Unreached(str(error)) from None
        self._cluster.connected_to(self.node, facts.get(b"master_replid", b""))
        return connection

    async def _entered(self, handshake: Handshake, timeout: float) -> tuple[dict[bytes, bytes], Any]:
        until = time.monotonic() + timeout
        connection = await handshake.connect(self._address, timeout)
        try:
            words = await handshake.ask(self._address, connection, _left(until), b"INFO", b"replication")
            facts = understood(self.label, info_lines, words)
        except BaseException:
            await handshake.close(connection)
            raise
        return facts, connection


class _Behind(InterlockError):
    """The map of a node is older than ours, or empty."""


def _left(until: float) -> float:
    """The time that is left for one node: a second question must not have the whole time again."""
    return max(0.001, until - time.monotonic())
