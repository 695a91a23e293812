"""Nodes of a Cluster that exist in memory alone: World for what they say of the slots, Stage for their answers to a router."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from interlock._core.drive import drive
from interlock.backends.redis.address import Address
from interlock.backends.redis.cluster.router import ClusterRouter
from interlock.backends.redis.cluster.slots import HostPort, read_map
from interlock.backends.redis.cluster.topology import NodeRoute, Topology
from interlock.backends.redis.wire.resp import command
from interlock.errors import ClientClosed, StoreUnavailable, Unreached

SERVER = Address("redis", "Connection", {})
LAST = 16383


def entry(first: int, last: int, *nodes: tuple[Any, int, str]) -> list[Any]:
    return [first, last, *([host, port, id.encode(), []] for host, port, id in nodes)]


def line(id: str, flags: str, master: str, epoch: int) -> str:
    return f"{id} 10.0.0.1:1@2 {flags} {master} 0 0 {epoch} connected"


class World:
    """Nodes by port, each with what it says of the slots."""

    def __init__(self) -> None:
        self.says: dict[int, tuple[list[Any], int] | Exception] = {}
        self.asked: list[int] = []
        self.open = 0

    async def connect(self, address: Address, timeout: float) -> Any:
        port: int = address._settings["port"]
        self.asked.append(port)
        said = self.says.get(port, StoreUnavailable(f"{port} is not there"))
        if isinstance(said, Exception):
            raise said
        self.open += 1
        return port

    async def ask_several(
        self, address: Address, connection: int, timeout: float, *commands: Sequence[bytes]
    ) -> list[Any]:
        raise AssertionError("only sentinels are asked several things at once")

    async def ask(self, address: Address, connection: int, timeout: float, *words: bytes) -> Any:
        said = self.says[connection]
        assert isinstance(said, tuple)
        return said[0] if words[1] == b"SLOTS" else line("A", "master", "-", said[1]).encode()

    async def close(self, connection: int) -> None:
        self.open -= 1


A, B, C = ("h", 1), ("h", 2), ("h", 3)
LOW, HIGH = "key-1", "key-2"  # their slots are below and above the half
Answer = Any | Callable[[], Any]


class Clock:
    """A clock that moves when somebody waits, and when a node is asked."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def signal(self) -> Any:
        return None

    async def wait(self, signal: Any, timeout: float | None) -> bool:
        self.time += timeout or 0.0
        return False


class Stage:
    """Nodes whose answers are written down beforehand: the last one is given again and again."""

    def __init__(self, shards: dict[HostPort, tuple[int, int]]) -> None:
        self.clock, self.world = Clock(), World()
        self.topology = Topology(SERVER, list(shards))
        self.answers: dict[HostPort, list[Answer]] = {}
        self.asked: list[tuple[HostPort, bytes]] = []
        self.limits: list[float] = []
        self.has(shards, 1)
        self.topology._adopt(self.map)
        self.shards = ClusterRouter(self.topology, self._transport, self.clock, self.world)

    def has(self, shards: dict[HostPort, tuple[int, int]], epoch: int) -> None:
        """Which slots the nodes say that each has, from now on."""
        told = [entry(*slots, (b"h", port, f"n{port}")) for (_, port), slots in shards.items()]
        self.map = read_map(told, b"", A)
        self.map.epoch = epoch
        self.world.says = {port: (told, epoch) for _, port in shards}

    def _transport(self, route: Any) -> Any:
        assert isinstance(route, NodeRoute)
        return Transport(self, route.node)

    def ask(self, name: str, timeout: float = 5.0, again: bool = True) -> Any:
        return drive(self.shards.ask(command(b"GET", name.encode()), timeout, 1, again))

    def ask_all(self, *names: str, timeout: float = 5.0) -> list[Any]:
        requests = [
            (command(b"GET", name.encode()), command(b"EVAL", b"source", b"1", name.encode()))
            for name in names
        ]
        return drive(self.shards.ask_all(requests, timeout))

    @property
    def places(self) -> list[HostPort]:
        return [place for place, _ in self.asked]


class Transport:
    def __init__(self, stage: Stage, place: HostPort) -> None:
        self._stage, self._place, self._closed = stage, place, False

    async def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Any:
        if self._closed:
            raise ClientClosed("this client was closed")
        stage, got = self._stage, []
        stage.asked.append((self._place, request))
        stage.limits.append(timeout)
        for _ in range(replies):
            answers = stage.answers[self._place]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            answer = answer() if callable(answer) else answer
            if isinstance(answer, StoreUnavailable):
                stage.clock.time += 0.001 if isinstance(answer, Unreached) else timeout
                raise answer
            got.append(answer)
        stage.clock.time += 0.001
        return got[0] if replies == 1 else got

    def after_fork(self) -> None: ...

    async def close(self) -> None:
        self._closed = True


SILENT = StoreUnavailable("did not answer")
