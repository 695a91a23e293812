"""Shared locks on single bytes of a file that belong to an opening of the file, not to a process.

These are the "open file description locks" of fcntl(2): F_OFD_SETLK. The kernel drops such a lock when the
last descriptor of that opening is closed, that is, when every process that made it or inherited it (also over
exec) is gone. Linux has these locks; on systems without them, nothing can be locked.
"""

from __future__ import annotations

import os
from importlib import import_module
from struct import Struct
from typing import Any


def _fcntl() -> Any:
    try:
        return import_module("fcntl")
    except ImportError:  # Windows
        return None


fcntl = _fcntl()
AVAILABLE = hasattr(fcntl, "F_OFD_SETLK")

_FLOCK = Struct("@hhqqi4x")  # struct flock: type, whence, start, length, pid


def lock(descriptor: int, byte: int) -> None:
    """Lock a byte; others may have locked it too. OSError if such locks do not work on this file."""
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, byte, 1, 0))


def locked(descriptor: int, start: int, length: int = 1) -> bool | None:
    """Whether any of these bytes is locked through another opening of the file; None if the kernel does
    not say.
    """
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    except OSError:
        return None
    kind: int = _FLOCK.unpack(answer)[0]
    return bool(kind != fcntl.F_UNLCK)
