"""One connection to the lock file, and the one way to use it: short transactions, bounded patience.

Busy is answered by short jittered naps of our own, outside the guard of the connection.

Fork: SQLite keeps a process's file locks in its own memory, which a child inherits although the kernel
does not give it the locks. A child that opened the file again would believe that it is protected, and
the last process to leave would delete the log under its feet: granted claims lost, two holders. So
connections are closed just *before* a fork, in the parent, and both sides open new ones when they need them.
Where that was not possible the child refuses the file.
"""

from __future__ import annotations

import os
import sqlite3
import time
import weakref
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar

from interlock.backends.sqlite import ownership, refusal
from interlock.backends.sqlite.clock import Clock
from interlock.backends.sqlite.file import connect
from interlock.backends.sqlite.guard import NOT_TAKEN, Guard
from interlock.backends.sqlite.inodes import Identity, Inodes, Unsettled, Witness, inodes
from interlock.backends.sqlite.place import make_file
from interlock.backends.sqlite.presence import Presence
from interlock.errors import ClientClosed, InterlockError
from interlock.ports import IO_TIMEOUT

T = TypeVar("T")

Calls: TypeAlias = dict[str, list[str]]
"""Whom to ring: the address of a doorbell, and the topics to name."""

FIRST_NAP = 0.0002
LONGEST_NAP = 0.004
URGENT = 0.05  # seconds for which others give way to one who is in a hurry, unless it says so again
URGENT_NAP = 0.001
LOOK_EVERY = 0.25  # seconds between looks whether the file is still the one we opened
STRUCK = "user-defined function raised exception"
OPENINGS = 3  # how often a file is tried to be opened, if SQLite says that it is damaged, or the like
FORK_PATIENCE = 1.0  # seconds a fork waits for transactions of other threads


class Transaction:
    """One `begin immediate`: what it may touch, what time it is, who lives, and whom to ring once it is committed."""

    __slots__ = ("alive", "calls", "execute", "life", "now")

    def __init__(self, connection: sqlite3.Connection, now: float, presence: Presence) -> None:
        self.execute = connection.execute
        self.now = now
        self.life = presence.life  # ours
        self.alive = presence.alive
        self.calls: Calls = {}

    def call(self, address: str, topic: str) -> None:
        """Ring this bell about this topic after the commit; '' is nobody's address."""
        if address:
            self.calls.setdefault(address, []).append(topic)


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
        self._guard = Guard()
        self._connection: sqlite3.Connection | None = None
        self._inodes: Inodes | None = None
        self._identity: Identity | None = None
        self.presence = Presence((0, 0))
        self._witness: Witness | None = None
        self._look_at = 0.0
        self._urgent_until = 0.0
        self._refused = 0
        self.closed = False
        self._forking = False
        key = id(self)
        _databases[key] = weakref.ref(self, lambda _: _databases.pop(key, None))

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def inside(self) -> bool:
        """Whether the calling thread is using this connection at the moment."""
        return self._guard.owned()

    def surrounded(self) -> bool:
        """Whether the calling thread is using some connection of this process to the same files."""
        return self._guard.owned() or (self._inodes is not None and self._inodes.inside())

    def run(self, until: float, step: Callable[..., T], *args: Any) -> T:
        """What `step` returns, run alone on the connection; again while other processes are in the way.

        Raises `StoreUnavailable` when it is `until` and they still are.
        """
        return self._run(until, False, step, args)

    def _run(self, until: float, urgent: bool, step: Callable[..., T], args: tuple[Any, ...]) -> T:
        nap = FIRST_NAP
        while True:
            try:
                return self._alone(until, urgent, step, args)
            except sqlite3.Error as error:
                failure = self._failed(error)
                cause: Exception = error
            except Unsettled as error:
                failure, cause = error.error, error
            except GiveWay as error:
                failure, cause = refusal.unavailable(self.path), error
            except Moved as error:
                failure, cause = refusal.unavailable(self.path), error
                if self._inodes is not None:
                    self._inodes.abandon()
            now = self.clock.now()
            if now >= until or self.surrounded():
                raise failure from cause
            time.sleep(min(until - now, nap * (0.25 + self._random())))
            nap = min(URGENT_NAP if urgent else LONGEST_NAP, nap * 2)

    def single(self, until: float, now: float, statement: str, values: tuple[object, ...]) -> bool:
        """Whether a statement that is a transaction by itself has changed its one row.

        It is given `values`, and after them our life. This is the way of most claims and releases: as `run`, in fewer steps.
        """
        guard, missed = self._guard, False
        if self._urgent_until <= now < self._look_at and not guard.owned():
            try:
                with guard:
                    if guard.take(False) and (connection := self._connection) is not None:
                        values_and_life = (*values, self.presence.life)
                        changed = connection.execute(statement, values_and_life).rowcount == 1
                        return changed or self._struck()
                    missed = True
            except (sqlite3.Error, Unsettled, Moved):
                pass  # in other processes' way, or worse: the long way sees to it
            except RuntimeError as error:
                _unmask(error, missed)
        return self.run(until, self._single, statement, values)

    def _single(self, connection: sqlite3.Connection, statement: str, values: tuple[object, ...]) -> bool:
        changed = connection.execute(statement, (*values, self.presence.life)).rowcount == 1
        return changed or self._struck()

    def _struck(self) -> Literal[False]:
        """Raise what struck while a statement asked for `unmoved()`, if anything did: the statement has done nothing."""
        if self._witness is not None:
            self._witness.testify()
        return False

    def _alone(self, until: float, urgent: bool, step: Callable[..., T], args: tuple[Any, ...]) -> T:
        """Run a step while no other thread uses the connection; wait for one that does until `until`.

        A disk that hangs under another thread must not hang this one too.
        """
        guard, missed = self._guard, False
        if guard.owned():
            raise refusal.called_from_within(self.path)
        if urgent:  # a time, not a flag: if this is interrupted, nobody has to take it back
            self._urgent_until = self.clock.now() + URGENT
        try:
            with guard:
                if guard.take(False) or guard.take(True, max(0.0, until - self.clock.now())):
                    if urgent:
                        self._urgent_until = 0.0
                    elif self._urgent_until and self.clock.now() < self._urgent_until:
                        raise GiveWay
                    result = step(self._usable(), *args)
                    if self.closed:  # from within, by a signal handler
                        self._drop()
                    return result
                missed = True
        except RuntimeError as error:
            _unmask(error, missed)
        raise refusal.unavailable(self.path)

    def _failed(self, error: sqlite3.Error) -> InterlockError:
        """What to say of an error if it does not go away; raises if it will not."""
        if refusal.busy(error):
            return refusal.unavailable(self.path)
        if self._connection is None:  # while it was opened; perhaps files were removed just then
            self._refused += 1
            again = self._refused < OPENINGS
        else:
            struck = str(error) == STRUCK  # twice in a row: the witness is no more
            again = struck or self._identity is None or not self._identity.holds()
            self._look_at, self._witness = 0.0, None  # the next step sees to it
        if again:
            return refusal.unavailable(self.path)
        raise refusal.refusal(error, self.path) from error

    def write(self, until: float, work: Callable[..., T], *args: Any) -> tuple[T, Calls]:
        """What `work(transaction, *args)` returns, committed, and whom to ring now."""
        return self._run(until, False, self._transact, (work, args))

    def write_first(self, until: float, work: Callable[..., T], *args: Any) -> tuple[T, Calls]:
        """As `write`, before all other threads of this process that want to use the connection: for renewals."""
        return self._run(until, True, self._transact, (work, args))

    def _transact(
        self, connection: sqlite3.Connection, work: Callable[..., T], args: tuple[Any, ...]
    ) -> tuple[T, Calls]:
        with connection:  # of C, as `Guard` is: it commits, or rolls back whatever strikes
            connection.execute("begin immediate")
            assert self._identity is not None
            if not self._identity.holds_still():
                raise Moved
            now = self.clock.now()  # after it began: nobody writes from here on
            transaction = Transaction(connection, now, self.presence)
            result = work(transaction, *args)
        return result, transaction.calls

    # ---- the connection: called under the guard -----------------------------------

    def _usable(self) -> sqlite3.Connection:
        connection = self._connection
        if connection is None:
            connection = self._open()
        if self.clock.now() >= self._look_at:
            self._look(connection)
        return connection

    def _look(self, connection: sqlite3.Connection) -> None:
        """Now and then: for those who only read."""
        assert self._identity is not None
        assert self._inodes is not None
        if not self._identity.holds() or os.path.realpath(self.path) != self._inodes.path:
            self._wait_for_writers(connection)
            raise Moved
        if self._witness is None:
            self._witness = Witness(self._identity)
            connection.create_function("unmoved", 0, self._witness.ask)
        self._look_at = self.clock.now() + (self._identity.date() or LOOK_EVERY)

    def _wait_for_writers(self, connection: sqlite3.Connection) -> None:
        """Make sure that nobody is in the middle of a write to the files that are open here; busy if somebody is."""
        try:
            with connection:
                connection.execute("begin immediate")
        except sqlite3.Error as error:
            if refusal.busy(error):
                raise

    def _open(self) -> sqlite3.Connection:
        if self.closed:
            raise ClientClosed(f"{self.path} was closed")
        if self.path in _inherited:
            raise refusal.unfit(
                self.path, "was in use when this process was forked from its parent; connect after the fork"
            )
        try:
            make_file(self.path)
            ownership.check(self.path)  # before it is opened; and once more when those beside it are there
            self._enter(inodes(os.path.realpath(self.path), self._kind))
        except FileNotFoundError as error:  # removed again, at once
            raise Unsettled(refusal.unavailable(self.path)) from error
        self._look_at, self._witness = 0.0, None  # something may have happened to the files meanwhile
        self._refused = 0
        self.opened += 1
        assert self._connection is not None
        return self._connection

    def _enter(self, files: Inodes) -> None:
        if files is not self._inodes:
            if self._inodes is not None:
                self._inodes.part(self)
            files.join(self)
            self._inodes = files
        with files.opening:
            self._identity, self.presence = files.settle()
            self._connection = connect(self.path, self.clock)

    def _drop(self) -> None:
        if self._connection is not None and self._inodes is not None:
            with self._inodes.opening:
                self._connection.close()
                self._connection = None
                self._inodes.left()

    def leave(self) -> None:
        """Close the connection now if no thread uses it; otherwise whoever uses it next sees why."""
        self._look_at = 0.0
        self._drop_within(0.0)

    def close(self) -> None:
        self.closed = True
        self._drop_within(IO_TIMEOUT)

    def retire(self) -> None:
        """No claim of this process stands any more: see `Inodes.retire`."""
        if self._inodes is not None:
            self._inodes.retire()

    def _drop_within(self, seconds: float) -> None:
        guard, missed = self._guard, False
        if guard.owned():
            return  # in the middle of a step of this very thread, which ends with it
        try:
            with guard:
                if guard.take(True, seconds):
                    self._drop()
                    return
                missed = True
        except RuntimeError as error:
            _unmask(error, missed)

    def __del__(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # ---- fork ---------------------------------------------------------------------

    def before_fork(self) -> None:
        guard = self._guard
        if guard.owned():
            return  # in the middle of a step of this very thread
        self._forking = True  # first: whatever strikes here, the guard is given back below
        if guard.take(True, FORK_PATIENCE):
            self._drop()

    def after_fork_in_parent(self) -> None:
        if self._forking:
            self._forking = False
            if self._guard.owned():
                self._guard.__exit__()

    def after_fork_in_child(self) -> None:
        if self._connection is not None:  # its thread did not let go in time, or nobody told us of the fork
            _inherited.setdefault(self.path, []).append(self._connection)  # never closed: it is the parent's
            self._connection = None
        self._forking = False
        self._guard = Guard()


def _unmask(error: RuntimeError, missed: bool) -> None:
    """Raise it again, unless it only says that a guard was not taken.

    That is no news if it was `missed`. Otherwise something interrupted the thread while it waited, and that is raised.
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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_each(Database.before_fork),
        after_in_parent=_each(Database.after_fork_in_parent),
        after_in_child=_each(Database.after_fork_in_child),
    )
