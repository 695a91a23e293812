"""One Redis server in a storm: durable (every write is on its disk), forgetful, or without pub/sub."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from interlock.lab.storm.faults import clients, network
from interlock.lab.storm.faults.fault import CONNECT_S, Fault, crash, freeze, jump, jump_back
from interlock.testing.patience import PATIENCE
from interlock.testing.servers.clock import ClockedServer
from interlock.testing.servers.redis import Server
from interlock.testing.servers.redlock import DURABLE

if TYPE_CHECKING:
    import redis

    from interlock.lab.storm.workers.crew import Crew

FILLERS = 200
FILLER = b"x" * 5_000


class Single:
    """One server, and a way to it that faults can break."""

    settles = 3.0

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.faults: Sequence[Fault] = FORGETFUL if kind == "forgetful" else DURABLE_FAULTS
        # The user of this kind may neither publish nor subscribe, so its waiters poll.
        self._user = "mute:pw@" if kind == "mute" else ""
        rights = ("--user", "mute", "on", ">pw", "~*", "+@all", "resetchannels") if self._user else ()
        self.server = ClockedServer(*(() if kind == "forgetful" else DURABLE), *rights)
        self.servers = [self.server]
        self.ways: list[network.Way] = []

    def start(self) -> None:
        self.server.start()
        self.ways = [network.Way(self.server.port)]

    def places(self) -> list[str]:
        ends = (self.server.port, self.ways[0].port)
        return [f"redis://{self._user}127.0.0.1:{port}/0?connect_timeout={CONNECT_S}" for port in ends]

    def naive_place(self) -> list[int]:
        return [self.server.port]

    def keys(self) -> int:
        return size(self.server)

    def close(self) -> None:
        for way in self.ways:
            way.close()
        self.server.close()


# ---- what servers are told ---------------------------------------------------------------------


def admin(server: Server) -> redis.Redis:
    import redis

    return redis.Redis(port=server.port, socket_timeout=3, decode_responses=True)


def size(server: Server) -> int:
    with admin(server) as asked:
        found: Any = asked.dbsize()
        return int(found)


def each(servers: Sequence[Any], *words: Any) -> None:
    """Say something to servers; one that is away does not hear it."""
    import redis

    for server in servers:
        with suppress(redis.RedisError), admin(server) as asked:
            asked.execute_command(*words)


# ---- faults ------------------------------------------------------------------------------------


def empty(field: Single, crew: Crew, chance: Random) -> None:
    """kill -9, and back without its disk."""
    field.server.empty()


def flush(field: Single, crew: Crew, chance: Random) -> None:
    """Everything on the server is gone, and it does not know that it ever was there."""
    each([field.server], "FLUSHALL")


def forget_scripts(field: Any, crew: Crew, chance: Random) -> None:
    each(field.servers, "SCRIPT", "FLUSH")


def hang_up(field: Any, crew: Crew, chance: Random) -> None:
    """The servers end everybody's connections of one kind."""
    each(field.servers, "CLIENT", "KILL", "TYPE", chance.choice(("normal", "pubsub")), "SKIPME", "yes")


def refuse_writes(field: Any, crew: Crew, chance: Random, servers: Sequence[Any] = ()) -> None:
    """As a full disk or too few replicas make a server: it answers, and does nothing."""
    some = servers or field.servers
    each(some, "CONFIG", "SET", "min-replicas-to-write", 1)
    time.sleep(crew.ttl * chance.uniform(0.2, 1.0))
    each(some, "CONFIG", "SET", "min-replicas-to-write", 0)


def limit_clients(field: Any, crew: Crew, chance: Random) -> None:
    """The server takes no more connections, and ends those that there are; ours is the only one left."""
    import redis

    # Patient: once this connection is lost, nobody gets in to raise the limit again.
    with redis.Redis(port=field.server.port, socket_timeout=PATIENCE) as asked:
        asked.config_set("maxclients", 1)
        asked.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        time.sleep(crew.ttl * chance.uniform(0.2, 1.0))
        asked.config_set("maxclients", 10_000)


def fill_memory(field: Any, crew: Crew, chance: Random) -> None:
    """No memory is left, and nothing is thrown away: the server refuses what needs any."""
    import redis

    with suppress(redis.RedisError), admin(field.server) as asked:
        asked.config_set("maxmemory-policy", "noeviction")
        asked.config_set("maxmemory", 1)
        time.sleep(crew.ttl * chance.uniform(0.2, 1.0))
        asked.config_set("maxmemory", 0)


def evict(field: Any, crew: Crew, chance: Random) -> None:
    """Memory runs out, and the server throws away whatever it likes."""
    import redis

    with suppress(redis.RedisError), admin(field.server) as asked:
        used: Any = asked.info("memory")
        asked.config_set("maxmemory-policy", chance.choice(("allkeys-random", "volatile-random")))
        asked.config_set("maxmemory", used["used_memory"] + 300_000)
        for number in range(FILLERS):
            asked.set(f"filler-{number}", FILLER, px=2_000)
        asked.config_set("maxmemory", 0)
        asked.delete(*[f"filler-{number}" for number in range(FILLERS)])


def of_servers(where: str = "server") -> list[Fault]:
    """What can happen to any Redis server that is asked directly."""
    return [
        Fault("frozen", "server", "E", freeze),
        Fault("connections ended", "server", "E", hang_up),
        Fault("clock forward", "clock", "f", jump),
        Fault("scripts forgotten", "refusal", "E", forget_scripts, 1),
    ]


_SINGLE = (
    *clients.FAULTS,
    *network.faults(),
    *of_servers(),
    Fault("clock back", "clock", "E", jump_back, 1, 2.0),
    Fault("flushed", "amnesia", "L", flush),
    Fault("writes refused", "refusal", "R", refuse_writes, 1),
    Fault("connections full", "refusal", "R", limit_clients, 1),
    Fault("memory full", "refusal", "R", fill_memory, 1),
)
DURABLE_FAULTS = (
    *_SINGLE,
    Fault("killed and back", "server", "E", crash),
    Fault("restarted empty", "amnesia", "L", empty, 1),
)
FORGETFUL = (
    *_SINGLE,
    Fault("restarted empty", "amnesia", "L", crash),
    Fault("evicting", "amnesia", "L", evict),
)
