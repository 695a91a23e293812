"""One connection to the lock file, and the one way to use it: short transactions, bounded patience.

Busy is answered by short jittered naps of our own, outside the lock that guards the connection.

Fork: SQLite keeps a process's file locks in its own memory, which a child inherits although the kernel
does not give it the locks. A child that opened the file again would believe that it is protected, and
the last process to leave would delete the log under its feet: granted claims lost, two holders. So
connections are closed just *before* a fork, in the parent, and both sides open new ones when they need them.
Where that was not possible the child refuses the file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from interlock.backends.sqlite import refusal
from interlock.backends.sqlite.clock import Clock
from interlock.backends.sqlite.file import connect
from interlock.backends.sqlite.place import make_file
from interlock.errors import ClientClosed

T = TypeVar("T")

Calls: TypeAlias = dict[str, list[str]]
"""Whom to ring: the address of a doorbell, and the topics to name."""

FIRST_NAP = 0.0002
LONGEST_NAP = 0.004
LOOK_EVERY = 0.25  # seconds between looks whether the file is still the one we opened
FORK_PATIENCE = 1.0  # seconds a fork waits for transactions of other threads


class Transaction:
    """One `begin immediate`: what it may touch, what time it is, and whom to ring once it is committed."""

    __slots__ = ("calls", "execute", "executemany", "now")

    def __init__(self, connection: sqlite3.Connection, now: float) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.now = now
        self.calls: Calls = {}

    def call(self, address: str, topic: str) -> None:
        """Ring this bell about this topic after the commit; '' is nobody's address."""
        if address:
            self.calls.setdefault(address, []).append(topic)


class Database:
    """A connection that any thread may use, opened when first needed and opened anew after a fork."""

    def __init__(self, path: str, clock: Clock, random: Callable[[], float]) -> None:
        self.path = path
        self.clock = clock
        self.opened = 0  # how often: a new connection knows nothing of what the old one saw
        self._random = random
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._look_at = 0.0
        self._closed = False
        self._forking = False
        key = id(self)
        _databases[key] = weakref.ref(self, lambda _: _databases.pop(key, None))

    def run(self, until: float, step: Callable[..., T], *args: Any) -> T:
        """What `step` returns, run alone on the connection; again while other processes are in the way.

        Raises `StoreUnavailable` when it is `until` and they still are.
        """
        nap = FIRST_NAP
        while True:
            try:
                if threading.get_ident() == threading.main_thread().ident:
                    # Ctrl-C strikes here, and nowhere else: between an acquire and its try it would leave the
                    # lock taken for ever. Nobody naps while holding it, so waiting without a bound is short.
                    with self._lock:
                        return step(self._usable(), *args)
                return self._bounded(until, step, args)
            except sqlite3.Error as error:
                if not refusal.busy(error):
                    raise refusal.refusal(error, self.path) from error
                cause = error
            now = self.clock.now()
            if now >= until:
                raise refusal.unavailable(self.path) from cause
            time.sleep(min(until - now, nap * (0.25 + self._random())))
            nap = min(LONGEST_NAP, nap * 2)

    def _bounded(self, until: float, step: Callable[..., T], args: tuple[Any, ...]) -> T:
        """As above, for a thread with deadlines: a disk that hangs under another thread must not hang it too."""
        if not self._lock.acquire(False) and not self._lock.acquire(
            timeout=max(0.0, until - self.clock.now())
        ):
            raise refusal.unavailable(self.path)
        try:
            return step(self._usable(), *args)
        finally:
            self._lock.release()

    def write(self, until: float, work: Callable[..., T], *args: Any) -> tuple[T, Calls]:
        """What `work(transaction, *args)` returns, committed, and whom to ring now."""
        return self.run(until, self._transact, work, args)

    def _transact(
        self, connection: sqlite3.Connection, work: Callable[..., T], args: tuple[Any, ...]
    ) -> tuple[T, Calls]:
        try:
            connection.execute("begin immediate")
            transaction = Transaction(
                connection, self.clock.now()
            )  # after it began: nobody writes from here on
            result = work(transaction, *args)
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise
        return result, transaction.calls

    # ---- the connection: called under the lock --------------------------------

    def _usable(self) -> sqlite3.Connection:
        now = self.clock.now()
        if self._connection is not None and now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            if self._inode != _inode(self.path):
                # Deleted or replaced: what we hold in the old file means nothing to those who open the new one.
                self._drop()
        if self._connection is None:
            self._open(now)
        connection = self._connection
        assert connection is not None
        if connection.in_transaction:  # an interrupt struck in the middle of a rollback
            connection.execute("rollback")
        return connection

    def _open(self, now: float) -> None:
        if self._closed:
            raise ClientClosed(f"{self.path} was closed")
        if self.path in _inherited:
            raise refusal.unfit(
                self.path, "was in use when this process was forked from its parent; connect after the fork"
            )
        make_file(self.path)
        self._inode = _inode(self.path)  # before it is opened: a file replaced in between is then noticed
        self._connection = connect(self.path, self.clock)
        self._look_at = now + LOOK_EVERY
        self.opened += 1

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._drop()

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.close()

    # ---- fork ---------------------------------------------------------------------

    def before_fork(self) -> None:
        self._forking = self._lock.acquire(timeout=FORK_PATIENCE)
        if self._forking:
            self._drop()

    def after_fork_in_parent(self) -> None:
        if self._forking:
            self._forking = False
            self._lock.release()

    def after_fork_in_child(self) -> None:
        if self._connection is not None:  # its thread did not let go in time, or nobody told us of the fork
            _inherited.setdefault(self.path, []).append(self._connection)  # never closed: it is the parent's
            self._connection = None
        self._forking = False
        self._lock = threading.Lock()


def _inode(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


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
