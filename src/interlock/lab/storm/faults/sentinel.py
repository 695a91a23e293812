"""A master with two replicas and three sentinels in a storm."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, cast

from interlock._support import clock
from interlock.lab.storm.faults import clients, network
from interlock.lab.storm.faults.announced import Announced
from interlock.lab.storm.faults.fault import CONNECT_S, Fault, Strike
from interlock.lab.storm.faults.redis import each, size
from interlock.testing.journal import Journal
from interlock.testing.servers.proxy import Mode
from interlock.testing.servers.sentinel import SentinelSet, until

if TYPE_CHECKING:
    from interlock.lab.storm.workers.crew import Crew

SWITCH_S = 3.0  # between the promotion of a replica and the last sentinel's, or client's, knowledge of it


class AnnouncedSet(SentinelSet):
    server_type = Announced


class Sentinel:
    """The servers; who is master changes, and is asked each time."""

    kind = "sentinel"
    settles = 12.0  # a failover, on a busy machine

    def __init__(self) -> None:
        self.faults: Sequence[Fault] = FAULTS
        self.set = AnnouncedSet()
        self._over = threading.Event()
        self._watching: threading.Thread | None = None

    def start(self) -> None:
        self.set.start()

    def watch(self, journal: Journal) -> None:
        """Write down every change of the master: sentinels may make one when nobody meant to."""
        self._watching = threading.Thread(target=self._watch, args=(journal,), daemon=True)
        self._watching.start()

    def _watch(self, journal: Journal) -> None:
        import redis

        known, changes = self.set.master().port, 0
        while not self._over.wait(0.05):
            with suppress(redis.RedisError, OSError, KeyError):
                now = self.set.master().port
                if now != known:
                    known, changes = now, changes + 1
                    said: dict[str, Any] = {"attempt": f"switch-{changes}", "error": "f: master changed"}
                    seen = clock.now()  # it was promoted before, and others follow later
                    journal.add("fault", "invoke", at=seen - SWITCH_S, **said)
                    journal.add("fault", "ok", at=seen + SWITCH_S, **said)

    def clients(self) -> Iterator[str]:
        """The ids of the master's clients that are neither sentinels nor replicas."""
        with self.set.admin() as asked:
            listed: Any = asked.client_list(_type="normal") + asked.client_list(_type="pubsub")
        for client in listed:
            if not client["name"].startswith("sentinel-"):
                yield client["id"]

    def places(self) -> list[str]:
        return [self.set.url(connect_timeout=str(CONNECT_S))]

    def naive_place(self) -> list[int]:
        return [self.set.master().port]

    def keys(self) -> int:
        return size(self.set.master())

    def close(self) -> None:
        self._over.set()
        if self._watching is not None:
            self._watching.join()
        self.set.close()


def fail_over(field: Sentinel, crew: Crew, chance: Random) -> None:
    """The master crashes, another is chosen, the old one comes back as a replica."""
    old = field.set.crash()
    _rejoin(field, old)


def fail_over_with_loss(field: Sentinel, crew: Crew, chance: Random) -> None:
    """What the master wrote last reached no replica, for certain."""
    old = field.set.master()
    with field.set.deaf():
        time.sleep(crew.ttl * chance.uniform(0.1, 0.3))
        old.kill()
    field.set.await_other_than(old)
    _rejoin(field, old)


def wake_up_as_master(field: Sentinel, crew: Crew, chance: Random) -> None:
    """The master stands still until another is chosen, and takes itself for the master when it goes on."""
    old = field.set.master()
    with old.frozen():
        field.set.await_other_than(old)
    until(lambda: _follow(field) == 2, 30)


def _break(mode: Mode) -> Strike:
    def strike(field: Sentinel, crew: Crew, chance: Random) -> None:
        """The master is isolated, and stays alive; if it lasts, another is chosen meanwhile."""
        way = cast(Announced, field.set.master()).way
        network.broken([way], mode, crew.ttl * chance.uniform(0.2, 1.4))
        until(lambda: _follow(field) == 2, 30)

    return strike


def _rejoin(field: Sentinel, old: Any) -> None:
    """Back as a replica from its first moment on: as a master it would be one of two, and sentinels waver
    then.
    """
    options: tuple[str, ...] = old._options
    plain = [word for n, word in enumerate(options) if "--replicaof" not in options[max(0, n - 2) : n + 1]]
    old._options = (*plain, "--replicaof", "127.0.0.1", str(field.set.master().port))
    old.start()
    until(lambda: _follow(field) == 2, 30)


def _follow(field: Sentinel) -> int:
    with field.set.admin() as asked:
        facts: Any = asked.info("replication")
    slaves = [facts[f"slave{n}"] for n in range(facts["connected_slaves"])]
    return sum(slave["state"] == "online" for slave in slaves)


def freeze_master(field: Sentinel, crew: Crew, chance: Random) -> None:
    """For less than it takes to be replaced."""
    with field.set.master().frozen():
        time.sleep(chance.uniform(0.1, 0.3))


def forget_scripts(field: Sentinel, crew: Crew, chance: Random) -> None:
    each([field.set.master()], "SCRIPT", "FLUSH")


def hang_up(field: Sentinel, crew: Crew, chance: Random) -> None:
    """Not on the sentinels: they would take it for a crash."""
    for id in list(field.clients()):
        each([field.set.master()], "CLIENT", "KILL", "ID", id)


def jump(field: Sentinel, crew: Crew, chance: Random) -> None:
    """The clocks of all servers jump forward by more than a ttl."""
    seconds = crew.ttl * chance.uniform(1.2, 3.0)
    for server in field.set.servers.values():
        cast(Announced, server).jump(seconds)


def flush(field: Sentinel, crew: Crew, chance: Random) -> None:
    """Everything is gone, from the replicas, too."""
    each([field.set.master()], "FLUSHALL")


def refuse(field: Sentinel, crew: Crew, chance: Random) -> None:
    """The master wants more replicas than there are before it writes."""
    master = field.set.master()
    each([master], "CONFIG", "SET", "min-replicas-to-write", 3)
    time.sleep(crew.ttl * chance.uniform(0.2, 1.0))
    each([master], "CONFIG", "SET", "min-replicas-to-write", 0)


FAULTS = (
    *clients.FAULTS,
    *(Fault(name, "network", "f", _break(mode), 1) for mode, name in network.MODES.items()),
    Fault("master frozen", "server", "f", freeze_master),
    Fault("connections ended", "server", "E", hang_up, 2),
    Fault("flushed", "amnesia", "L", flush, 1),
    Fault("clock forward", "clock", "f", jump),
    Fault("fail over", "failover", "f", fail_over, 1),
    Fault("fail over, writes lost", "failover", "f", fail_over_with_loss, 1),
    Fault("old master wakes up", "failover", "f", wake_up_as_master, 1),
    Fault("scripts forgotten", "refusal", "E", forget_scripts, 1),
    Fault("writes refused", "refusal", "R", refuse, 1),
)
