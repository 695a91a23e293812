"""Which folders a lock file may lie below: those in which nobody can put another file in its place whom we
need not trust.

SQLite finds its files by name. A user who may write to a folder on the path can remove the lock file while it
is in use, put another folder or link in its place, or lay a journal beside it, which SQLite plays back. So
every folder on the path, from the root of the filesystem on and through every symbolic link, keeps these
rules:

- It belongs to us, to root or to the owner of the lock file.
- Its group may write to it only if the same group may write the lock file, or is one person's own group.
- Others may not write to it. Further up the path a sticky bit (as `/tmp` has) is enough, if the next entry of
  the path belongs to us or to root: then nobody else can replace that entry. In the folder of the lock file
  itself it is not enough, because anybody could still add a journal.

The folders are checked from the top down. So what was found about one stays true while the next one is looked
at: only users whom we trust could change it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from interlock.backends.sql.sqlite.file import errors
from interlock.errors import StoreUnfit

MAX_LINKS = 40  # symbolic links on one path, as on Linux


def check(path: str, file: os.stat_result | None) -> None:
    """Raise `StoreUnfit`, which names the folder and the remedy, unless every folder on an absolute path can
    be trusted.

    `file` is the lock file; None if it is still to be made, as are the folders that do not exist.
    """
    us = os.geteuid()
    owners = {0, us, os.stat("/").st_uid}  # the owner of the root folder can replace everything anyway
    if file is not None:
        owners.add(file.st_uid)
    for folder, entry, holds_file in _steps(path):
        found = os.lstat(folder)
        others, group = found.st_mode & stat.S_IWOTH, found.st_mode & stat.S_IWGRP
        if found.st_uid not in owners:
            raise _foreign(path, folder, found.st_uid)
        if (others or group) and found.st_mode & stat.S_ISVTX and not holds_file:
            if entry is not None and entry.st_uid not in (0, us):
                raise _foreign(path, _next(path, folder), entry.st_uid)
        elif others:
            raise _open_to_all(path, folder, found.st_mode)
        elif group and not may_write(found.st_gid, file):
            raise _open_to_group(path, folder, found)


def _steps(path: str) -> Iterator[tuple[str, os.stat_result | None, bool]]:
    """Yield each folder on the path, free of links; the entry in it that comes next; and whether that is
    the file itself.
    """
    folder, names, links = "/", _names(path), 0
    while names:
        name = names.pop(0)
        here = os.path.join(folder, name)
        entry = _entry(here)
        is_link = entry is not None and stat.S_ISLNK(entry.st_mode)
        if name != "..":
            yield folder, entry, not names and not is_link
        if entry is None:
            return
        if not is_link:
            folder = os.path.dirname(folder) if name == ".." else here
            continue
        if (links := links + 1) > MAX_LINKS:
            raise errors.unfit(path, "leads through too many symbolic links; name another file", errno.ELOOP)
        target = os.readlink(here)
        folder = "/" if os.path.isabs(target) else folder
        names = _names(target) + names


def _entry(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def may_write(group: int, file: os.stat_result | None) -> bool:
    """Whether everybody in the group may take the locks anyway, because it may write the file or is one
    person's own.
    """
    if group == 0:
        return True  # root's
    if file is not None and file.st_gid == group and file.st_mode & stat.S_IWGRP:
        return True
    return any(
        _is_own_group(group, user) for user in {os.geteuid(), os.geteuid() if file is None else file.st_uid}
    )


def _is_own_group(group: int, user: int) -> bool:
    """Whether the group is the user's alone, as many systems make one for each user: it has the same name
    and nobody else in it.
    """
    import grp  # here, not above: such folders are rare
    import pwd

    try:
        person, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    return (
        person.pw_gid == group and found.gr_name == person.pw_name and set(found.gr_mem) <= {person.pw_name}
    )


# ---- sentences ------------------------------------------------------------------------------------


def _foreign(path: str, folder: str, owner: int) -> StoreUnfit:
    return errors.unfit(
        path,
        f"cannot be trusted, because {folder} belongs to user {owner}, who can put another lock file in its "
        f"place; name a file in a directory of your own, or take that one over (chown {os.geteuid()} "
        f"{folder})",
        errno.EPERM,
    )


def _open_to_all(path: str, folder: str, mode: int) -> StoreUnfit:
    if mode & stat.S_ISVTX:
        remedy = (
            f"name a file in a directory of your own there, such as {_own(path, folder)}; interlock makes it"
        )
    else:
        remedy = f"take that right away (chmod o-w {folder}), or name a file in another directory"
    return errors.unfit(
        path,
        f"cannot be trusted, because everybody may put files into {folder} (mode {stat.S_IMODE(mode):04o}), "
        f"and so give one lock to two; {remedy}",
        errno.EPERM,
    )


def _open_to_group(path: str, folder: str, found: os.stat_result) -> StoreUnfit:
    group = found.st_gid
    return errors.unfit(
        path,
        f"cannot be trusted, because group {group} may put files into {folder} (mode "
        f"{stat.S_IMODE(found.st_mode):04o}), but may not write the lock file; take that right away (chmod "
        f"g-w {folder}), or share the lock file with that group (touch {path}; chgrp {group} {path}; chmod "
        f"660 {path})",
        errno.EPERM,
    )


def _own(path: str, folder: str) -> str:
    return os.path.join(folder, f"interlock-{os.geteuid()}", os.path.basename(path))


def _next(path: str, folder: str) -> str:
    """The entry of a folder that comes next on the path, as far as the path itself names it."""
    rest = path.removeprefix(folder.rstrip("/") + "/")
    return folder if rest == path else os.path.join(folder, rest.split("/")[0])
