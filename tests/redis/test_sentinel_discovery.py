"""A master counts only if more than half of the sentinels were asked, it confirms its role, and its epoch is not outdated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from interlock._core.drive import drive
from interlock.backends.redis.address import Address
from interlock.backends.redis.sentinel import discovery
from interlock.backends.redis.sentinel.discovery import Sentinels
from interlock.backends.redis.sentinel.views import NEVER
from interlock.errors import StoreUnavailable

SERVER = Address("redis", "Connection", {})


class World:
    """Sentinels by port, each with the epoch and port of the master it knows; servers by port."""

    def __init__(self, known: dict[int, tuple[int, int]]) -> None:
        self.known = known
        self.servers: dict[int, tuple[bytes, bytes]] = {}  # role, replication id
        self.others: dict[int, int] = {}  # how many other sentinels one counts, by port
        self.ids: dict[int, bytes] = {}
        self.asked: list[int] = []
        self.open = 0

    async def connect(self, address: Address, timeout: float) -> Any:
        port = address._settings["port"]
        if port not in self.known and port not in self.servers:
            raise StoreUnavailable(f"{port} is not there")
        self.open += 1
        return port

    async def ask_several(
        self, address: Address, connection: int, timeout: float, *commands: Sequence[bytes]
    ) -> list[Any]:
        assert [command[1] for command in commands] == [b"MASTER", b"MYID", b"SENTINELS"]
        self.asked.append(connection)
        epoch, port = self.known[connection]
        master = [b"ip", b"h", b"port", b"%d" % port, b"config-epoch", b"%d" % epoch, b"num-slaves", b"2"]
        master += [b"num-other-sentinels", b"%d" % self.others.get(connection, 0)]
        return [master, self.ids.get(connection, b"%d" % connection), []]

    async def ask(self, address: Address, connection: int, timeout: float, *words: bytes) -> Any:
        role, replication = self.servers[connection]
        return b"# Replication\r\nrole:%b\r\nmaster_replid:%b\r\n" % (role, replication)

    async def close(self, connection: int) -> None:
        self.open -= 1


def watching(*ports: int) -> Sentinels:
    return Sentinels([SERVER.at("h", port) for port in ports], "main", SERVER)


def connected(sentinels: Sentinels, world: World) -> int:
    port: int = drive(sentinels._open(world, 1.0))
    assert world.open == 1, "a connection was left open"
    world.open = 0
    return port


def test_more_than_half_are_asked_and_the_latest_epoch_counts() -> None:
    world = World({1: (3, 100), 2: (4, 200), 3: (4, 200)})
    world.servers = {100: (b"master", b"old"), 200: (b"master", b"new")}
    assert connected(watching(1, 2, 3), world) == 200
    assert world.asked == [1, 2]


def test_the_dead_are_asked_last_the_next_time() -> None:
    world = World({3: (1, 100), 4: (1, 100), 5: (1, 100)})
    world.servers = {100: (b"master", b"a")}
    sentinels = watching(1, 2, 3, 4, 5)
    connected(sentinels, world)
    assert [address._settings["port"] for address in sentinels._sentinels] == [3, 4, 5, 1, 2]


def test_one_that_answers_is_better_than_none() -> None:
    world = World({3: (1, 100)})
    world.servers = {100: (b"master", b"a")}
    assert connected(watching(1, 2, 3), world) == 100
    world.known = {}
    with pytest.raises(StoreUnavailable, match="no sentinel names it"):
        connected(watching(1, 2, 3), world)


def test_a_replica_that_is_named_is_refused_and_hung_up() -> None:
    world = World({1: (1, 100)})
    world.servers = {100: (b"slave", b"a")}
    with pytest.raises(StoreUnavailable, match="failover is under way"):
        connected(watching(1), world)
    assert world.open == 0


def test_a_straggler_does_not_lead_back_to_the_old_master(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World({1: (4, 200)})
    world.servers = {100: (b"master", b"old"), 200: (b"master", b"new")}
    sentinels = watching(1)
    assert connected(sentinels, world) == 200
    world.known = {1: (3, 100)}
    with pytest.raises(StoreUnavailable, match="have not heard of its last failover"):
        connected(sentinels, world)
    monkeypatch.setattr(discovery, "OUTDATED_S", 0.0)  # much later: the sentinels were set up anew
    assert connected(sentinels, world) == 100


def test_another_memory_is_a_change_and_the_same_one_is_none() -> None:
    told: list[int] = []
    world = World({1: (1, 100)})
    world.servers = {100: (b"master", b"a")}
    sentinels = watching(1)
    sentinels.on_change = lambda: told.append(sentinels.changes)
    connected(sentinels, world)
    connected(sentinels, world)
    assert sentinels.changes == 0
    world.servers = {100: (b"master", b"restarted empty")}
    connected(sentinels, world)
    assert told == [1]


def test_a_sentinel_that_counts_itself_alone_is_no_majority_of_those_that_a_url_names() -> None:
    world = World({1: (0, 100)})
    world.servers = {100: (b"master", b"a")}
    sentinels = watching(1, 2, 3)
    connected(sentinels, world)
    assert sentinels.agreed == NEVER
    world.known[3] = (0, 100)
    connected(sentinels, world)
    assert sentinels.agreed > NEVER


def test_a_sentinel_that_lost_its_memory_is_no_majority_of_those_that_it_counted_before() -> None:
    world = World({1: (0, 100), 2: (0, 100)})
    world.servers, world.others = {100: (b"master", b"a")}, {1: 2, 2: 2}
    sentinels = watching(1)
    connected(sentinels, world)
    world.others, world.ids = {}, {1: b"another"}
    world.servers = {100: (b"master", b"restarted")}
    connected(sentinels, world)
    assert sentinels.agreed == NEVER


@pytest.mark.parametrize("real", [1, 2, 3])
def test_one_sentinel_of_two_names_is_counted_once(real: int) -> None:
    names = range(1, 3 * real + 1)
    world = World(dict.fromkeys(names, (0, 100)))
    world.servers = {100: (b"master", b"a")}
    world.ids = {port: b"%d" % ((port - 1) // 3) for port in names}
    world.others = dict.fromkeys(names, real - 1)
    sentinels = watching(*names)
    for _ in names:
        connected(sentinels, world)
    assert sentinels.agreed > NEVER
