"""The stores these tests run on, and what a test must be able to do to them from outside."""

from __future__ import annotations

import atexit
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from uuid import uuid4

from interlock import urls
from interlock.testing.conformance import StoreFactory


@dataclass(frozen=True)
class Kind(StoreFactory):
    """A factory of stores whose whole memory can be wiped, and whose keys can be counted."""

    wipe: Callable[[str], None] = lambda place: None
    keys: Callable[[str], int] = lambda place: 0


def _forget(place: str) -> None:
    urls._spaces.pop(place.removeprefix("memory://"), None)


def _entries(place: str) -> int:
    space = urls._spaces[place.removeprefix("memory://")]
    return len(space.queues) + len(space.registers) + len(space.evicted) + len(space.waiters.topics)


_FOLDER = mkdtemp(prefix="interlock-field-")
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


def _file(place: str) -> Path:
    return Path(place.removeprefix("sqlite:///"))


def _delete(place: str) -> None:
    for path in _file(place).parent.glob(_file(place).name + "*"):
        path.unlink()


def _rows(place: str) -> int:
    connection = sqlite3.connect(_file(place))
    try:
        tables = [
            name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")
        ]
        return sum(connection.execute(f"select count(*) from {table}").fetchone()[0] for table in tables)
    finally:
        connection.close()


MEMORY = Kind(lambda: f"memory://{uuid4().hex}", wipe=_forget, keys=_entries)
SQLITE = Kind(lambda: f"sqlite:///{_FOLDER}/{uuid4().hex}.db", wipe=_delete, keys=_rows)
