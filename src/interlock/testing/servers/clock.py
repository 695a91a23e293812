"""A redis-server whose wall clock can be moved while it runs, by a preloaded library of ours.

The library (clockshim.c) adds an offset to what the process reads of the wall clock. The offset stands in a
file that the process has mapped: two 64-bit numbers of nanoseconds, for the wall clock and the monotonic
one; writing the first moves the clock at once. Redis keeps the wall clock it read last for a command, so
the next one sees the jump.
"""

from __future__ import annotations

import atexit
import os
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from interlock.testing.servers.process import FaultUnavailable
from interlock.testing.servers.redis import Server

TICK_S = 0.005  # between two moves of a clock that runs fast
SOURCE = Path(__file__).with_name("clockshim.c")


@cache
def shim() -> Path:
    """Return the path of the compiled library; raise `FaultUnavailable` if there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FaultUnavailable(
            "needs a C compiler for the library that moves a server's clock: apt-get install gcc libc6-dev"
        )
    made = Path(mkdtemp(prefix="interlock-clock-"), "clockshim.so")
    atexit.register(shutil.rmtree, made.parent, ignore_errors=True)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(made), str(SOURCE)], check=True)
    return made


def clocked(environment: dict[str, str], file: Path, seconds: float) -> dict[str, str]:
    """The environment of a process whose wall clock is `seconds` ahead; `file` moves it while it runs."""
    set_offset(file, seconds)
    return {**environment, "LD_PRELOAD": str(shim()), "CLOCKSHIM_FILE": str(file)}


def set_offset(file: Path, seconds: float) -> None:
    """Move the wall clock of the processes that have mapped this file."""
    with file.open("r+b" if file.exists() else "wb") as offsets:  # the same file: it is mapped
        offsets.write(struct.pack("qq", int(seconds * 1e9), 0))


class MovableClock(Server):
    """Mixed into a redis-server of any kind: it starts with the machine's clock."""

    offset = 0.0

    def start(self) -> None:
        before = dict(os.environ)
        os.environ.update(clocked(before, self._file, self.offset))
        try:
            super().start()
        finally:
            for name in ("LD_PRELOAD", "CLOCKSHIM_FILE"):
                del os.environ[name]
            os.environ.update(before)

    @property
    def _file(self) -> Path:
        return Path(self.folder, "clock")

    def jump(self, seconds: float) -> None:
        """Move its wall clock, for good."""
        self.offset += seconds
        set_offset(self._file, self.offset)

    @contextmanager
    def running_fast(self, rate: float) -> Iterator[None]:
        """While this lasts, its wall clock gains so many seconds in each."""
        over = threading.Event()

        def run() -> None:
            began, before = time.monotonic(), self.offset
            while not over.wait(TICK_S):
                self.jump(before + rate * (time.monotonic() - began) - self.offset)

        clockwork = threading.Thread(target=run, daemon=True)
        clockwork.start()
        try:
            yield
        finally:
            over.set()
            clockwork.join()


class ClockedServer(MovableClock):
    """One redis-server whose clock can be moved."""

    def empty(self) -> None:
        """Kill it, and start it again without anything it knew."""
        self.kill()
        for name in ("appendonlydir", "dump.rdb"):
            path = Path(self.folder, name)
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
        self.start()
