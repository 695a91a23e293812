"""SQLite in a storm: one file that processes of this machine share, on a disk that can be filled."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from interlock.lab.storm.faults import clients
from interlock.lab.storm.faults.fault import Fault
from interlock.testing.servers.process import FaultUnavailable
from interlock.testing.servers.small_disk import full, small_disk

if TYPE_CHECKING:
    from interlock.lab.storm.workers.crew import Crew

DISK = "24m"


class Sqlite:
    """A database file; on a small disk, if this user may mount one."""

    kind = "sqlite"
    settles = 3.0

    def __init__(self) -> None:
        self.faults: Sequence[Fault] = FAULTS
        self._open = ExitStack()

    def start(self) -> None:
        try:
            self.folder = self._open.enter_context(small_disk(DISK))
        except FaultUnavailable:
            self.folder = Path(self._open.enter_context(TemporaryDirectory(prefix="interlock-storm-")))
            self.faults = [fault for fault in FAULTS if fault.name != "disk full"]
        self.file = self.folder / "own" / "locks.db"  # the disk itself is open to everybody

    def places(self) -> list[str]:
        return [f"sqlite:///{self.file}"]

    def naive_place(self) -> str:
        return str(self.file)

    def connect(self, timeout: float = 1.0) -> sqlite3.Connection:
        return sqlite3.connect(self.file, timeout=timeout, isolation_level=None)

    def keys(self) -> int:
        """How many rows are left."""
        with closing(self.connect()) as database:
            counts = "select (select count(*) from claim) + (select count(*) from bell)"
            return int(database.execute(counts).fetchone()[0])

    def close(self) -> None:
        self._open.close()


def hold_the_file(field: Sqlite, crew: Crew, chance: Random) -> None:
    """Another program keeps a write transaction open: everybody else waits for the file."""
    with suppress(sqlite3.Error), closing(field.connect()) as database:
        database.execute("begin immediate")
        time.sleep(crew.ttl * chance.uniform(0.2, 1.5))
        database.execute("rollback")


def fill_disk(field: Sqlite, crew: Crew, chance: Random) -> None:
    """Not a byte can be added to the disk."""
    with full(field.folder):
        time.sleep(crew.ttl * chance.uniform(0.2, 1.5))


def wipe(field: Sqlite, crew: Crew, chance: Random) -> None:
    """Somebody empties the table of claims: holders find out, and tokens go on rising."""
    with suppress(sqlite3.Error), closing(field.connect()) as database:
        database.execute("delete from claim")


def delete(field: Sqlite, crew: Crew, chance: Random) -> None:
    """Somebody deletes the file while leases are held; each process notices, and goes on in a new one."""
    crew.level_clocks()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{field.file}{suffix}").unlink(missing_ok=True)


FAULTS = (
    *clients.FAULTS,
    Fault("file locked", "server", "E", hold_the_file, 3),
    Fault("tables emptied", "amnesia", "L", wipe, 1),
    Fault("file deleted", "amnesia", "L", delete, 1),
    Fault("disk full", "refusal", "R", fill_disk, 2),
)
