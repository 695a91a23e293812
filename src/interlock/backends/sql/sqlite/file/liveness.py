"""Whether a process is alive. The kernel tells: each process locks one byte of the lock file, and the lock ends with the process.

Every process that uses a lock file locks a byte of it, far beyond its content, and notes the number of that byte, its
life, in each claim it makes. A process that waits behind a claim asks the kernel whether that byte is still locked. If
not, the other process is gone, and its claim is dropped at once instead of at the end of its ttl. A process that is alive,
even if it is stopped, swapped out or in another container, still has its lock. Where the kernel cannot tell (no such
locks, a network filesystem), the life is 0, and no process ever counts as dead.

The locks belong to the opening of the file (see `interlock.bytelock`) and are shared: the command of `interlock run`
inherits one on the same byte, and so lives in the same life as its wrapper. A forked child closes its copy.

Not a file of its own: if that were removed and made anew, everybody would look dead to everybody else. The price: closing
any descriptor of the lock file drops the locks that SQLite has on it in this process ("Posix advisory locks canceled by a
separate thread doing close()", sqlite.org/howtocorrupt.html), so ours is closed only when no connection of this process is
open. See decision 0017.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TypeAlias

from interlock import native
from interlock.bytelock import AVAILABLE, lock, locked

Inode: TypeAlias = tuple[int, int]
"""Device and number of a file: its identity on this machine."""

LOWEST, HIGHEST = 2**40, 2**62  # beyond every byte of the file, and beyond those that SQLite locks

_guard = native.guard()
_livenesses: dict[Inode, Liveness] = {}
_stray: list[int] = []  # descriptors that cannot be closed without dropping SQLite's locks


class Liveness:
    """The life of this process on one lock file. One for each file, shared by all stores on it."""

    def __init__(self, inode: Inode, descriptor: int = -1) -> None:
        self.inode = inode
        self.life = 0  # not begun, or nobody can tell
        self._descriptor = descriptor

    def alive(self, life: int) -> bool:
        """Whether a process with this life exists; True if nobody can tell."""
        if life in (0, self.life) or not self.life:
            return True  # our own lock does not show to ourselves: we would look dead
        return locked(self._descriptor, life) is not False

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

    def end(self) -> None:
        """Let go. Only to be called while this process has no connection to the file."""
        with _guard:
            if _livenesses.pop(self.inode, None) is self:
                os.close(self._descriptor)
            self.life, self._descriptor = 0, -1


def present(path: str) -> Liveness:
    """The liveness of this process on the file, not yet begun; to be asked for before a connection is opened."""
    if not AVAILABLE:
        return Liveness(inode(path))
    with _guard:
        found = _livenesses.get(inode(path))
        if found is not None:
            return found
        # For writing: on a layered filesystem (overlayfs) a file opened only for reading may be another one.
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        stat = os.fstat(descriptor)
        made = Liveness((stat.st_dev, stat.st_ino), descriptor)
        if made.inode in _livenesses:  # the file was replaced just now, by one we have open already
            _stray.append(descriptor)
            return _livenesses[made.inode]
        _livenesses[made.inode] = made
        return made


def inode(path: str) -> Inode:
    stat = os.stat(path)
    return stat.st_dev, stat.st_ino


def _after_fork() -> None:
    """In a forked child: the life is the parent's; only our copy of its descriptor is closed."""
    global _guard
    _guard = native.guard()
    for liveness in _livenesses.values():
        with suppress(OSError):
            os.close(liveness._descriptor)
        liveness.life, liveness._descriptor = 0, -1
    _livenesses.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
