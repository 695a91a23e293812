"""PostgreSQL in a storm: one server whose clock can be moved, and a standby that takes its place.

A standby is a copy by pg_basebackup. To promote one that missed the last writes, that copy is started in the
place of the primary, which is killed: clients reconnect to the same address, as behind a virtual address.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import interlock
from interlock._support import clock
from interlock.lab.storm.faults import clients, network
from interlock.lab.storm.faults.fault import CONNECT_S, Fault, crash, freeze, jump, jump_back
from interlock.testing.servers.clock import set_offset, shim
from interlock.testing.servers.postgresql import ReplicatedServer

if TYPE_CHECKING:
    from interlock.lab.storm.workers.crew import Crew

SETTINGS = (
    "max_connections=50",
    "superuser_reserved_connections=3",
)


class ClockedPostgres(ReplicatedServer):
    """A primary with a standby, whose wall clock can be moved while it runs."""

    def __init__(self, *settings: str) -> None:
        library = shim()
        os.chmod(library.parent, 0o755)
        super().__init__(*settings)
        self._file = Path(self.folder, "clock")
        self.offset = 0.0
        set_offset(self._file, 0.0)
        self._environment = {"LD_PRELOAD": str(library), "CLOCKSHIM_FILE": str(self._file)}

    def jump(self, seconds: float) -> None:
        self.offset += seconds
        set_offset(self._file, self.offset)


class Postgres:
    """One durable server, reached directly and over a way that can be broken."""

    kind = "postgresql"
    settles = 4.0

    def __init__(self) -> None:
        self.faults: Sequence[Fault] = FAULTS
        self.server = ClockedPostgres(*SETTINGS)
        self.servers = [self.server]
        self.ways: list[network.Way] = []

    def start(self) -> None:
        self.server.start()
        self.server.sql("create role plain login")
        self.ways = [network.Way(self.server.port)]

    def places(self) -> list[str]:
        ends = (self.server.port, self.ways[0].port)
        options = f"connect_timeout={CONNECT_S}"
        return [f"postgresql://postgres@127.0.0.1:{port}/postgres?{options}" for port in ends]

    def naive_place(self) -> list[int]:
        return [self.server.port]

    def keys(self) -> int:
        """Rows that are left once there was a little traffic, as an idle system has."""
        with interlock.connect(self.places()[0]) as client:
            for _ in range(3):
                with client.lock("traffic"):
                    pass
        counts = [f"(select count(*) from interlock.{table})" for table in ("claim", "register", "bell")]
        ((rows,),) = self.server.sql(f"select {' + '.join(counts)}")
        return int(rows)

    def close(self) -> None:
        for way in self.ways:
            way.close()
        self.server.close()
        shutil.rmtree(os.path.dirname(self.server.data), ignore_errors=True)  # of a standby that took over


# ---- faults ------------------------------------------------------------------------------------


def shut_down(field: Postgres, crew: Crew, chance: Random) -> None:
    """As an operator restarts it."""
    field.server.stop()
    field.server.start()


def terminate(field: Postgres, crew: Crew, chance: Random) -> None:
    """An operator ends everybody's connections, several times."""
    for _ in range(chance.choice((1, 3))):
        field.server.terminate_backends()
        time.sleep(0.05)


def promote(field: Postgres, crew: Crew, chance: Random) -> None:
    """A standby that missed the last writes takes over."""
    standby = field.server.copy()
    time.sleep(crew.ttl * chance.uniform(0.1, 0.3))
    field.server.promote(standby)


def fill(field: Postgres, crew: Crew, chance: Random) -> None:
    """Other programs take every connection that is left; half of the clients must connect again."""
    import psycopg

    hogs: list[Any] = []
    conninfo = field.server.conninfo.replace("postgres@", "plain@", 1)
    end = clock.now() + crew.ttl * chance.uniform(0.5, 1.5)
    for _ in range(100):
        with suppress(psycopg.OperationalError):
            hogs.append(psycopg.connect(conninfo, connect_timeout=5))
        if clock.now() > end:
            break
    if chance.random() < 0.5:
        field.server.terminate_backends()
    time.sleep(max(0.0, end - clock.now()))
    for hog in hogs:
        hog.close()


def limit_idleness(field: Postgres, crew: Crew, chance: Random) -> None:
    """Sessions and transactions that do nothing are ended by the server."""
    import psycopg

    names = ("idle_in_transaction_session_timeout", "idle_session_timeout")
    with psycopg.connect(field.server.conninfo, autocommit=True) as operator:
        for name in names:
            operator.execute(f"alter system set {name} = '100ms'")
        operator.execute("select pg_reload_conf()")
    time.sleep(crew.ttl * chance.uniform(0.5, 1.5))
    unlimited = " ".join(f"-c {name}=0" for name in names)
    with psycopg.connect(field.server.conninfo, autocommit=True, options=unlimited) as operator:
        for name in names:
            operator.execute(f"alter system reset {name}")
        operator.execute("select pg_reload_conf()")


def read_only(field: Postgres, crew: Crew, chance: Random) -> None:
    """As a demoted primary: it answers, and takes no writes."""
    import psycopg

    for setting in ("on", "off"):
        with psycopg.connect(field.server.conninfo, autocommit=True) as operator:
            operator.execute(f"alter system set default_transaction_read_only = {setting}")
            operator.execute("select pg_reload_conf()")
        if setting == "on":
            time.sleep(crew.ttl * chance.uniform(0.2, 1.0))


def wipe(field: Postgres, crew: Crew, chance: Random) -> None:
    """Somebody empties the table of claims: holders find out, and tokens go on rising."""
    with suppress(Exception):
        field.server.sql("delete from interlock.claim")


FAULTS = (
    *clients.FAULTS,
    *network.faults(),
    Fault("frozen", "server", "E", freeze),
    Fault("connections ended", "server", "E", terminate),
    Fault("shut down", "server", "E", shut_down, 1),
    Fault("killed and back", "server", "E", crash),
    Fault("tables emptied", "amnesia", "L", wipe, 1),
    Fault("clock forward", "clock", "f", jump),
    Fault("clock back", "clock", "E", jump_back, 1, 2.0),
    Fault("standby promoted, writes lost", "failover", "f", promote),
    Fault("connections full", "refusal", "R", fill),
    Fault("idle limits", "refusal", "E", limit_idleness, 1),
    Fault("read-only", "refusal", "R", read_only, 1),
)
