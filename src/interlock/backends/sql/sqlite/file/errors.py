"""SQLite's errors as errors of interlock: one sentence that names the file and says what to do about it."""

from __future__ import annotations

import errno
import os
import sqlite3
import struct

from interlock.errors import InterlockError, StoreUnavailable, StoreUnfit, Unreached

# Primary result codes of SQLite, and two extended ones; `sqlite3` does not name all of them.
BUSY, LOCKED, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL, AUTH, NOTADB = (
    5,
    6,
    8,
    10,
    11,
    13,
    14,
    15,
    23,
    26,
)
PERM = 3
IOERR_SHMSIZE = 4874  # the shared memory beside the file could not grow: the disk is full, in other words


class NothingDone(Unreached):
    """The step did not begin, or SQLite has rolled it back. The file may be free at the next try."""


def busy(error: sqlite3.Error) -> bool:
    """Whether another process is in the middle of its transaction: ask again in a moment."""
    return _code(error) & 0xFF in (BUSY, LOCKED, PROTOCOL)


def unavailable(path: str) -> NothingDone:
    return NothingDone(
        f"{path}: other processes kept the file locked all the time; look for one that is stopped, "
        "or that holds a transaction open"
    )


def not_opened(path: str, error: OSError) -> NothingDone:
    return NothingDone(f"{path} cannot be opened at the moment ({error.strerror or error})")


def log_removed(path: str) -> NothingDone:
    return NothingDone(
        f"{path}-wal was removed while other processes use the file; they go on, but nobody can join them: "
        "end them and start them anew (what they hold is not lost)"
    )


def called_from_within(path: str) -> NothingDone:
    return NothingDone(
        f"{path}: called from a finalizer or a signal handler that runs in the middle of another call to the "
        "same file; nothing was done"
    )


def unfit(path: str, why: str, number: int = errno.EINVAL) -> StoreUnfit:
    """The file cannot be used, and why; `errno` says the same to programs."""
    error = StoreUnfit(f"{path} {why}")
    error.errno = number
    return error


def full(path: str) -> StoreUnfit:
    return unfit(path, "cannot grow, because its disk is full; free some space and try again", errno.ENOSPC)


def read_only(path: str) -> StoreUnfit:
    return unfit(
        path, "cannot be written; make the file and its directory writable, or name another file", errno.EROFS
    )


# How code fails that computes with a row of another shape than ours have.
ODD_ROW = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, struct.error)


def odd_row(path: str, error: Exception) -> StoreUnfit:
    """The error for a row that interlock cannot have written: SQLite stores any type in any column."""
    return unfit(
        path,
        f"has a row that interlock did not write ({type(error).__name__}: {error}); end the programs that "
        "use the file and move it away (tokens go on from the clock), and see who else may write it",
    )


def translated(error: sqlite3.Error, path: str) -> InterlockError:
    """The error of ours that stands for one of SQLite's: nothing raw reaches a user."""
    code = _code(error)
    primary = code & 0xFF
    if primary == FULL or code == IOERR_SHMSIZE:
        return full(path)
    if primary in (READONLY, PERM, AUTH):
        return read_only(path)
    if primary == CANTOPEN:
        if (lack := _no_descriptor()) is not None:
            return not_opened(path, lack)
        return unfit(path, "cannot be opened; check that its directory exists and is writable", errno.EACCES)
    if primary in (CORRUPT, NOTADB):
        return unfit(
            path,
            "is not a SQLite database, or a damaged one; move it away (tokens go on from the clock) "
            "or name another file",
        )
    if busy(error):
        return unavailable(path)
    return StoreUnavailable(f"{path}: {error} (SQLite result {code})")


def _no_descriptor() -> OSError | None:
    """The error of the system if this process can open no file at all: SQLite does not say why it could
    not.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error if error.errno in (errno.EMFILE, errno.ENFILE) else None
    return None


def _code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)  # absent on errors Python's own layer raises
    return code
