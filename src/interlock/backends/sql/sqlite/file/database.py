"""One connection to the lock file, and the three ways to use it: `single`, `write` and `read`.

All of them are short transactions. Each is tried at once, without a wait, if no other thread uses the
connection; after that it waits for its turn. If SQLite answers that the file is busy, we sleep for short
random times outside the critical section and try again, until the call's time is up.

**Is it still our file?** Somebody may remove the lock file or put another one under its name at any time. We
would go on in the file that is open here, and those who come later in the one that they find: two holders. So
whatever is granted, or written at all, counts only if the names still led to the open files at an instant at
which nobody else could write to them.

| way | when it looks at the names |
|---|---|
| `single` | inside the statement, which asks `unmoved()` and changes no row unless it says yes |
| `write` | after `begin immediate`, while we have the write lock; otherwise `Moved`, and nothing is written |
| `read(..., verified=True)` | after the rows were read, for a grant; a writer of that instant is waited for |
| `read` | at most `VERIFY_EVERY_S` ago, as all others do before they begin: nobody is let in by what it finds |

Fork: SQLite keeps track of a process's file locks in its own memory. A forked child inherits that memory, but
the kernel does not give it the locks. A child that opened the file again would believe that it is protected,
and the last process to leave would delete the log that the child still uses: granted claims are lost, and
there are two holders. So the parent closes its connections just *before* a fork, and both sides open new ones
when they need them. Where that was not possible, the child refuses the file. See "Carrying an open database
connection across a fork()" in SQLite's "How To Corrupt An SQLite Database File"
(sqlite.org/howtocorrupt.html).
"""  # noqa: E501  (a table)

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from os import getpid
from typing import Any, Literal, TypeVar

from interlock._support import standard_streams
from interlock.backends.sql.sqlite.file import errors, liveness, ownership
from interlock.backends.sql.sqlite.file import inodes as files
from interlock.backends.sql.sqlite.file.clock import Clock
from interlock.backends.sql.sqlite.file.connection import connect
from interlock.backends.sql.sqlite.file.critical_section import NOT_TAKEN, CriticalSection
from interlock.backends.sql.sqlite.file.inodes import (
    FileIdentity,
    OpenFiles,
    UnmovedFunction,
    Unsettled,
    inodes,
)
from interlock.backends.sql.sqlite.file.liveness import Liveness
from interlock.backends.sql.sqlite.file.location import make_file
from interlock.backends.sql.sqlite.tables.reading import outlived
from interlock.backends.sql.sqlite.tables.transaction import Rings, Transaction
from interlock.errors import ClientClosed, InterlockError
from interlock.store import IO_TIMEOUT

T = TypeVar("T")

FIRST_NAP_S = 0.0002
LONGEST_NAP_S = 0.004
URGENT_S = 0.05  # seconds for which other threads give way to an urgent write, unless it asks again
URGENT_NAP_S = 0.001
VERIFY_EVERY_S = 0.25  # seconds between two checks that the file is still the one we opened
STRUCK_MESSAGE = "user-defined function raised exception"
MAX_OPENINGS = 3  # attempts to open a file of which SQLite says that it is damaged, or the like
FORK_WAIT_S = 1.0  # seconds that a fork waits for transactions of other threads


class GiveWay(Exception):
    """Another thread has something urgent to write."""


class Moved(Exception):
    """The names lead to other files than those we have open, whose write lock we held when we saw it."""


class Database:
    """A connection that any thread may use, opened when first needed and opened anew after a fork."""

    def __init__(self, path: str, clock: Clock, random: Callable[[], float], kind: str = "") -> None:
        self.path = path
        self.clock = clock
        self.opened = 0  # how often: a new connection knows nothing of what the old one saw
        self._kind = kind  # of filesystem
        self._random = random
        self._section = CriticalSection()
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None  # of the connection, for `single`
        self._reader: Transaction | None = None  # what `read` hands out, made once for each connection
        self._files: OpenFiles | None = None
        self._identity: FileIdentity | None = None
        self.liveness = Liveness((0, 0))
        self._unmoved: UnmovedFunction | None = None
        self._verify_at = 0.0
        self._urgent_until = 0.0
        self._refused = 0
        self.closed = False
        self._forking = False
        key = id(self)
        _databases[key] = weakref.ref(self, lambda _: _databases.pop(key, None))

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def surrounded(self) -> bool:
        """Whether the calling thread is using some connection of this process to the same files.

        Then a finalizer or a signal handler has interrupted it there, and nothing can be asked of the files.
        """
        if self._section.owned():
            return True
        if self._files is not None and len(self._files.sections) > 1:
            for section in list(self._files.sections.values()):
                if section.owned():
                    return True
        return False

    def open(self) -> None:
        """Open the file if it is not open; `StoreUnfit` if it cannot be used."""
        self.run(self.clock.now() + IO_TIMEOUT, sqlite3.Connection.cursor)

    # ---- the three ways ---------------------------------------------------------------

    def single(self, until: float, now: float, statement: str, values: tuple[object, ...]) -> bool | None:
        """Run a statement that is a transaction by itself; return whether it has changed its one row.

        None if it could not be run without a wait, and `until` is over. The statement is given `values`, and
        our life after them. Most claims and releases go this way: it begins as `run` does, without the call
        of a step and without asking the clock again.
        """
        section, missed = self._section, False
        if self._urgent_until <= now < self._verify_at and not section.owned() and getpid() == _process:
            try:
                with section:
                    if section.take(False) and (cursor := self._cursor) is not None:
                        cursor.execute(statement, values + (self.liveness.life,))  # noqa: RUF005 - quicker
                        return cursor.rowcount == 1 or self._struck()
                    missed = True
            except (sqlite3.Error, Unsettled, Moved):
                pass  # other processes lock the file, or worse: the next try meets it again, and handles it
            except RuntimeError as error:
                unmask(error, missed)
        if until <= now:
            return None
        return self._run_in_turn(until, False, self._single, (statement, values))

    def write(
        self, until: float, work: Callable[..., T], *args: Any, urgent: bool = False
    ) -> tuple[T, Rings]:
        """Return what `work(transaction, *args)` returns, once it is committed, and whom to ring now.

        An `urgent` one, a renewal, goes ahead of all other threads of this process that want the connection.
        """
        return self.run(until, self._transact, work, args, urgent=urgent)

    def read(self, until: float, work: Callable[..., T], *args: Any, verified: bool = False) -> T:
        """Return what `work(transaction, *args)` returns, which runs one statement that reads.

        `verified` is for what a grant is based on: see the head of this file.
        """
        found: T = self.run(until, self._read_verified if verified else self._read, work, args)
        return found

    # ---- how they run -----------------------------------------------------------------

    def run(self, until: float, step: Callable[..., T], *args: Any, urgent: bool = False) -> T:
        """Return what `step(connection, *args)` returns. It runs alone on the connection, again and again
        while other processes lock the file.

        Raises `StoreUnavailable` if they still do at `until`.
        """
        section, missed = self._section, False
        now = self.clock.now()
        if self._urgent_until <= now < self._verify_at and not section.owned() and getpid() == _process:
            try:
                with section:
                    if section.take(False) and (connection := self._connection) is not None:
                        result = step(connection, *args)
                        if self.closed:  # from within, by a signal handler
                            self._drop()
                        return result
                    missed = True
            except (sqlite3.Error, Moved):
                pass  # nothing was done; the next try meets it again, and handles it
            except RuntimeError as error:
                unmask(error, missed)
        return self._run_in_turn(until, urgent, step, args)

    def _run_in_turn(self, until: float, urgent: bool, step: Callable[..., T], args: tuple[Any, ...]) -> T:
        nap = FIRST_NAP_S
        while True:
            try:
                return self._alone(until, urgent, step, args)
            except sqlite3.Error as error:
                failure = self._failed(error)
                cause: Exception = error
            except Unsettled as error:
                failure, cause = error.error, error
            except GiveWay as error:
                failure, cause = errors.unavailable(self.path), error
            except Moved as error:
                failure, cause = errors.unavailable(self.path), error
                if self._files is not None:
                    self._files.abandon()
            now = self.clock.now()
            if now >= until or self.surrounded():
                raise failure from cause
            time.sleep(min(until - now, nap * (0.25 + self._random())))
            nap = min(URGENT_NAP_S if urgent else LONGEST_NAP_S, nap * 2)

    def _single(self, connection: sqlite3.Connection, statement: str, values: tuple[object, ...]) -> bool:
        changed = connection.execute(statement, (*values, self.liveness.life)).rowcount == 1
        return changed or self._struck()

    def _struck(self) -> Literal[False]:
        """Raise the exception that struck while a statement asked for `unmoved()`, if one did: then the
        statement has done nothing.
        """
        if self._unmoved is not None:
            self._unmoved.raise_interrupt()
        return False

    def _alone(self, until: float, urgent: bool, step: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Run a step while no other thread uses the connection; wait for one that does until `until`.

        A disk that hangs under another thread must not hang this one too.
        """
        if getpid() != _process:
            _forked_unnoticed()
        section, missed = self._section, False
        if section.owned():
            raise errors.called_from_within(self.path)
        if urgent:  # a time, not a flag: if this is interrupted, nobody has to take it back
            self._urgent_until = self.clock.now() + URGENT_S
        try:
            with section:
                if section.take(False) or section.take(True, max(0.0, until - self.clock.now())):
                    if urgent:
                        self._urgent_until = 0.0
                    elif self._urgent_until and self.clock.now() < self._urgent_until:
                        raise GiveWay
                    connection = self._connection
                    if connection is None or self.clock.now() >= self._verify_at:
                        connection = self._usable()
                    result = step(connection, *args)
                    if self.closed:  # from within, by a signal handler
                        self._drop()
                    return result
                missed = True
        except RuntimeError as error:
            unmask(error, missed)
        raise errors.unavailable(self.path)

    def _failed(self, error: sqlite3.Error) -> InterlockError:
        """Return the error to raise if SQLite's error does not go away in time; raise it now if it never
        will.
        """
        if errors.busy(error):
            return errors.unavailable(self.path)
        if self._connection is None:  # while it was opened; perhaps files were removed just then
            self._refused += 1
            again = self._refused < MAX_OPENINGS
        else:
            struck = str(error) == STRUCK_MESSAGE  # twice in a row: the witness is no more
            again = struck or self._identity is None or not self._identity.holds()
            unmoved, self._verify_at, self._unmoved = self._unmoved, 0.0, None  # the next step sees to it
            if unmoved is not None:
                unmoved.raise_interrupt()  # the first of the two, or a Ctrl-C would be lost with the witness
        if again:
            return errors.unavailable(self.path)
        raise errors.translated(error, self.path) from error

    def _read(self, connection: sqlite3.Connection, work: Callable[..., T], args: tuple[Any, ...]) -> T:
        reader = self._reader
        assert reader is not None
        reader.now = self.clock.now()
        try:
            return work(reader, *args)
        except InterlockError:
            raise
        except errors.ODD_ROW as error:
            raise errors.odd_row(self.path, error) from error

    def _read_verified(
        self, connection: sqlite3.Connection, work: Callable[..., T], args: tuple[Any, ...]
    ) -> T:
        found = self._read(connection, work, args)
        assert self._identity is not None
        if not self._identity.holds_still():
            self._wait_for_writers(connection)
            raise Moved
        return found

    def _transact(
        self, connection: sqlite3.Connection, work: Callable[..., T], args: tuple[Any, ...]
    ) -> tuple[T, Rings]:
        cursor, identity, liveness = self._cursor, self._identity, self.liveness
        assert cursor is not None
        assert identity is not None
        with connection:  # of C, as `CriticalSection` is: it commits, or rolls back whatever strikes
            cursor.execute("begin immediate")
            if not identity.holds_still():
                raise Moved
            now = self.clock.now()  # after it began: nobody writes from here on
            transaction = Transaction(connection, cursor, now, liveness.life, liveness.alive)
            try:
                result = work(transaction, *args)
            except InterlockError:
                raise
            except errors.ODD_ROW as error:
                raise errors.odd_row(self.path, error) from error
            cursor.execute("commit")  # a kept statement; the one of `with` would be parsed each time
        return result, transaction.rings

    # ---- the connection: called under the section -----------------------------------

    def _usable(self) -> sqlite3.Connection:
        connection = self._connection
        if connection is None:
            connection = self._open()
        if self.clock.now() >= self._verify_at:
            self._verify_files(connection)
        return connection

    def _verify_files(self, connection: sqlite3.Connection) -> None:
        """Check now and then that the files are still ours, for callers that only read."""
        assert self._identity is not None
        assert self._files is not None
        if not self._identity.holds() or os.path.realpath(self.path) != self._files.path:
            self._wait_for_writers(connection)
            raise Moved
        if self._unmoved is None:
            self._unmoved = UnmovedFunction(self._identity)
            connection.create_function("unmoved", 0, self._unmoved.ask)
        self._verify_at = self.clock.now() + (self._identity.date() or VERIFY_EVERY_S)

    def _wait_for_writers(self, connection: sqlite3.Connection) -> None:
        """Make sure that nobody is in the middle of a write to the files that are open here; busy if
        somebody is.
        """
        try:
            with connection:
                connection.execute("begin immediate")
        except sqlite3.Error as error:
            if errors.busy(error):
                raise

    def _open(self) -> sqlite3.Connection:
        if self.closed:
            raise ClientClosed(f"{self.path} was closed")
        if self.path in _inherited:
            raise errors.unfit(
                self.path, "was in use when this process was forked from its parent; connect after the fork"
            )
        standard_streams.occupy()
        try:
            ownership.check(self.path)  # before anything is made there, and once more when the file is open
            make_file(self.path)
            self._enter(inodes(os.path.realpath(self.path), self._kind))
        except InterlockError:
            raise
        except FileNotFoundError as error:  # removed again, at once
            raise Unsettled(errors.unavailable(self.path)) from error
        except OSError as error:  # no free descriptor, or no memory
            raise Unsettled(errors.not_opened(self.path, error)) from error
        self._verify_at, self._unmoved = 0.0, None  # something may have happened to the files meanwhile
        self._refused = 0
        self.opened += 1
        assert self._connection is not None
        return self._connection

    def _enter(self, files: OpenFiles) -> None:
        if files is not self._files:
            if self._files is not None:
                self._files.part(self)
            files.join(self, self._section)
            self._files = files
        with files.opening:
            try:
                self._identity, self.liveness = files.settle()
                files.opening_for(id(self))
                self._connection = connection = connect(self.path, self.clock)
            except BaseException:
                files.failed(id(self))
                raise
            self._cursor = connection.cursor()
            life, alive = self.liveness.life, self.liveness.alive
            self._reader = Transaction(connection, self._cursor, 0.0, life, alive)

    def _drop(self) -> None:
        if self._connection is not None and self._files is not None:
            with self._files.opening:
                self._cursor = None
                self._connection.close()
                self._connection = None
                self._files.left(id(self))

    def leave(self) -> None:
        """Close the connection now if no thread uses it; otherwise whoever uses it next sees why."""
        self._verify_at = 0.0
        self._drop_within(0.0)

    def close(self) -> None:
        self.closed = True
        self._drop_within(IO_TIMEOUT)

    def retire(self) -> None:
        """Note that no claim of this process stands any more: see `OpenFiles.retire`."""
        if self._files is not None:
            self._files.retire()

    def _drop_within(self, seconds: float) -> None:
        section, missed = self._section, False
        if section.owned():
            return  # in the middle of a step of this very thread, which ends with it
        try:
            with section:
                if section.take(True, seconds):
                    self._drop()
                    return
                missed = True
        except RuntimeError as error:
            unmask(error, missed)

    def __del__(self) -> None:
        connection, files, reader = self._connection, self._files, self._reader
        self._connection = self._cursor = None
        if connection is None or files is None:
            return
        stands = True
        if reader is not None and reader.life and files.is_last(id(self)):
            with suppress(Exception):  # then nobody knows, and this process stays present
                reader.now = self.clock.now()
                stands = outlived(reader, reader.life)
        connection.close()
        files.dropped(id(self), stands)

    # ---- fork ---------------------------------------------------------------------

    def before_fork(self) -> None:
        section = self._section
        if section.owned():
            return  # in the middle of a step of this very thread
        self._forking = True  # first: whatever strikes here, the section is given back below
        if section.take(True, FORK_WAIT_S):
            self._drop()

    def after_fork_in_parent(self) -> None:
        if self._forking:
            self._forking = False
            if self._section.owned():
                self._section.__exit__()

    def after_fork_in_child(self) -> None:
        if self._connection is not None:  # its thread did not let go in time, or nobody told us of the fork
            _inherited.setdefault(self.path, []).append(self._connection)  # never closed: it is the parent's
            self._connection = self._cursor = None
        self._forking = False
        self._section = CriticalSection()
        if self._files is not None:
            self._files.join(self, self._section)


def unmask(error: RuntimeError, missed: bool) -> None:
    """Raise it again, unless it only says that a section was not taken.

    That is no news if it was `missed`. Otherwise something interrupted the thread while it waited, and that
    is raised.
    """
    if error.args != NOT_TAKEN:
        raise error
    if not missed and error.__context__ is not None:
        raise error.__context__ from None


_databases: dict[int, weakref.ref[Database]] = {}  # a WeakSet cannot be read while other threads add to it
_inherited: dict[str, list[sqlite3.Connection]] = {}


def _each(act: Callable[[Database], None]) -> Callable[[], None]:
    def call() -> None:
        for reference in list(_databases.values()):
            database = reference()
            if database is not None:
                act(database)

    return call


_process = getpid()  # the one whose connections are in `_databases`


def _after_fork_in_child() -> None:
    global _process
    _process = getpid()
    _each(Database.after_fork_in_child)()


def _forked_unnoticed() -> None:
    """In a child that C code has forked without a word to Python: forget what the parent has open, as after
    any fork.

    Its connections count as the parent's from here on, so the files are refused. Leases of the parent that
    this child asks only its own memory about still look held: nothing has told us of the fork.
    """
    for forget in (_after_fork_in_child, files.after_fork, liveness.after_fork):
        forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_each(Database.before_fork),
        after_in_parent=_each(Database.after_fork_in_parent),
        after_in_child=_after_fork_in_child,
    )
