"""Whether a process is alive. The kernel tells: each process locks one byte of the lock file, and the lock
ends with the process.

Every process that uses a lock file locks a byte of it, far beyond its content, and notes the number of that
byte, its life, in each claim it makes. A process that waits behind a claim asks the kernel whether that byte
is still locked. If not, the other process is gone, and its claim is dropped at once instead of at the end of
its ttl. A process that is alive, even if it is stopped, swapped out or in another container, still has its
lock. Where the kernel cannot tell (no such locks, a network filesystem), the life is 0, and no process ever
counts as dead.

The locks belong to the opening of the file (see `interlock._support.bytelock`) and are shared: the command of
`interlock run` inherits one on the same byte, and so lives in the same life as its wrapper. It is a byte of
an empty file beside the lock file: the command may run as another user, who could read the lock file through
any descriptor of it. A forked child closes its copy.

The bytes are not those of a file of its own: if that were removed and made anew, all processes would look
dead to each other. The price: closing any descriptor of the lock file drops SQLite's locks on it in this
process
("Posix advisory locks canceled by a separate thread doing close()", sqlite.org/howtocorrupt.html), so ours is
closed only when no connection of this process is open. See decision 0017.
"""

from __future__ import annotations

import errno
import os
import weakref
from contextlib import suppress
from typing import TypeAlias

from interlock._support import native, standard_streams
from interlock._support.bytelock import AVAILABLE, lock, locked

Inode: TypeAlias = tuple[int, int]
"""Device and number of a file: its identity on this machine."""

COMMANDS = "-run"  # what the name of the file ends in whose bytes are locked for commands
LOWEST, HIGHEST = 2**40, 2**62  # beyond every byte of the file, and beyond those that SQLite locks

_mutex = native.mutex()
_livenesses: dict[Inode, Liveness] = {}


class Liveness:
    """The life of this process on one lock file.

    One for each file, shared by all stores on it, whatever its name.
    """

    def __init__(self, inode: Inode, descriptor: int = -1, path: str = "") -> None:
        self.inode = inode
        self._path = path
        self.life = 0  # not begun, or nobody can tell
        self._descriptor = descriptor
        self._strays: list[int] = []  # others on the same file, which are closed with ours
        # Those who use it. A file that was moved while in use may be opened under both names.
        self._holders: weakref.WeakSet[object] = weakref.WeakSet()

    def alive(self, life: int) -> bool:
        """Whether a process with this life exists; True if nobody can tell."""
        if life in (0, self.life) or not self.life:
            return True  # our own lock does not show to ourselves: we would look dead
        return locked(self._descriptor, life) is not False or self._command_lives(life)

    def _command_lives(self, life: int) -> bool:
        """Whether a command runs that a process with this life has started, which is gone itself; True if
        nobody can tell.
        """
        try:
            if inode(self._path) != self.inode:
                return True
            descriptor = os.open(self._path + COMMANDS, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False  # no command was ever started
        except OSError:
            return True
        try:
            return locked(descriptor, life) is not False
        finally:
            os.close(descriptor)  # which is safe: SQLite knows nothing of this file

    def accompanied(self) -> bool:
        """Whether another process uses the file; False if nobody can tell."""
        return self._descriptor >= 0 and locked(self._descriptor, LOWEST, HIGHEST - LOWEST) is True

    def begin(self, path: str) -> None:
        """Lock a byte that nobody else has, and make sure that others see it."""
        if self.life or self._descriptor < 0:
            return
        life = LOWEST + int.from_bytes(os.urandom(8), "big") % (HIGHEST - LOWEST)
        with suppress(OSError):
            lock(self._descriptor, life)
            other = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if locked(other, life):
                    self.life = life
            finally:
                os.close(other)  # which is safe: this process has no connection yet

    def end(self, holder: object) -> None:
        """Give up the holder's part in this life.

        Only to be called while the holder has no connection to the file; with the last holder the life ends.
        """
        with _mutex:
            self._holders.discard(holder)
            # Only ourselves: after the end there may be another of the same file, which is in use.
            if not self._holders and _livenesses.get(self.inode) is self:
                del _livenesses[self.inode]
                self._close()

    def _close(self) -> None:
        descriptors, self._strays = [self._descriptor, *self._strays], []
        self.life, self._descriptor = 0, -1
        for descriptor in descriptors:
            with suppress(OSError):
                os.close(descriptor)


def present(path: str, holder: object) -> Liveness:
    """The liveness of this process on the file, perhaps not yet begun; to be asked for before a connection
    is opened.
    """
    if not AVAILABLE:
        return Liveness(inode(path))
    with _mutex:
        found = _livenesses.get(inode(path))
        if found is None:
            # For writing: on a layered filesystem (overlayfs) a file opened only for reading may be another
            # one.
            descriptor = _opened(path)
            stat = os.fstat(descriptor)
            made = Liveness((stat.st_dev, stat.st_ino), descriptor, path)
            found = _livenesses.setdefault(made.inode, made)
            if found is not made:  # the file was replaced just now, by one we have open already
                found._strays.append(descriptor)  # to close it now would drop the locks of SQLite
        found._holders.add(holder)
        return found


def _opened(path: str) -> int:
    """A descriptor of the file to keep, never with the number of a standard stream, to which anybody
    writes.
    """
    standard_streams.occupy()
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    if descriptor < standard_streams.MIN_DESCRIPTOR:
        os.close(descriptor)
        why = f"standard stream {descriptor} is closed, and there is no {os.devnull} to take its place"
        raise OSError(errno.ENXIO, why)
    return descriptor


def inode(path: str) -> Inode:
    stat = os.stat(path)
    return stat.st_dev, stat.st_ino


def after_fork() -> None:
    """In a forked child: the life is the parent's; only our copy of its descriptor is closed."""
    global _mutex
    _mutex = native.mutex()
    for liveness in _livenesses.values():
        liveness._close()
    _livenesses.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=after_fork)
