"""A disk that is small enough to be filled."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interlock.testing.servers.process import FaultUnavailable


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """Yield the folder of a new disk of this size (`24m`); raise `FaultUnavailable` unless root asks for
    it.
    """
    folder = Path(tempfile.mkdtemp(prefix="interlock-disk-"))
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    try:
        if done.returncode:
            raise FaultUnavailable("only root can make a small disk")
        yield folder
    finally:
        if not done.returncode:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Fill the disk for as long as the block lasts."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 65536):
            pass
    yield
    filler.unlink()
