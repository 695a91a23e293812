"""The resource that is protected: one row in a database, which checks tokens itself.

This is the pattern to copy. The update names the token in its own `where`, so the check and the write
are one step: no pause, however long, fits between them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from interlock.errors import StaleToken

SCHEMA = """
create table account (id integer primary key, balance integer not null, token integer not null);
create table log (seq integer primary key, worker text, token integer, was integer, becomes integer,
                  accepted integer, balance integer, highest integer);
insert into account values (1, 0, 0);
"""

WRITE = "update account set balance = :becomes, token = :token where id = 1 and token <= :token"
RECORD = """
insert into log (worker, token, was, becomes, accepted, balance, highest)
select :worker, :token, :was, :becomes, :accepted, balance, token from account where id = 1
"""


@dataclass(frozen=True, slots=True)
class Write:
    """One attempt to write, as the ledger itself recorded it."""

    seq: int
    worker: str
    token: int
    was: int  # the balance the worker had read
    becomes: int  # the balance it wanted to write
    accepted: bool
    balance: int  # the balance afterwards
    highest: int  # the highest token accepted, afterwards


class Ledger:
    """An account in a SQLite file. Every call opens the file anew, as any program might."""

    def __init__(self, path: str) -> None:
        self.path = path

    def create(self) -> None:
        with self._open() as database:
            database.execute("pragma journal_mode = wal")
            database.executescript(SCHEMA)

    def balance(self) -> int:
        with self._open() as database:
            return int(database.execute("select balance from account where id = 1").fetchone()[0])

    def write(self, worker: str, token: int, was: int, becomes: int) -> None:
        """Set the balance, unless a higher token has written since: then raise `StaleToken`."""
        said = {"worker": worker, "token": token, "was": was, "becomes": becomes}
        with self._open() as database:
            database.execute("begin immediate")
            accepted = database.execute(WRITE, said).rowcount == 1
            database.execute(RECORD, {**said, "accepted": accepted})
            highest = int(database.execute("select token from account where id = 1").fetchone()[0])
            database.execute("commit")
        if not accepted:
            raise StaleToken("ledger", token, highest)

    def log(self, after: int = 0) -> list[Write]:
        """Every write, accepted or refused, in order."""
        columns = "seq, worker, token, was, becomes, accepted, balance, highest"
        with self._open() as database:
            rows = database.execute(f"select {columns} from log where seq > ? order by seq", (after,))
            return [
                Write(seq, worker, token, was, becomes, bool(accepted), balance, highest)
                for seq, worker, token, was, becomes, accepted, balance, highest in rows
            ]

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as database:
            yield database


def free(path: str) -> bool:
    """Whether nobody is in the middle of a transaction on this SQLite file."""
    with closing(sqlite3.connect(path, timeout=0.1, isolation_level=None)) as database:
        try:
            database.execute("begin immediate")
        except sqlite3.OperationalError:
            return False
        database.execute("rollback")
        return True
