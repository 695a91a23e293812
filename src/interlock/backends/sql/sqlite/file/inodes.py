"""Which files a database really is: the main file, and the shared memory beside it, that this process has
open.

SQLite finds its three files by name, once, when it opens them. If somebody removes the shared memory (`-shm`)
while it is in use, the next process to come makes a new one. From then on there are two groups of processes,
each with locks of its own, that write into the same log: two holders, and a damaged file. So every write
transaction, once it has the write lock, makes sure that the names still lead to the files it has open. If
not, it writes nothing; the process closes all its connections and starts again with the files that are there
now. See "Unlinking or renaming a database file while in use" in SQLite's "How To Corrupt An SQLite Database
File" (sqlite.org/howtocorrupt.html), and sqlite.org/wal.html on the three files.

- A process that has the old files open leaves them only while it holds their write lock: no other process can
  be in the middle of a write there, and none that checks after that begins one.
- A newcomer cannot see the old lock. If others are present (see `liveness`) but files are missing, it gives a
  write that began before the removal a moment (`GRACE_S`) to end.
- If only the log (`-wal`) is missing while others are present, a newcomer stays away: it would begin an empty
  one, of which the others know nothing. They have the old one open and go on; when the last of them leaves,
  nothing is lost.

SQLite shares the files among all connections of a process, so `OpenFiles` does too.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol

from interlock._support import clock, native
from interlock.backends.sql.sqlite.file import errors, ownership
from interlock.backends.sql.sqlite.file.critical_section import CriticalSection
from interlock.backends.sql.sqlite.file.liveness import Liveness, inode, present
from interlock.backends.sql.sqlite.file.location import NETWORK, make_beside
from interlock.errors import InterlockError

SHARED, LOG = "-shm", "-wal"
GRACE_S = 0.05  # seconds for a write that began before the shared memory was removed
LOG_GRACE_S = 1.0  # seconds for a log that may just be being made, or removed in good order
# Seconds: after so long a directory's time of change cannot be met a second time (a tick has 0.01).
SETTLED = 0.04

# Where the time of change of a directory moves whenever a name in it comes, goes, or leads elsewhere.
DATED = frozenset("bcachefs btrfs ext2 ext3 ext4 f2fs overlay tmpfs xfs zfs".split())


class Unsettled(Exception):
    """Files are missing that others have open: ask again in a moment.

    In the end `error` says what is wrong.
    """

    def __init__(self, error: InterlockError) -> None:
        super().__init__(error)
        self.error = error


class User(Protocol):
    """An object that may have a connection to the files."""

    @property
    def closed(self) -> bool: ...
    def leave(self) -> None:
        """Close the connection now if nobody is using it, else before it is used again."""
        ...


class FileIdentity:
    """The files as they were when the first connection of this process was opened."""

    def __init__(self, path: str, directory: int) -> None:
        self._path, self._shared = path, path + SHARED
        self._files = inode(path), inode(self._shared)
        self.directory = directory
        self.changed = -1  # when a name in the directory last changed, if that can be relied on

    def holds(self) -> bool:
        """Whether the names still lead to these files."""
        try:
            return (inode(self._path), inode(self._shared)) == self._files
        except OSError:
            return False

    def holds_still(self) -> bool:
        """As `holds`, for less: if no name in the directory has changed, neither has one of these."""
        try:
            if self.changed >= 0 and os.fstat(self.directory).st_ctime_ns == self.changed:
                return True
        except OSError:
            self.undate()
        return self.holds()

    def undate(self) -> None:
        """Do without the descriptor of the directory: the program has closed it, as daemons close all that
        they do not know.
        """
        self.directory = self.changed = -1

    def date(self) -> float:
        """Note when a name in the directory last changed, just before it is found that these have not.

        Returns in how many seconds that is worth another try; 0.0 if it could be done. The time of change has
        the resolution of the kernel's ticks: one that is only just over could be met a second time.
        """
        if self.directory < 0:
            return 0.0
        try:
            # Not st_mtime_ns, which stays if the directory is moved.
            changed = os.fstat(self.directory).st_ctime_ns
        except OSError:
            self.undate()
            return 0.0
        settled = time.time_ns() - changed > SETTLED * 1e9
        self.changed = changed if settled and self.holds() else -1
        return 0.0 if settled else SETTLED


class UnmovedFunction:
    """Tells a statement, while it is executed, whether the files are still there.

    SQLite swallows an exception that is raised in a function it calls, be it Ctrl-C. So the function is a
    generator that never leaves its `try`: what strikes it is kept, the statement does nothing, and
    `raise_interrupt` raises it.
    """

    def __init__(self, identity: FileIdentity) -> None:
        self._identity = identity
        self._struck: BaseException | None = None
        self.ask: Callable[[], bool] = self._answers().__next__
        self.ask()  # so that it is inside its `try`

    def _answers(self) -> Iterator[bool]:
        identity, fstat = self._identity, os.fstat
        while True:
            try:
                while True:
                    # Nothing is asked after an error. If it stays (a full stack, no memory), it would strike
                    # here again and again, while the statement holds the write lock of the file.
                    if self._struck is not None:
                        yield False
                        continue
                    # As `holds_still`, in line: near the recursion limit a call more would strike each time.
                    unchanged = (
                        identity.changed >= 0 and fstat(identity.directory).st_ctime_ns == identity.changed
                    )
                    yield unchanged or identity.holds()
            except GeneratorExit:
                return
            except OSError:
                # As `undate` does. It cannot strike again: `holds` raises none.
                identity.directory = identity.changed = -1
            except BaseException as error:
                self._struck = error

    def raise_interrupt(self) -> None:
        """Raise what struck during the last statement, if anything did."""
        struck, self._struck = self._struck, None
        if struck is not None:
            raise struck


class OpenFiles:
    """The files under one path, for all connections of this process."""

    def __init__(self, path: str, kind: str) -> None:
        self.path = path
        self.opening = native.mutex()  # held while a connection is opened or closed
        self._present = kind not in NETWORK
        self.sections: dict[int, CriticalSection] = {}  # in which the connections of this process are used
        self._users: dict[int, weakref.ref[User]] = {}
        # The users that have a connection, also those that are just being collected.
        self._connections: set[int] = set()
        self._new = False  # the life was begun by the last `settle`: no claim was made in it before
        self._identity: FileIdentity | None = None
        self._liveness = Liveness((0, 0))
        self._dated = kind in DATED
        self._directory = -1
        self._missed = 0.0  # since when files have been missing that others have open

    def join(self, user: User, section: CriticalSection) -> None:
        """Count a user, who uses its connection inside `section` only."""
        key = id(user)
        self.sections[key] = section
        self._users[key] = weakref.ref(user, lambda _: self._forget(key))

    def part(self, user: User) -> None:
        self._forget(id(user))

    def _forget(self, key: int) -> None:
        self._users.pop(key, None)
        self.sections.pop(key, None)

    def users(self) -> list[User]:
        return [user for reference in list(self._users.values()) if (user := reference()) is not None]

    def abandon(self) -> None:
        """Have every connection of this process closed, because the names lead to other files now."""
        for user in self.users():
            user.leave()

    # ---- called while `opening` is held ------------------------------------------------

    def settle(self) -> tuple[FileIdentity, Liveness]:
        """The files that a new connection of this process will use; `Unsettled` if that is not clear yet."""
        if self._identity is not None and self._connections:
            self._wait_for_files(accompanied=True)
            return self._identity, self._liveness
        self._new = False  # first: if what follows fails, the life may be one in which claims stand
        liveness = present(self.path, self) if self._present else Liveness((0, 0))
        if liveness is not self._liveness:
            self._liveness.end(self)  # of a file that is no longer the one under this path
            self._liveness = liveness
        self._new = not liveness.life
        self._wait_for_files(liveness.accompanied())
        liveness.begin(self.path)
        for suffix in (LOG, SHARED):  # ours, before anybody else makes one that SQLite would believe
            make_beside(self.path, suffix)
        ownership.check(self.path)
        if self._dated and self._directory < 0:
            self._directory = _open_directory(self.path)
        self._identity = FileIdentity(self.path, self._directory)
        return self._identity, liveness

    def _wait_for_files(self, accompanied: bool) -> None:
        """Raise if files are missing that another connection, here or elsewhere, has open."""
        shared, log = os.path.exists(self.path + SHARED), os.path.exists(self.path + LOG)
        if not accompanied or (shared and log) or not os.path.getsize(self.path):
            self._missed = 0.0
            return
        now = clock.now()
        self._missed = self._missed or now
        if now < self._missed + (LOG_GRACE_S if shared else GRACE_S):
            raise Unsettled(errors.unavailable(self.path))
        if shared:
            raise errors.log_removed(self.path)

    def opening_for(self, key: int) -> None:
        """Note that a connection is about to be opened for the user with this key: until `left` is called, no
        descriptor may be closed.
        """
        self._connections.add(key)

    def left(self, key: int) -> None:
        """Note that a connection was closed.

        With the last of them goes what would keep the filesystem from being unmounted.
        """
        self._connections.discard(key)
        if not self._connections:
            self._close_directory()

    def failed(self, key: int) -> None:
        """Note that no connection could be opened after `settle`: a life that was begun for it ends."""
        self.left(key)
        if self._new and not self._connections:
            self._liveness.end(self)

    # ---- the end of the life of this process there ----------------------------------------

    def retire(self) -> None:
        """A store was closed, and no claim of this process stands. With the last store the liveness ends."""
        with self.opening:
            if not self._connections and all(user.closed for user in self.users()):
                self._liveness.end(self)

    def is_last(self, key: int) -> bool:
        """Whether the user with this key has the only connection."""
        return self._connections == {key}

    def dropped(self, key: int, stands: bool) -> None:
        """A user is being collected that was never closed; its connection is closed. Does what `left` and
        `retire` do.

        If somebody opens or closes a connection just now, perhaps further down on this very thread, nothing
        is done: a finalizer must not wait, and the next user of the file finds the descriptor and closes it
        in the end.
        """
        self._connections.discard(key)
        mutex: Any = self.opening
        if not mutex._is_owned() and mutex.acquire(False):
            try:
                if not self._connections:
                    self._close_directory()
                    if not stands:
                        self._liveness.end(self)
            finally:
                mutex.release()

    def _close_directory(self) -> None:
        directory, self._directory = self._directory, -1
        if directory >= 0:
            with suppress(OSError):  # the program may have closed it
                os.close(directory)

    def __del__(self) -> None:
        self._close_directory()


def _open_directory(path: str) -> int:
    try:
        return os.open(os.path.dirname(path), getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)
    except OSError:
        return -1


_mutex = native.mutex()
_known: weakref.WeakValueDictionary[str, OpenFiles] = weakref.WeakValueDictionary()


def inodes(path: str, kind: str) -> OpenFiles:
    """What this process has open under a path, which is free of symbolic links."""
    with _mutex:
        found = _known.get(path)
        if found is None:
            found = _known[path] = OpenFiles(path, kind)
        return found


def after_fork() -> None:
    global _mutex
    _mutex = native.mutex()
    for known in list(_known.values()):
        known.opening = native.mutex()
        known._connections.clear()  # none is ours: see `Database`


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=after_fork)
