"""Whose lock file it is: which owners and modes are trusted.

A user who can write a lock file can let two processes hold one lock: by deleting rows, or by a trigger that deletes them. So
a file is used only if its owner has chosen who can write it, and if we have to trust its owner anyway:

- nobody but its owner and its group may write it;
- it belongs to us or to root; or to another user (an application whose file root uses, a colleague whose file is
  shared with our group), but not in a directory in which everybody may put files: there it could be a trap.

The same goes for the files that SQLite keeps beside it. It believes whatever stands in them.
"""

from __future__ import annotations

import errno
import os
import stat

from interlock.backends.sql.sqlite.file import errors

BESIDE = ("-wal", "-shm", "-journal")


def check(path: str) -> None:
    """Raise `StoreUnfit`, in one sentence, unless the lock file and those beside it can be trusted."""
    if os.name != "posix":
        return
    if os.path.islink(path):
        _check_owner(path, path, os.lstat(path))
    real = os.path.realpath(path)
    for suffix in ("", *BESIDE):
        try:
            found = os.lstat(real + suffix)
        except FileNotFoundError:
            continue
        _check_mode(path, real + suffix, found)
        _check_owner(path, real + suffix, found)


def _check_mode(path: str, file: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise errors.unfit(
            path, f"cannot be used, because {file} is not a regular file; remove that, or name another file"
        )
    if found.st_mode & stat.S_IWOTH:
        raise errors.unfit(
            path,
            f"cannot be trusted, because everybody may write {file} (mode {stat.S_IMODE(found.st_mode):04o}) and so give "
            "one lock to two; take that right away (chmod o-w), or name another file",
            errno.EPERM,
        )


def _check_owner(path: str, file: str, found: os.stat_result) -> None:
    if found.st_uid in (0, os.geteuid()):
        return
    directory = os.path.dirname(file)
    if os.stat(directory).st_mode & stat.S_IWOTH:
        raise errors.unfit(
            path,
            f"cannot be trusted, because {file} belongs to user {found.st_uid} and lies in a directory in which everybody "
            f"may put files; name a file in another directory",
            errno.EPERM,
        )
