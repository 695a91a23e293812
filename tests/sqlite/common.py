"""What tests of the lock file share: a clock that stands still, facts to wait for, the number of rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing

from interlock.backends.sql.sqlite.file.clock import Clock
from interlock.model import Claim
from tests.patience import PATIENCE, until


class ManualClock:
    """A clock that the test moves."""

    def __init__(self, now: float = 1000.0, micros: int = 1_000_000_000, boot: str = "first") -> None:
        self.now = now
        self.micros = micros
        self.clock = Clock(now=lambda: self.now, wall_ns=lambda: self.micros * 1000, boot=boot)


def claim(resource: str = "r", id: str = "a", **wishes) -> Claim:
    return Claim(resource, id, wishes.pop("ttl", 30.0), **wishes)


def eventually(fact: Callable[[], object], within: float = PATIENCE) -> None:
    """Wait for a fact, and fail if it does not come true."""
    until(fact, within)


def rows(path: str, table: str = "claim") -> int:
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute(f"select count(*) from {table}").fetchone()
        return int(count)
