"""A file that is replaced as a whole, and only by a holder whose token is not too low.

    with client.lock("report") as lease:
        guards.file.write("report.csv", data, lease)

Beside the file stands a small one, `.report.csv.fence`, with the resource and the highest token that was accepted. Whoever writes
locks it, compares, notes its own token, and puts the new file into the place of the old one. A reader sees the old file or the new
one, and never a part. The files must be on a local disk, or on a network filesystem with working locks.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import mkstemp
from typing import Any

from interlock._core.lease import Lease
from interlock.errors import StaleToken, StoreUnavailable, StoreUnfit, Unsupported
from interlock.guards.presented import Presented, presented

__all__ = ["read", "write"]

NAP = 0.005  # seconds between two looks at a lock that another process has


def write(
    path: str | os.PathLike[str],
    data: bytes | str,
    lease: Lease | str,
    token: int | None = None,
    *,
    timeout: float = 10.0,
) -> None:
    """Replace a file by `data`, on disk when this returns; raise `StaleToken`, and change nothing, if the token is too low.

    Text is written as UTF-8. A file keeps its mode. `StoreUnavailable` if another process has been writing for `timeout`
    seconds. If what you write depends on what was there, use `read` of this module to read it, with the same lease.
    """
    shown = presented(lease, token)
    target = os.path.realpath(path)  # a symbolic link stays one
    written = _written_beside(target, data.encode() if isinstance(data, str) else data)
    try:
        with _fence(target, shown, timeout):
            os.replace(written, target)
            _flush(os.path.dirname(target))
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(written)
        raise


def read(
    path: str | os.PathLike[str], lease: Lease | str, token: int | None = None, *, timeout: float = 10.0
) -> bytes:
    """Show the token, and return the bytes of the file: from here on every earlier holder is refused.

    A holder that reads in another way and writes later may overwrite what an earlier one has written in between.
    """
    target = os.path.realpath(path)
    with _fence(target, presented(lease, token), timeout), open(target, "rb") as file:
        return file.read()


@contextmanager
def _fence(target: str, shown: Presented, timeout: float) -> Iterator[None]:
    """Accept the token, and keep every other process out until the block ends."""
    directory, name = os.path.split(target)
    beside = os.open(
        os.path.join(directory, f".{name}.fence"), os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666
    )
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


def _accepted(beside: int, target: str, shown: Presented) -> int:
    """Return the highest token that was accepted; 0 if there was none."""
    text = os.pread(beside, 65536, 0) if hasattr(os, "pread") else _whole(beside)
    if not text:
        return 0
    try:
        record: Any = json.loads(text.split(b"\n", 1)[0])
        resource, token = record["resource"], int(record["token"])
    except (ValueError, KeyError, TypeError):
        raise StoreUnfit(
            f"{target}: the file beside it with its token is damaged; nothing was written"
        ) from None
    if resource != shown.resource:
        raise Unsupported(
            f"{target}: it is guarded by {resource}, and the tokens of {shown.resource} cannot be compared with those; "
            "use the same lock for one file"
        )
    return token


def _note(beside: int, shown: Presented) -> None:
    """Write the token down, before the file is replaced: a crash in between refuses earlier holders all the same.

    One write of a line that is never shorter than the one before, so that it is there as a whole or not at all.
    """
    line = json.dumps({"token": f"{shown.token:019d}", "resource": shown.resource}).encode() + b"\n"
    os.lseek(beside, 0, os.SEEK_SET)
    os.write(beside, line)
    os.fsync(beside)


def _whole(beside: int) -> bytes:
    os.lseek(beside, 0, os.SEEK_SET)
    return os.read(beside, 65536)


def _written_beside(target: str, data: bytes) -> str:
    """Write the data to a file in the same directory, and return its path."""
    directory, name = os.path.split(target)
    descriptor, path = mkstemp(prefix=f".{name}.", suffix=".new", dir=directory)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.chmod(path, _mode(target))
    except BaseException:
        os.unlink(path)
        raise
    return path


def _mode(target: str) -> int:
    """Return the mode of the file, or the one that a new file gets."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(os.stat(target).st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


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
                f"{target}: another process has been reading or writing it under its guard for {timeout:g} s"
            )
        time.sleep(NAP)


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
