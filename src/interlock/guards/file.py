"""A file that is replaced as a whole, and only by a holder whose token is not too low.

    with client.lock("report") as lease:
        guards.file.write("report.csv", data, lease)

Beside the file stands a small one, `.report.csv.fence`, with the resource and the highest token that was
accepted. Whoever writes locks it, compares, notes its own token, and puts the new file into the place of the
old one. A reader sees the old file or the new one, and never a part. The files must be on a local disk, or on
a network filesystem with working locks.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from interlock._core.lease import Lease
from interlock._core.presented import Presented, presented
from interlock._support import standard_streams
from interlock._support.wording import duration
from interlock.errors import StaleToken, StoreUnavailable, StoreUnfit, Unsupported

__all__ = ["read", "write"]

CLOSED_BY_EXEC: int = getattr(os, "O_CLOEXEC", 0)
# A FIFO or a symbolic link may have been put there by somebody else. Opening neither waits nor follows.
AS_IT_IS: int = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | CLOSED_BY_EXEC
MAX_NAME_BYTES = 255  # bytes of a file's name
PAUSE_PER_SEARCH = 100.0  # times as long as the search for leftovers took, before the next one
MAX_FILES_REMEMBERED = 1000
DEAD_S = 86400.0  # age of a leftover on Windows, where a writer does not keep its file locked
NAP_S = 0.005  # seconds between two looks at a lock that another process has


def write(
    path: str | os.PathLike[str],
    data: bytes | str,
    lease: Lease | str,
    token: int | None = None,
    *,
    timeout: float = 10.0,
) -> None:
    """Replace a file by `data`, on disk when this returns; raise `StaleToken`, and change nothing, if the
    token is too low.

    Text is written as UTF-8. A file keeps its mode, and its owner and group where the system allows it, as it
    allows root. `StoreUnfit` if the file, or the one with its token, is a folder, a FIFO or the like.
    `StoreUnavailable` if another process has been writing for `timeout` seconds. If what you write depends on
    what was there, use `read` of this module to read it, with the same lease.
    """
    shown = presented(lease, token)
    target = os.path.realpath(path)  # a symbolic link stays one
    _remove_leftovers(target)
    written, descriptor = _written_beside(target, data.encode() if isinstance(data, str) else data)
    try:
        with _fence(target, shown, timeout, os.lstat(written)):
            _replace(written, target)
            _flush(os.path.dirname(target))
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(written)
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _replace(written: str, target: str) -> None:
    try:
        os.replace(written, target)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        raise StoreUnfit(
            f"{target}: nothing can be put in its place, because it is mounted by itself; mount the "
            "folder that "
            "it lies in"
        ) from error


def read(
    path: str | os.PathLike[str], lease: Lease | str, token: int | None = None, *, timeout: float = 10.0
) -> bytes:
    """Show the token, and return the bytes of the file: from here on every earlier holder is refused.

    A holder that reads in another way and writes later may overwrite what an earlier one has written in
    between.
    """
    target = os.path.realpath(path)
    with _fence(target, presented(lease, token), timeout, _kept(target)):
        with open(_opened(target, os.O_RDONLY | getattr(os, "O_BINARY", 0)), "rb") as file:
            return file.read()


@contextmanager
def _fence(target: str, shown: Presented, timeout: float, kept: os.stat_result | None) -> Iterator[None]:
    """Accept the token, and keep every other process out until the block ends; `kept` is the state of the
    file, if it exists.
    """
    directory, name = os.path.split(target)
    beside = _opened_beside(os.path.join(directory, _name_beside(name, ".fence")), kept)
    try:
        _lock(beside, time.monotonic() + timeout, target, timeout)
        accepted = _accepted(beside, target, shown)
        if accepted > shown.token:
            raise StaleToken(shown.resource, shown.token, accepted)
        if accepted < shown.token:
            _note(beside, shown)
        yield
    finally:
        os.close(beside)  # and the lock ends


def _name_beside(name: str, suffix: str) -> str:
    """Return the name of a file of ours beside the one with this name; a long name is replaced by its
    digest.
    """
    beside = f".{name}{suffix}"
    if len(os.fsencode(beside)) <= MAX_NAME_BYTES:
        return beside
    from hashlib import sha256  # here, not above: few names are so long

    return f".{sha256(os.fsencode(name)).hexdigest()}{suffix}"


def _opened(path: str, flags: int) -> int:
    """Open a regular file that is there; `StoreUnfit` if it is anything else."""
    try:
        descriptor = os.open(path, flags | AS_IT_IS)
    except IsADirectoryError:
        raise _odd(path) from None
    except OSError as error:
        # ELOOP on most systems; FreeBSD says EMLINK.
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise StoreUnfit(
                f"{path}: it is a symbolic link; see who has put it there, and remove it"
            ) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _odd(path)
    return descriptor


def _odd(path: str) -> StoreUnfit:
    return StoreUnfit(f"{path}: it is not a regular file; see who has put it there, and remove it")


def _opened_beside(path: str, kept: os.stat_result | None) -> int:
    """Open the file with the token; make it, if there is none, for those who may write the guarded file, and
    nobody else.

    A user who may only read the guarded file gets no right here: whoever can open a file can lock it, and
    keep writers out.
    """
    standard_streams.occupy()
    mode = None if kept is None else kept.st_mode
    wanted = 0o600 | (0o022 if mode is None else mode & 0o022)
    while True:
        try:
            return _opened(path, os.O_RDWR)
        except FileNotFoundError:
            pass
        try:
            made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | CLOSED_BY_EXEC, wanted)
        except FileExistsError:
            continue  # another process was quicker
        if sys.platform != "win32":
            if kept is not None:
                _give(made, kept)  # made by root, it would keep out the owner of the file
            # If there is no file yet, the umask decides who may write; otherwise that file does, whatever the
            # umask is.
            writers = (os.fstat(made).st_mode if mode is None else wanted) & 0o022
            os.fchmod(made, 0o600 | writers | writers << 1)  # who may write may read
        return made


def _accepted(beside: int, target: str, shown: Presented) -> int:
    """Return the highest token that was accepted; 0 if there was none."""
    text = os.pread(beside, 65536, 0) if hasattr(os, "pread") else _whole(beside)
    if not text:
        return 0
    try:
        record: Any = json.loads(text.split(b"\n", 1)[0])
        resource, token = record["resource"], int(record["token"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise StoreUnfit(
            f"{target}: the file beside it with its token is damaged; nothing was written"
        ) from None
    if resource != shown.resource:
        raise Unsupported(
            f"{target}: it is guarded by {resource}, and the tokens of {shown.resource} cannot be compared "
            "with those; use the same lock for one file"
        )
    return token


def _note(beside: int, shown: Presented) -> None:
    """Write the token down, before the file is replaced: a crash in between refuses earlier holders all the
    same.

    One write of a line that is never shorter than the one before, so that it is there as a whole or not at
    all.
    """
    line = json.dumps({"token": f"{shown.token:019d}", "resource": shown.resource}).encode() + b"\n"
    os.lseek(beside, 0, os.SEEK_SET)
    os.write(beside, line)
    os.fsync(beside)


def _whole(beside: int) -> bytes:
    os.lseek(beside, 0, os.SEEK_SET)
    return os.read(beside, 65536)


def _written_beside(target: str, data: bytes) -> tuple[str, int]:
    """Write the data to a file in the same directory; return its path, and a descriptor with which it stays
    locked, so that nobody takes it for a leftover (-1 on Windows, which replaces no open file).
    """
    kept = _kept(target)
    path, descriptor = _new_beside(target, 0o666 if kept is None else 0o600)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
            file.flush()
            # By the descriptor: the owner of the folder could put another file under this name.
            if kept is not None and sys.platform != "win32":
                _give(descriptor, kept)
                os.fchmod(descriptor, stat.S_IMODE(kept.st_mode))
            os.fsync(descriptor)
        if sys.platform == "win32":
            os.close(descriptor)
            descriptor = -1
            if kept is not None:
                os.chmod(path, stat.S_IMODE(kept.st_mode))
    except BaseException:
        if descriptor >= 0:
            os.close(descriptor)
        os.unlink(path)
        raise
    return path, descriptor


def _new_beside(target: str, mode: int) -> tuple[str, int]:
    """Make a file beside the target that nobody else has open, and lock it."""
    directory, name = os.path.split(target)
    # The system itself takes the umask off the mode of a new file. A program can learn its umask only by
    # changing it, for every thread, and a file that another thread makes at that moment could be written by
    # everybody.
    new = os.O_RDWR | os.O_CREAT | os.O_EXCL | CLOSED_BY_EXEC | getattr(os, "O_BINARY", 0)
    while True:
        path = os.path.join(directory, _name_beside(name, f".{os.urandom(8).hex()}.new"))
        descriptor = os.open(path, new, mode)
        try:
            if sys.platform == "win32" or (_take(descriptor) and os.fstat(descriptor).st_nlink):
                return path, descriptor
        except BaseException:
            os.close(descriptor)
            os.unlink(path)
            raise
        # Another writer has taken it for a leftover before it was locked, and removes it.
        os.close(descriptor)


_look_again: dict[str, float] = {}
"""By folder: when it may be searched for leftovers again, so that a large one costs little."""


def _remove_leftovers(target: str) -> None:
    """Remove what writers have left that were killed: their locks are gone."""
    directory, name = os.path.split(target)
    began = time.monotonic()
    if began < _look_again.get(target, 0.0):
        return
    digits = "[0-9a-f]{16}"
    leftover = re.compile(
        re.escape(_name_beside(name, f".{'?' * 16}.new")).replace(re.escape("?") * 16, digits)
    )
    with suppress(OSError):  # of a folder that cannot be read, the write may say more
        with os.scandir(directory) as found:
            for path in [entry.path for entry in found if leftover.fullmatch(entry.name)]:
                _remove_if_dead(path)
    now = time.monotonic()
    if len(_look_again) >= MAX_FILES_REMEMBERED:
        _look_again.clear()
    _look_again[target] = now + PAUSE_PER_SEARCH * (now - began)


def _remove_if_dead(path: str) -> None:
    with suppress(OSError, StoreUnfit):  # removed meanwhile, or put there by somebody else
        if sys.platform == "win32":
            if time.time() - os.lstat(path).st_mtime > DEAD_S:
                os.unlink(path)
            return
        descriptor = _opened(path, os.O_RDWR)
        try:
            if _take(descriptor):
                os.unlink(path)
        finally:
            os.close(descriptor)


def _kept(target: str) -> os.stat_result | None:
    """Return the owner and the mode of the file, which a new one keeps; None if there is none yet."""
    try:
        found = os.lstat(target)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise _odd(target)
    return found


if sys.platform != "win32":

    def _give(descriptor: int, kept: os.stat_result) -> None:
        """Give a new file to the owner and group of the old one, as far as the system allows: root may,
        others have groups.
        """
        with suppress(OSError):
            os.fchown(descriptor, kept.st_uid if os.geteuid() == 0 else -1, kept.st_gid)


def _flush(directory: str) -> None:
    """Write the new name to the disk, where the system can."""
    if sys.platform != "win32":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _lock(beside: int, until: float, target: str, timeout: float) -> None:
    while not _take(beside):
        if time.monotonic() >= until:
            raise StoreUnavailable(
                f"{target}: another process has been reading or writing it under its guard for "
                f"{duration(timeout)}"
            )
        time.sleep(NAP_S)


if sys.platform == "win32":

    def _take(beside: int) -> bool:
        import msvcrt

        os.lseek(beside, 1 << 30, os.SEEK_SET)  # beyond the text, which others may read
        try:
            msvcrt.locking(beside, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def _take(beside: int) -> bool:
        import fcntl

        try:
            fcntl.flock(beside, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
