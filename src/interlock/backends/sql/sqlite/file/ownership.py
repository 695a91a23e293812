"""Whose lock file it is: which owners and modes are trusted.

A user who can write a lock file can let two processes hold one lock: by deleting rows, or by a trigger that
deletes them. One who can only read it can stop all locking, because SQLite's locks are locks on bytes of its
files, and a reader may lock them. So a file is used only if its owner has chosen who can read and write it,
and if we have to trust its owner anyway:

- nobody but its owner may read or write it, or its group as well, if that may do both;
- nobody else can replace it, or lay files beside it: see `folders`. So it belongs to us, to root, or to
  another user in whose folder we have named it: an application whose file root uses, a colleague whose file
  is shared with our group.

The same goes for the files beside it: SQLite believes whatever stands in its own, and locks on the one for
commands tell who lives.
"""

from __future__ import annotations

import errno
import os
import stat

from interlock.backends.sql.sqlite.file import errors, folders
from interlock.errors import StoreUnfit

BESIDE = ("-wal", "-shm", "-journal", "-run")


def check(path: str, *, readers: bool = False) -> None:
    """Raise `StoreUnfit`, in one sentence, unless the lock file, those beside it and its folders can be
    trusted.

    With `readers`, also those who can only read count. That is for a file that is known to be ours: nobody
    should change the mode of another program's file because of us.
    """
    if os.name != "posix":
        return
    try:
        _check(path, readers)
    except PermissionError as error:
        raise _not_entered(path, error) from error


def _check(path: str, readers: bool) -> None:
    real = os.path.realpath(path)
    found = {suffix: entry for suffix in ("", *BESIDE) if (entry := _entry(real + suffix)) is not None}
    folders.check(path, found.get(""))
    for suffix, entry in found.items():
        _check_writers(path, real + suffix, entry)
        if readers:
            _check_readers(path, real + suffix, entry)


def _entry(file: str) -> os.stat_result | None:
    try:
        return os.lstat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _check_writers(path: str, file: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise errors.unfit(
            path, f"cannot be used, because {file} is not a regular file; remove that, or name another file"
        )
    if found.st_mode & stat.S_IWOTH:
        raise errors.unfit(
            path,
            f"cannot be trusted, because everybody may write {file} ({_mode(found)}) and so give "
            f"one lock to two; take that right away (chmod o-rw {file}), or name another file",
            errno.EPERM,
        )


def _check_readers(path: str, file: str, found: os.stat_result) -> None:
    if found.st_mode & stat.S_IROTH:
        raise errors.unfit(
            path,
            f"cannot be used, because everybody may read {file} ({_mode(found)}), and a reader can lock it "
            f"and so stop all locking; take that right away (chmod o-r {file}), or name another file",
            errno.EPERM,
        )
    if found.st_mode & stat.S_IRGRP and not folders.may_write(found.st_gid, found):
        raise errors.unfit(
            path,
            f"cannot be used, because group {found.st_gid} may read {file} ({_mode(found)}) but not write "
            f"it, and a reader can lock it and so stop all locking; take that right away (chmod g-r {file}), "
            f"or share the locks with that group (chmod g+w {file})",
            errno.EPERM,
        )


def _not_entered(path: str, error: PermissionError) -> StoreUnfit:
    """The error for a file below a folder that we may not enter: nobody can tell whether it exists."""
    folder = os.path.dirname(os.fsdecode(error.filename or path))
    while folder != (above := os.path.dirname(folder)):
        try:
            os.lstat(folder)
            break
        except PermissionError:
            folder = above
    return errors.unfit(
        path,
        f"cannot be used, because user {os.geteuid()} may not enter {folder}; ask its owner for the right to "
        "enter it, or name another file",
        errno.EACCES,
    )


def _mode(found: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(found.st_mode):04o}"
