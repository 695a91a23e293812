"""Opening a lock file: its schema, its settings, and which files are refused."""

from __future__ import annotations

import sqlite3

from interlock.backends.sqlite import refusal
from interlock.backends.sqlite.clock import Clock
from interlock.backends.sqlite.statements import SWEEP, sections

MARK = 0x494C434B  # "ILCK": which program's file this is
SCHEMA = 1
OLDEST = (3, 24, 0)
PAGE = 2048  # bytes: what each commit writes for each table it touches; rows have about 200
LOG = 4000  # pages after which a commit also empties the log into the file, which costs two disk flushes


def connect(path: str, clock: Clock) -> sqlite3.Connection:
    """A connection ready for use, its schema in place; `StoreUnfit` for a file that is not ours to use.

    Raises sqlite3.OperationalError while another process is just making the schema: ask again.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        raise refusal.unfit(
            path, f"needs SQLite {'.'.join(map(str, OLDEST))} or later, not {sqlite3.sqlite_version}"
        )
    # timeout=0: SQLite's own waiting backs off to 100 ms, and a hand-off shall take less than one.
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        if _is_new(connection, path):
            _create(connection)
        _configure(connection, path)
        _greet(connection, clock)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_new(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file is still empty; raises if it is somebody else's or a later interlock's."""
    mark, schema, tables = _signs(connection)
    if mark == MARK and 0 < schema <= SCHEMA:
        return False
    if mark == MARK and schema > SCHEMA:
        raise refusal.unfit(
            path,
            f"was written by a later interlock (schema {schema}, this one knows {SCHEMA}); "
            "upgrade interlock, or name another file",
        )
    if mark or schema or tables:
        raise refusal.unfit(path, "is the database of another program; name another file for locks")
    return True


def _signs(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Whose file it is: application id, schema version, and how many tables it has, all of one instant."""
    # Not one by one: the tables that another process is just making would look like a stranger's.
    connection.execute("begin")
    try:
        (mark,) = connection.execute("pragma application_id").fetchone()
        (schema,) = connection.execute("pragma user_version").fetchone()
        (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
    finally:
        connection.execute("rollback")
    return mark, schema, tables


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(f"pragma page_size = {PAGE}")
    connection.execute("pragma journal_mode = wal")  # before the tables: not possible inside a transaction
    connection.execute("begin immediate")
    try:
        (schema,) = connection.execute("pragma user_version").fetchone()
        if schema == 0:  # otherwise another process was quicker
            for statement in sections("schema").values():
                connection.execute(statement)
            connection.execute(f"pragma application_id = {MARK}")
            connection.execute(f"pragma user_version = {SCHEMA}")
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def _configure(connection: sqlite3.Connection, path: str) -> None:
    (mode,) = connection.execute("pragma journal_mode = wal").fetchone()
    if mode != "wal":
        raise refusal.unfit(
            path, f"cannot use a write-ahead log here (journal mode {mode}); name another file"
        )
    # NORMAL: no disk flush per commit. A killed process loses nothing, the kernel has its pages. A power
    # cut may lose the last commits, and with them every contender: all of them ran on this machine. Tokens
    # rise across it all the same, their floor is the clock.
    connection.execute("pragma synchronous = normal")
    connection.execute(f"pragma wal_autocheckpoint = {LOG}")


def _greet(connection: sqlite3.Connection, clock: Clock) -> None:
    """Drop the claims of an earlier boot: the machine was restarted, and every holder died with it."""
    boot, booted = connection.execute(SWEEP["boot"]).fetchone()
    if not clock.boot or (boot and not clock.restarted(boot, booted)):
        return
    connection.execute("begin immediate")
    try:
        boot, booted = connection.execute(
            SWEEP["boot"]
        ).fetchone()  # again: another process may have been quicker
        if not boot or clock.restarted(boot, booted):
            if boot:
                connection.execute(SWEEP["drop_claims"])
                connection.execute(SWEEP["drop_bells"])
            connection.execute(SWEEP["new_boot"], (clock.boot, clock.booted()))
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")
