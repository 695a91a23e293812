"""What goes wrong, and what is promised then: one function a fault, from its beginning until it has healed.

Promises, as in the table of what each store keeps: E no two valid leases overlap; f they may, tokens carry it;
L likewise, a documented limit; R some are refused, none is granted wrongly. Tokens and counters hold in all.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

import redis

from interlock._support import clock
from interlock.testing.servers.proxy import Mode, Proxy
from interlock.testing.servers.sentinel import until
from tests.storm import members, mysql, postgresql, shards, zookeeper
from tests.storm.crew import Crew
from tests.storm.field import Redlock, Single, admin, each, frozen

Promise = Literal["E", "f", "L", "R"]
Strike = Callable[[Any, Crew, Random], None]
QUARANTINE = 5.0  # seconds within which only two of five nodes may lose their memory


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    `promise` is a function where the release of the server decides. `weight`: how often, against the others. `slow`: seconds
    that its promise and progress may take beyond the usual.
    """

    name: str
    promise: Promise | Callable[[], Promise]
    strike: Strike
    weight: int = 2
    slow: float = 0.0


# ---- clients ---------------------------------------------------------------------------


def stop_client(field: Any, crew: Crew, chance: Random) -> None:
    """Stopped past its ttl, then run again: its next write must be refused, if another has written."""
    victim = chance.choice(crew.hands)
    victim.signal(signal.SIGSTOP)
    time.sleep(crew.ttl * chance.uniform(1.05, 1.6))
    victim.signal(signal.SIGCONT)


def kill_client(field: Any, crew: Crew, chance: Random) -> None:
    """Killed wherever it is; another comes in its place."""
    crew.replace(chance.choice(crew.hands))


# ---- servers ---------------------------------------------------------------------------


def _some(field: Any, chance: Random) -> list[Any]:
    return field.minority(chance) if isinstance(field, Redlock) else [field.server]


def crash(field: Any, crew: Crew, chance: Random) -> None:
    """kill -9, away for a moment, and back with what its disk has."""
    servers = _some(field, chance)
    for server in servers:
        server.kill()
    time.sleep(chance.uniform(0.0, 0.8))
    for server in servers:
        server.start()


def empty(field: Any, crew: Crew, chance: Random) -> None:
    """kill -9, and back without its disk: one server, or one more node of at most two."""
    if isinstance(field, Single):
        field.server.empty()
        return
    _one_of_two(field, chance).empty()


def _one_of_two(field: Redlock, chance: Random) -> Any:
    """A node that may lose its memory: at most two are without theirs at a time."""
    now = clock.now()
    out = [port for port, when in field.emptied.items() if now - when < QUARANTINE]
    server = chance.choice([node for node in field.servers if len(out) < 2 or node.port in out])
    field.emptied[server.port] = now
    return server


def flush(field: Any, crew: Crew, chance: Random) -> None:
    """Everything on one server is gone, and it does not know that it ever was there."""
    each([field.server] if isinstance(field, Single) else [_one_of_two(field, chance)], "FLUSHALL")


def freeze(field: Any, crew: Crew, chance: Random) -> None:
    """Accepts connections, and answers nothing; then goes on with what it was sent meanwhile."""
    with frozen(_some(field, chance)):
        time.sleep(crew.ttl * chance.uniform(0.2, 1.5))


def freeze_most(field: Any, crew: Crew, chance: Random) -> None:
    with frozen(chance.sample(field.servers, 3)):
        time.sleep(crew.ttl * chance.uniform(0.5, 1.5))


def forget_scripts(field: Any, crew: Crew, chance: Random) -> None:
    each(field.servers, "SCRIPT", "FLUSH")


def hang_up(field: Any, crew: Crew, chance: Random) -> None:
    """The server ends everybody's connections of one kind."""
    each(field.servers, "CLIENT", "KILL", "TYPE", chance.choice(("normal", "pubsub")), "SKIPME", "yes")


def jump(field: Any, crew: Crew, chance: Random) -> None:
    """One server's clock, forward by more than a ttl."""
    chance.choice(field.servers).jump(crew.ttl * chance.uniform(1.2, 3.0))


def jump_back(field: Any, crew: Crew, chance: Random) -> None:
    """One server's clock, back by a part of a ttl: what stands there lapses that much later.

    It has healed when the clock is where it was: tokens need the counter or the clock, and the next fault may take
    the counter.
    """
    seconds = crew.ttl * chance.uniform(0.3, 1.0)
    chance.choice(field.servers).jump(-seconds)
    time.sleep(seconds)


def refuse_writes(field: Any, crew: Crew, chance: Random) -> None:
    """As a full disk or too few replicas make a server: it answers, and does nothing."""
    servers = _some(field, chance)
    each(servers, "CONFIG", "SET", "min-replicas-to-write", 1)
    time.sleep(crew.ttl * chance.uniform(0.2, 1.0))
    each(servers, "CONFIG", "SET", "min-replicas-to-write", 0)


def evict(field: Any, crew: Crew, chance: Random) -> None:
    """Memory runs out, and the server throws away whatever it likes."""
    with suppress(redis.RedisError), admin(field.server) as asked:
        used: Any = asked.info("memory")
        asked.config_set("maxmemory-policy", chance.choice(("allkeys-random", "volatile-random")))
        asked.config_set("maxmemory", used["used_memory"] + 300_000)
        for number in range(200):
            asked.set(f"filler-{number}", b"x" * 5_000, px=2_000)
        asked.config_set("maxmemory", 0)
        asked.delete(*[f"filler-{number}" for number in range(200)])


# ---- ways ------------------------------------------------------------------------------


def _broken(ways: list[Proxy], mode: Mode, seconds: float) -> None:
    for way in ways:
        way.set(mode)
    time.sleep(seconds)
    for way in ways:
        way.set("pass")


def _way_fault(mode: Mode) -> Strike:
    def strike(field: Any, crew: Crew, chance: Random) -> None:
        several = chance.choice((1, 2, 3)) if isinstance(field, Redlock) else 1
        _broken(chance.sample(field.ways, several), mode, crew.ttl * chance.uniform(0.2, 1.4))

    return strike


MODES: tuple[Mode, ...] = ("mute", "deaf", "hole", "half_open", "cut", "late")
WAYS = [Fault(mode, "E", _way_fault(mode), 1) for mode in MODES]


# ---- Sentinel --------------------------------------------------------------------------


def fail_over(field: Any, crew: Crew, chance: Random) -> None:
    """The master crashes, another is chosen, the old one comes back as a replica."""
    old = field.set.crash()
    _rejoin(field, old)


def fail_over_with_loss(field: Any, crew: Crew, chance: Random) -> None:
    """What the master wrote last reached no replica, for certain."""
    old = field.set.master()
    with field.set.deaf():
        time.sleep(crew.ttl * chance.uniform(0.1, 0.3))
        old.kill()
    field.set.await_other_than(old)
    _rejoin(field, old)


def _rejoin(field: Any, old: Any) -> None:
    """Back as a replica from its first moment on: as a master it would be one of two, and sentinels waver then."""
    plain = [
        word
        for n, word in enumerate(old._options)
        if "--replicaof" not in old._options[max(0, n - 2) : n + 1]
    ]
    old._options = (*plain, "--replicaof", "127.0.0.1", str(field.set.master().port))
    old.start()
    until(lambda: _follow(field) == 2, 30)


def _follow(field: Any) -> int:
    with field.set.admin() as asked:
        facts: Any = asked.info("replication")
    slaves = [facts[f"slave{n}"] for n in range(facts["connected_slaves"])]
    return sum(slave["state"] == "online" for slave in slaves)


def freeze_master(field: Any, crew: Crew, chance: Random) -> None:
    """For less than it takes to be replaced."""
    with field.set.master().frozen():
        time.sleep(chance.uniform(0.1, 0.3))


def master_forgets_scripts(field: Any, crew: Crew, chance: Random) -> None:
    each([field.set.master()], "SCRIPT", "FLUSH")


def master_hangs_up(field: Any, crew: Crew, chance: Random) -> None:
    """Not on the sentinels: they would take it for a crash."""
    for id in list(field.clients()):
        each([field.set.master()], "CLIENT", "KILL", "ID", id)


CLIENTS = [Fault("stop client", "E", stop_client), Fault("kill client", "E", kill_client)]
SERVER = [
    Fault("freeze", "E", freeze),
    Fault("script flush", "E", forget_scripts, 1),
    Fault("hang up", "E", hang_up),
    Fault("clock forward", "f", jump),
    Fault("writes refused", "R", refuse_writes, 1),
]

FAULTS: dict[str, list[Fault]] = {
    "durable": [
        *CLIENTS,
        *SERVER,
        *WAYS,
        Fault("crash", "E", crash),
        Fault("clock back", "E", jump_back, 1, 2.0),
        Fault("flushall", "L", flush),
        Fault("empty restart", "L", empty, 1),
    ],
    "forgetful": [
        *CLIENTS,
        *SERVER,
        *WAYS,
        Fault("crash", "L", crash),
        Fault("clock back", "E", jump_back, 1, 2.0),
        Fault("flushall", "L", flush),
        Fault("eviction", "L", evict),
    ],
    "sentinel": [
        *CLIENTS,
        Fault("fail over", "f", fail_over, 1),
        Fault("fail over, writes lost", "f", fail_over_with_loss, 1),
        Fault("freeze master", "f", freeze_master),
        Fault("script flush", "E", master_forgets_scripts, 1),
        Fault("hang up", "E", master_hangs_up, 2),
    ],
    "redlock": [
        *CLIENTS,
        *SERVER,
        *WAYS,
        Fault("crash", "E", crash, 3),
        Fault("empty restart", "E", empty, 3),
        Fault("flushall", "E", flush, 2),
        Fault("freeze most", "R", freeze_most, 1),
    ],
    "cluster": [
        *CLIENTS,
        Fault("move slot", "E", shards.move_slot, 3),
        Fault("fail over", "f", shards.fail_over, 1),
        Fault("fail over, writes lost", "f", shards.fail_over_with_loss, 1),
        Fault("freeze master", "f", shards.freeze_master),
        Fault("script flush", "E", shards.forget_scripts, 1),
        Fault("hang up", "E", shards.hang_up),
    ],
    "zookeeper": [
        Fault("kill client", "E", kill_client),
        *(Fault(name, promise, strike, weight) for name, promise, strike, weight in zookeeper.ROWS),
    ],
    "postgresql": [
        *CLIENTS,
        *WAYS,
        Fault("crash", "E", postgresql.crash),
        Fault("shut down", "E", postgresql.shut_down, 1),
        Fault("freeze", "E", postgresql.freeze),
        Fault("connections ended", "E", postgresql.terminate),
        Fault("clock forward", "f", postgresql.jump),
        Fault("clock back", "E", postgresql.jump_back, 1, 2.0),
        Fault("standby promoted, writes lost", "f", postgresql.promote),
        Fault("connections full", "R", postgresql.fill),
        Fault("idle limits", "E", postgresql.limit_idleness, 1),
        Fault("read-only", "R", postgresql.read_only, 1),
    ],
    "etcd": [
        *CLIENTS,
        *WAYS,
        Fault("leader killed", "E", members.kill_leader, 3),
        Fault("member cut off", "E", members.cut_off, 3),
        Fault("quorum lost", "R", members.lose_quorum, 2),
        Fault("member frozen", "E", members.freeze_member, 3),
        Fault("leader frozen", members.promise_when_a_leader_wakes, members.freeze_leader, 3),
        Fault("majority frozen", "R", members.freeze_most, 1),
        Fault("lease revoked", "f", members.revoke_lease, 2),
    ],
    "mysql": mysql.fault_list(Fault, CLIENTS, WAYS),
}
