"""MariaDB in a storm: what goes wrong with a database server, and a crowd of clients beside the workers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import interlock
from interlock.lab.child_process import program_environment
from interlock.lab.storm.faults import clients, network
from interlock.lab.storm.faults.fault import CONNECT_S, Fault, crash, freeze, jump
from interlock.testing.servers.clock import clocked, set_offset
from interlock.testing.servers.mysql import Server
from interlock.testing.servers.process import start_program

if TYPE_CHECKING:
    from interlock.lab.storm.workers.crew import Crew

CROWD = 100  # clients at a server of MOST connections
MOST = 50
CALM = ("--innodb-doublewrite=0", "--innodb-fatal-semaphore-wait-threshold=4294967295")
"""MariaDB takes a clock that jumps for a disk that hangs, and aborts itself. It is started again then, but
that is not what is judged here."""
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
        self.faults: Sequence[Fault] = FAULTS
        self.server = ClockedServer()
        self.servers = [self.server]
        self.ways: list[network.Way] = []
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
            client.lock("first").acquire(timeout=60)  # makes the tables: the storm is about what comes later
        self.ways = [network.Way(self.server.port)]

    def places(self) -> list[str]:
        ends = (self.server.port, self.ways[0].port)
        return [f"mysql://app@127.0.0.1:{port}/app?connect_timeout={CONNECT_S}" for port in ends]

    def naive_place(self) -> list[int]:
        return [self.server.port]

    def keys(self) -> int:
        """Rows that stand for something; mail is swept after a minute."""
        counts = [f"(select count(*) from app.interlock_{table})" for table in ("claim", "pending")]
        (row,) = self.server.run(f"select {' + '.join(counts)}")
        return int(row[0])

    def close(self) -> None:
        self._over.set()
        if self._supervisor.ident is not None:
            self._supervisor.join()
        for way in self.ways:
            way.close()
        self.server.close()


def hang_up(field: Mysql, crew: Crew, chance: Random) -> None:
    """The server ends everybody's connections, or only what each is doing now."""
    import pymysql

    how = chance.choice(("connection", "query"))
    others = "select id from information_schema.processlist where id <> connection_id() and user = 'app'"
    with suppress(pymysql.Error), closing(field.server.connect()) as admin, admin.cursor() as cursor:
        cursor.execute(others)
        for (id,) in cursor.fetchall():
            with suppress(pymysql.Error):  # it has ended meanwhile
                cursor.execute(f"kill {how} {id}")


def jump_back(field: Mysql, crew: Crew, chance: Random) -> None:
    """Its clock, back by an hour and for good: a claim then stands for its ttl, and nobody waits an hour."""
    field.server.jump(-3600.0)
    time.sleep(crew.ttl * chance.uniform(1.0, 2.0))


def read_only(field: Mysql, crew: Crew, chance: Random) -> None:
    """As a server that was demoted: it answers, and writes nothing for anybody but its administrator."""
    _set(field, "read_only = 1")
    time.sleep(crew.ttl * chance.uniform(0.2, 1.0))
    _set(field, "read_only = 0")


def _set(field: Mysql, what: str) -> None:
    import pymysql

    with suppress(pymysql.Error):
        field.server.run(f"set global {what}")


def wipe(field: Mysql, crew: Crew, chance: Random) -> None:
    """Somebody empties the tables: holders find out, and tokens go on rising.

    The clock is then as far as it ever was: a clock that is behind and no memory of earlier tokens would
    repeat them, as the page says.
    """
    import pymysql

    field.server.jump(field.server.furthest - field.server.offset)
    with suppress(pymysql.Error):
        field.server.run(
            "use app",
            *[f"delete from interlock_{table}" for table in TABLES],
            "update interlock_slot set last = 0",
        )


def crowd(field: Mysql, crew: Crew, chance: Random) -> None:
    """A hundred clients at once at a server of fifty connections: some wait, some are told, nobody loses."""
    module = "interlock.lab.storm.faults.mysql_crowd"
    words = (field.places()[0], str(CROWD), str(10 * crew.ttl))
    with start_program([sys.executable, "-m", module, *words], env=program_environment(),
                       stdout=subprocess.DEVNULL) as many:  # fmt: skip
        assert many.wait(200) == 0, "the crowd hung, or met an error that helps nobody"


FAULTS = (
    *clients.FAULTS,
    *network.faults(),
    Fault("frozen", "server", "E", freeze),
    Fault("connections ended", "server", "E", hang_up, 3),
    Fault("killed and back", "server", "E", crash, 2, 4.0),
    Fault("tables emptied", "amnesia", "L", wipe, 1),
    Fault("clock forward", "clock", "f", jump),
    Fault("clock back", "clock", "E", jump_back, 1, 2.0),
    Fault("read-only", "refusal", "R", read_only, 1),
    Fault("connections full", "refusal", "R", crowd, 1, 8.0),
)
