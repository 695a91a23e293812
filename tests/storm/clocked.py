"""A redis-server whose wall clock can be moved while it runs, by a preloaded library of ours.

The library (clockshim.c) adds an offset to what the process reads of the wall clock. The offset stands in a file
that the process has mapped: two 64-bit numbers of nanoseconds, for the wall clock and the monotonic one; writing the
first moves the clock at once. Redis keeps the wall clock it read last for a command, so the next one sees the jump.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.redis.server import Server

SOURCE = Path(__file__).with_name("clockshim.c")


@cache
def shim() -> Path:
    """The compiled library; skips the test where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler (cc) for the library that moves a server's clock")
    made = Path(mkdtemp(prefix="interlock-clock-"), "clockshim.so")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(made), str(SOURCE)], check=True)
    return made


class ClockedServer(Server):
    """One redis-server that starts with the machine's clock."""

    def __init__(self, *options: str) -> None:
        super().__init__(*options)
        self._offset = Path(self.folder, "clock")
        self.offset = 0.0
        self._write()

    def start(self) -> None:
        before = {name: os.environ.get(name) for name in ("LD_PRELOAD", "CLOCKSHIM_FILE")}
        os.environ.update(LD_PRELOAD=str(shim()), CLOCKSHIM_FILE=str(self._offset))
        try:
            super().start()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def jump(self, seconds: float) -> None:
        """Move its wall clock, for good."""
        self.offset += seconds
        self._write()

    def _write(self) -> None:
        with self._offset.open(
            "r+b" if self._offset.exists() else "wb"
        ) as file:  # the same file: it is mapped
            file.write(struct.pack("qq", int(self.offset * 1e9), 0))

    def empty(self) -> None:
        """Kill it, and start it again without anything it knew."""
        self.kill()
        for name in ("appendonlydir", "dump.rdb"):
            path = Path(self.folder, name)
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
        self.start()
