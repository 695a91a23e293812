"""Opening a lock file: its schema, its settings, and which files are refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from typing import TypeAlias

from interlock.backends.sql.sqlite.file import errors, ownership
from interlock.backends.sql.sqlite.file.clock import Clock
from interlock.backends.sql.sqlite.tables.statements import SWEEP, sections

Objects: TypeAlias = dict[tuple[str, str], str]
"""What a database is made of: kind and name of each thing, and the statement that made it."""

MARK = 0x494C434B  # "ILCK": which program's file this is
SCHEMA = 2
OLDEST = (3, 24, 0)
PAGE_BYTES = 2048  # bytes: what each commit writes for each table it touches; rows have about 200
# Pages after which a commit also empties the log into the file, which costs two disk flushes.
LOG_PAGES = 4000


def connect(path: str, clock: Clock) -> sqlite3.Connection:
    """Return a connection that is ready for use, with the schema in place; `StoreUnfit` for a file that is
    not ours to use.

    Raises sqlite3.OperationalError while another process is just making the schema: ask again.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        raise errors.unfit(
            path, f"needs SQLite {'.'.join(map(str, OLDEST))} or later, not {sqlite3.sqlite_version}"
        )
    # timeout=0: SQLite's own waiting backs off to 100 ms, but a hand-off must take less than 1 ms.
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        if _is_new(connection, path):
            _create(connection)
        _configure(connection, path)
        _greet(connection, clock)
        # Again, now that all files are open, and known to be ours: nobody could replace one meanwhile.
        ownership.check(path, readers=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_new(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file is still empty; raises if it is somebody else's, another interlock's, or was
    tampered with.
    """
    mark, schema, found = _signs(connection)
    if mark == MARK and schema:
        if schema != SCHEMA:
            raise errors.unfit(path, _of_another_version(schema))
        _compare(path, found, expected())
        return False
    if mark or schema or found:
        raise errors.unfit(path, "is the database of another program; name another file for locks")
    return True


def _of_another_version(schema: int) -> str:
    if schema > SCHEMA:
        advice = "upgrade interlock, or name another file"
    else:
        advice = "move it away once nobody uses it (tokens go on from the clock), or name another file"
    age = "a later" if schema > SCHEMA else "an earlier"
    return f"was written by {age} interlock (schema {schema}, this one knows {SCHEMA}); {advice}"


def _signs(connection: sqlite3.Connection) -> tuple[int, int, Objects]:
    """Whose file it is: application id, schema version, and all that it is made of, of one instant."""
    # All in one query: otherwise tables that another process is just making would look like a stranger's.
    with connection:
        connection.execute("begin")
        (mark,) = connection.execute("pragma application_id").fetchone()
        (schema,) = connection.execute("pragma user_version").fetchone()
        return mark, schema, _objects(connection)


def _objects(connection: sqlite3.Connection) -> Objects:
    """Every table, index, trigger and view, by kind and name; but not what `analyze` leaves behind."""
    made = connection.execute(
        "select type, name, sql from sqlite_master where name not like 'sqlite\\_stat%' escape '\\'"
    )
    return {(kind, name): sql or "" for kind, name, sql in made}


@cache
def expected() -> Objects:
    """What a file of ours is made of, in the words of this SQLite."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in sections("schema").values():
            connection.execute(statement)
        return _objects(connection)


def _compare(path: str, found: Objects, ours: Objects) -> None:
    """Raise if anything is there, missing or different that could change what our statements do."""
    for kind, name in sorted(found.keys() ^ ours.keys()) or [key for key in ours if found[key] != ours[key]]:
        how = "has" if (kind, name) not in ours else "lacks" if (kind, name) not in found else "has another"
        raise errors.unfit(
            path,
            f"was changed by another program: it {how} {kind} {name}; move it away once nobody uses it, or "
            "name another file for locks",
        )


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(f"pragma page_size = {PAGE_BYTES}")
    connection.execute("pragma journal_mode = wal")  # before the tables: not possible inside a transaction
    with connection:
        connection.execute("begin immediate")
        (schema,) = connection.execute("pragma user_version").fetchone()
        if schema == 0:  # otherwise another process was quicker
            for statement in sections("schema").values():
                connection.execute(statement)
            connection.execute(f"pragma application_id = {MARK}")
            connection.execute(f"pragma user_version = {SCHEMA}")


def _configure(connection: sqlite3.Connection, path: str) -> None:
    (mode,) = connection.execute("pragma journal_mode = wal").fetchone()
    if mode != "wal":
        raise errors.unfit(
            path, f"cannot use a write-ahead log here (journal mode {mode}); name another file"
        )
    # NORMAL: no disk flush per commit. A killed process loses nothing, the kernel has its pages. A power
    # cut may lose the last commits, and with them every contender: all of them ran on this machine. Tokens
    # rise across it all the same, their floor is the clock.
    connection.execute("pragma synchronous = normal")
    connection.execute("pragma trusted_schema = off")  # what a file says runs no function of ours
    connection.execute(f"pragma wal_autocheckpoint = {LOG_PAGES}")


def _greet(connection: sqlite3.Connection, clock: Clock) -> None:
    """Drop the claims of an earlier boot: the machine was restarted, and every holder died with it."""
    boot, booted = connection.execute(SWEEP["boot"]).fetchone()
    if not clock.boot or (boot and not clock.restarted(boot, booted)):
        return
    with connection:
        connection.execute("begin immediate")
        boot, booted = connection.execute(
            SWEEP["boot"]
        ).fetchone()  # again: another process may have been quicker
        if not boot or clock.restarted(boot, booted):
            if boot:
                connection.execute(SWEEP["drop_claims"])
                connection.execute(SWEEP["drop_bells"])
            connection.execute(SWEEP["new_boot"], (clock.boot, clock.booted()))
