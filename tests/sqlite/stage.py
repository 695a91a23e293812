"""What tests of the lock file share: a clock that stands still, facts to wait for, a look at the rows."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing

from interlock.backends.sqlite.clock import Clock
from interlock.model import Claim


class Hands:
    """A clock whose hands the test moves."""

    def __init__(self, now: float = 1000.0, micros: int = 1_000_000_000, boot: str = "first") -> None:
        self.now = now
        self.micros = micros
        self.clock = Clock(now=lambda: self.now, micros=lambda: self.micros, boot=boot)


def claim(resource: str = "r", id: str = "a", **wishes) -> Claim:
    return Claim(resource, id, wishes.pop("ttl", 30.0), **wishes)


def eventually(fact: Callable[[], bool], within: float = 5.0) -> None:
    """Wait for a fact, and fail if it does not come true in time."""
    until = time.monotonic() + within
    while not fact():
        assert time.monotonic() < until, f"not in {within} s: {fact}"
        time.sleep(0.001)


def rows(path: str, table: str = "claim") -> int:
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute(f"select count(*) from {table}").fetchone()
        return int(count)
