"""Claim and release on SQLite without anything above: what any store must do, what SQLite costs, what our store costs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.sqlite import open_store
from interlock.backends.sql.sqlite.file.clock import Clock
from interlock.backends.sql.sqlite.file.connection import LOG_PAGES, PAGE_BYTES, connect
from interlock.backends.sql.sqlite.tables.statements import CLAIMS
from interlock.model import Claim, Granted

ID = "0123456789abcdef0123-1"
WHO = '["worker-7",21133,"MainThread","billing/run.py:88"]'
COLUMNS = "resource, token, id, state, permits, capacity, ttl, lapses_at, since, rung, bell, life, note, who"
INSERT = f"insert into claim ({COLUMNS}) values (?, ?, ?, 1, 1, 1, 30.0, ?, ?, 0, '', 0, '', ?)"
DELETE = "delete from claim where resource = ? and id = ?"


def bare(folder: str) -> Callable[[], None]:
    """What any store must do: read the queue, draw a token, insert; delete, read who is next."""
    clock = Clock()
    execute = connect(f"{folder}/bare.db", clock).execute
    execute("drop trigger claim_numbered")  # the bare program draws its token with a statement

    def pair() -> None:
        execute("begin immediate")
        execute(CLAIMS["queue"], ("bare",)).fetchall()
        (last,) = execute("select last from meta").fetchone()
        token, now = max(last + 1, clock.wall_ns() // 1000), clock.now()
        execute("update meta set last = ?", (token,))
        execute(INSERT, ("bare", token, ID, now + 30, now, WHO))
        execute("commit")
        execute("begin immediate")
        execute(DELETE, ("bare", ID))
        execute(CLAIMS["queue"], ("bare",)).fetchall()
        execute("commit")

    return pair


def minimal(folder: str) -> Callable[[], None]:
    """Without the token and both reads, and so no lock: what SQLite itself costs."""
    clock = Clock()
    execute = connect(f"{folder}/minimal.db", clock).execute
    execute("drop trigger claim_numbered")

    def pair() -> None:
        now = clock.now()
        execute("begin immediate")
        execute(INSERT, ("bare", clock.wall_ns() // 1000, ID, now + 30, now, WHO))
        execute("commit")
        execute("begin immediate")
        execute(DELETE, ("bare", ID))
        execute("commit")

    return pair


TABLE = """
create table if not exists bare (
  resource text, id text, token integer, lapses_at real, who text, primary key (resource, id)
) without rowid
"""


def statements(folder: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """A row is inserted, and deleted, by one statement each, in a table of its own: what no store can do without."""
    clock = Clock()
    path = f"{folder}/statements.db"  # not by `connect`: it refuses files with tables of others
    execute = sqlite3.connect(path, timeout=5, isolation_level=None).execute
    for setting in (
        f"page_size = {PAGE_BYTES}",
        "journal_mode = wal",
        "synchronous = normal",
        f"wal_autocheckpoint = {LOG_PAGES}",
    ):
        execute(f"pragma {setting}")
    execute(TABLE)
    insert = "insert or replace into bare values (?, ?, ?, ?, ?)"
    delete = "delete from bare where resource = ? and id = ?"

    def enter() -> object:
        return execute(insert, ("bare", ID, clock.wall_ns() // 1000, clock.now() + 30, WHO))

    def leave() -> object:
        return execute(delete, ("bare", ID))

    return enter, leave


def two_statements(folder: str) -> Callable[[], None]:
    """Both, one after the other."""
    enter, leave = statements(folder)

    def pair() -> None:
        enter()
        leave()

    return pair


def store(folder: str) -> Callable[[], None]:
    """Our store, asked without the core above it."""
    runtime = Threads()
    ours = open_store(f"{folder}/store.db", runtime, asynchronous=False)

    def pair() -> None:
        claim = Claim("bare", runtime.fresh_id(), 30.0, who=WHO)
        assert isinstance(drive(ours.claim(claim)), Granted)
        assert drive(ours.release("bare", claim.id))

    return pair
