"""MariaDB in a storm: what goes wrong with a database server, and a crowd of clients beside the workers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pymysql

import interlock
from interlock.testing.servers.clock import clocked, set_offset
from interlock.testing.servers.mysql import Server
from interlock.testing.servers.process import die_with_parent
from interlock.testing.servers.proxy import Proxy
from tests.storm.crew import Crew
from tests.storm.guard import ENVIRONMENT
from tests.storm.verdict import CONNECT

CROWD = 100  # clients at a server of MOST connections
MOST = 50
CALM = ("--innodb-doublewrite=0", "--innodb-fatal-semaphore-wait-threshold=4294967295")
"""MariaDB takes a clock that jumps for a disk that hangs, and aborts itself. It is started again then, but that is not what is judged here."""
TABLES = ("claim", "pending", "register", "bell", "mail")


class ClockedServer(Server):
    """One mariadbd with durable commits, whose wall clock can be moved while it runs."""

    def __init__(self) -> None:
        super().__init__(f"--max-connections={MOST}", "--innodb-flush-log-at-trx-commit=1", *CALM)
        self._file = Path(self.folder, "clock")
        self.environment = clocked({}, self._file, 0.0)
        self.offset = self.furthest = 0.0
        self._turn = threading.RLock()

    def supervise(self) -> None:
        """Start it again whenever it ends by itself, as a service manager does."""
        with self._turn:
            if self._process is not None and self._process.poll() is not None:
                super().start()

    def start(self, *, empty: bool = True) -> None:
        with self._turn:
            super().start(empty=empty)

    def kill(self) -> None:
        with self._turn:
            super().kill()

    def jump(self, seconds: float) -> None:
        """Move its wall clock, for good."""
        self.offset += seconds
        self.furthest = max(self.furthest, self.offset)
        set_offset(self._file, self.offset)


class Mysql:
    """One server, and a way to it that faults can break."""

    kind = "mysql"
    settles = 8.0  # a crashed server reads its log first

    def __init__(self) -> None:
        self.server = ClockedServer()
        self.servers = [self.server]
        self.ways: list[Proxy] = []
        self._over = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)

    def _supervise(self) -> None:
        while not self._over.wait(0.2):
            self.server.supervise()

    def start(self) -> None:
        self.server.start()
        self._supervisor.start()
        self.server.run("create user if not exists app@'%'", "grant all on app.* to app@'%'")
        with interlock.connect(f"mysql://app@127.0.0.1:{self.server.port}/app", connect_timeout=60) as client:
            client.lock("first").acquire(
                timeout=60
            )  # creates the tables: the storm is about what comes later
        self.ways = [Proxy(self.server.port)]

    def places(self) -> list[str]:
        ends = (self.server.port, self.ways[0].port)
        return [f"mysql://app@127.0.0.1:{port}/app?connect_timeout={CONNECT}" for port in ends]

    def keys(self) -> int:
        """Rows that stand for something; mail is swept after a minute."""
        (row,) = self.server.run(
            "select (select count(*) from app.interlock_claim) + (select count(*) from app.interlock_pending)"
        )
        return int(row[0])

    def close(self) -> None:
        self._over.set()
        if self._supervisor.ident is not None:
            self._supervisor.join()
        for way in self.ways:
            way.close()
        self.server.close()


def crash(field: Mysql, crew: Crew, chance: Random) -> None:
    """kill -9, away for a moment, and back with what its disk has."""
    field.server.kill()
    time.sleep(chance.uniform(0.0, 0.8))
    field.server.start()


def freeze(field: Mysql, crew: Crew, chance: Random) -> None:
    """Accepts connections, and answers nothing; then goes on with what it was sent meanwhile."""
    with field.server.frozen():
        time.sleep(crew.ttl * chance.uniform(0.2, 1.5))


def hang_up(field: Mysql, crew: Crew, chance: Random) -> None:
    """The server ends everybody's connections, or only what each is doing now."""
    how = chance.choice(("connection", "query"))
    with suppress(pymysql.Error), closing(field.server.connect()) as admin, admin.cursor() as cursor:
        cursor.execute(
            "select id from information_schema.processlist where id <> connection_id() and user = 'app'"
        )
        for (id,) in cursor.fetchall():
            with suppress(pymysql.Error):  # it has ended meanwhile
                cursor.execute(f"kill {how} {id}")


def jump(field: Mysql, crew: Crew, chance: Random) -> None:
    """Its clock, forward by more than a ttl."""
    field.server.jump(crew.ttl * chance.uniform(1.2, 3.0))


def jump_back(field: Mysql, crew: Crew, chance: Random) -> None:
    """Its clock, back by an hour and for good: a claim then stands for its ttl, and nobody waits an hour."""
    field.server.jump(-3600.0)
    time.sleep(crew.ttl * chance.uniform(1.0, 2.0))


def read_only(field: Mysql, crew: Crew, chance: Random) -> None:
    """As a server that was demoted, or whose disk is full: it answers, and writes nothing for anybody but its administrator."""
    _set(field, "read_only = 1")
    time.sleep(crew.ttl * chance.uniform(0.2, 1.0))
    _set(field, "read_only = 0")


def _set(field: Mysql, what: str) -> None:
    with suppress(pymysql.Error):
        field.server.run(f"set global {what}")


def wipe(field: Mysql, crew: Crew, chance: Random) -> None:
    """Somebody empties the tables: holders find out, and tokens go on rising.

    The clock is then as far as it ever was: a clock that is behind and no memory of earlier tokens would repeat them, as the page says.
    """
    field.server.jump(field.server.furthest - field.server.offset)
    with suppress(pymysql.Error):
        field.server.run(
            "use app",
            *[f"delete from interlock_{table}" for table in TABLES],
            "update interlock_slot set last = 0",
        )


def crowd(field: Mysql, crew: Crew, chance: Random) -> None:
    """A hundred clients at once at a server of fifty connections: some wait, some are told, and nobody loses anything."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.storm.mysql_crowd", field.places()[0], str(CROWD), str(10 * crew.ttl)],
        env=ENVIRONMENT,
        preexec_fn=die_with_parent,
    ) as many:
        assert many.wait(200) == 0, "the crowd hung, or met an error that helps nobody"


def fault_list(fault: Any, clients: list[Any], ways: list[Any]) -> list[Any]:
    """All that this kind can suffer. `fault` is the class `Fault`, whose module imports this one."""
    return [
        *clients,
        *ways,
        fault("crash", "E", crash, 2, 4.0),
        fault("freeze", "E", freeze),
        fault("hang up", "E", hang_up, 3),
        fault("clock forward", "f", jump),
        fault("clock back", "E", jump_back, 1, 2.0),
        fault("read only", "R", read_only, 1),
        fault("tables emptied", "L", wipe, 1),
        fault("crowd", "R", crowd, 1, 8.0),
    ]
