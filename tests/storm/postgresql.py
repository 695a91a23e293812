"""PostgreSQL in a storm: one server with a clock that can be moved, what goes wrong with it, and a naive lock on a row.

A standby is a copy by pg_basebackup. Promoting one that missed the last writes is starting that copy in the place of the primary, which is
killed: clients reconnect to the same address, as behind a virtual address or a proxy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import psycopg

import interlock
from interlock._support import clock
from interlock.testing.lag import stretched
from interlock.testing.servers.clock import set_offset, shim
from interlock.testing.servers.postgresql import Server, _as_postgres, _folder, give, program
from interlock.testing.servers.proxy import Mode, Proxy
from tests.storm.crew import Crew
from tests.storm.journal import Journal
from tests.storm.naive import NaiveLease
from tests.storm.verdict import CONNECT

SETTINGS = (
    "max_connections=50",
    "superuser_reserved_connections=3",
    "max_wal_senders=4",
    "wal_level=replica",
)


class ClockedPostgres(Server):
    """One server whose wall clock can be moved while it runs."""

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

    def copied(self) -> str:
        """A standby of this moment: its data folder."""
        folder = f"{_folder()}/data"
        subprocess.run(
            [
                *(
                    program("pg_basebackup"),
                    "-D",
                    folder,
                    "-h",
                    "127.0.0.1",
                    "-p",
                    str(self.port),
                    "-U",
                    "postgres",
                ),
                *("-c", "fast", "--no-sync", "-X", "stream"),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
            cwd=os.path.dirname(folder),
            **_as_postgres(),
        )
        return folder

    def promote(self, data: str) -> None:
        """The primary dies, and the standby in this folder takes its place."""
        self.kill()
        old, self.data = self.data, data
        shutil.rmtree(old, ignore_errors=True)
        give(os.path.dirname(data))
        self.start()


class Postgres:
    """One durable server, reached directly and over a way that can be broken."""

    kind = "postgresql"
    settles = 4.0

    def __init__(self) -> None:
        self.server = ClockedPostgres(*SETTINGS)
        self.servers = [self.server]
        self.ways: list[Proxy] = []

    def start(self) -> None:
        self.server.start()
        self.server.sql("create role plain login")
        self.ways = [Proxy(self.server.port)]

    def places(self) -> list[str]:
        ends = (self.server.port, self.ways[0].port)
        return [f"postgresql://postgres@127.0.0.1:{port}/postgres?connect_timeout={CONNECT}" for port in ends]

    def keys(self) -> int:
        """Rows that are left once there was a little traffic, as an idle system has."""
        with interlock.connect(self.places()[0]) as client:
            for _ in range(3):
                with client.lock("traffic"):
                    pass
        ((rows,),) = self.server.sql(
            "select (select count(*) from interlock.claim) + (select count(*) from interlock.register) + (select count(*) from interlock.bell)"
        )
        return int(rows)

    def close(self) -> None:
        for way in self.ways:
            way.close()
        self.server.kill()


# ---- faults ----------------------------------------------------------------------------


def crash(field: Postgres, crew: Crew, chance: Random) -> None:
    """kill -9 of all its processes, away for a moment, and back with what its disk has."""
    field.server.kill()
    time.sleep(chance.uniform(0.0, 0.5))
    field.server.start()


def shut_down(field: Postgres, crew: Crew, chance: Random) -> None:
    """As an operator restarts it."""
    field.server.stop()
    field.server.start()


def freeze(field: Postgres, crew: Crew, chance: Random) -> None:
    with field.server.frozen():
        time.sleep(crew.ttl * chance.uniform(0.2, 1.5))


def terminate(field: Postgres, crew: Crew, chance: Random) -> None:
    """An operator ends everybody's connections, several times."""
    for _ in range(chance.choice((1, 3))):
        field.server.terminate_backends()
        time.sleep(0.05)


def jump(field: Postgres, crew: Crew, chance: Random) -> None:
    field.server.jump(crew.ttl * chance.uniform(1.2, 3.0))


def jump_back(field: Postgres, crew: Crew, chance: Random) -> None:
    seconds = crew.ttl * chance.uniform(0.3, 1.0)
    field.server.jump(-seconds)
    time.sleep(seconds)


def promote(field: Postgres, crew: Crew, chance: Random) -> None:
    """A standby that missed the last writes takes over."""
    standby = field.server.copied()
    time.sleep(crew.ttl * chance.uniform(0.1, 0.3))
    field.server.promote(standby)


def fill(field: Postgres, crew: Crew, chance: Random) -> None:
    """Other programs, a hundred clients of them, take every connection that is left; half of the clients reconnect."""
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
    for setting in ("on", "off"):
        with psycopg.connect(field.server.conninfo, autocommit=True) as operator:
            operator.execute(f"alter system set default_transaction_read_only = {setting}")
            operator.execute("select pg_reload_conf()")
        if setting == "on":
            time.sleep(crew.ttl * chance.uniform(0.2, 1.0))


MODES: tuple[Mode, ...] = ("mute", "deaf", "hole", "half_open", "cut", "late")


# ---- the classic row -------------------------------------------------------------------


class NaiveRow:
    """The classic recipe: one row for each resource with owner and expiry; the token is a number in that row."""

    TAKE = (
        "insert into naive as n (resource, owner, token, lapses_at) values (%(r)s, %(i)s, 1, extract(epoch from clock_timestamp()) + %(t)s) "
        "on conflict (resource) do update set owner = excluded.owner, token = n.token + 1, lapses_at = excluded.lapses_at "
        "where n.lapses_at <= extract(epoch from clock_timestamp()) returning token"
    )

    def __init__(self, ports: list[int], ttl: float, journal: Journal) -> None:
        self._conninfo = f"postgresql://postgres@127.0.0.1:{ports[0]}/postgres"
        self._ttl = ttl
        self._journal = journal
        with self._connected() as connection:
            with suppress(psycopg.Error):
                connection.execute(
                    "create table naive (resource text primary key, owner text, token bigint, lapses_at float8)"
                )

    def _connected(self) -> Any:
        return psycopg.connect(self._conninfo, autocommit=True, connect_timeout=2)

    def note(self, lease: NaiveLease, call: str, kind: Any, **rest: Any) -> None:
        said: dict[str, Any] = {"attempt": lease.id, "resource": lease.resource, "token": lease.token}
        self._journal.add(call, kind, **said, **{"deadline": lease.deadline, **rest})

    def take(self, resource: str, timeout: float) -> NaiveLease | None:
        until = clock.now() + timeout
        while True:
            asked, id = clock.now(), uuid4().hex
            with suppress(psycopg.Error), self._connected() as connection:
                found = connection.execute(self.TAKE, {"r": resource, "i": id, "t": self._ttl}).fetchone()
                if found is not None and clock.now() < asked + self._ttl:
                    return NaiveLease(self, resource, id, found[0], asked + self._ttl * 0.98)  # type: ignore[arg-type]
            if clock.now() >= until:
                return None
            time.sleep(stretched(0.02))

    def free(self, lease: NaiveLease) -> None:
        with suppress(psycopg.Error), self._connected() as connection:
            connection.execute(
                "update naive set lapses_at = 0 where resource = %s and owner = %s",
                (lease.resource, lease.id),
            )

    def close(self) -> None:
        pass

    def left(self) -> list[str]:
        return []
