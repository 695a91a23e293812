"""A terminal with somebody at it: a pseudo terminal whose session a program leads."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

from tests.patience import PATIENCE

TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A program on a terminal of its own; what it prints is kept, what is typed goes to whoever is in front."""

    def __init__(
        self, argv: list[str], env: dict[str, str], cwd: str, *, columns: int = 80, rows: int = 24
    ) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *argv],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        os.close(slave)
        self.shown = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def _ready(self, timeout: float) -> bool:
        """By poll: select(2) knows no descriptor above 1,023, and a process of many tests may have more."""
        poll = select.poll()
        poll.register(self._master, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def read(self, timeout: float) -> bool:
        """Take in what has been printed; False when the last program on the terminal has gone."""
        if self._ready(timeout):
            try:
                came = os.read(self._master, 65536)
            except OSError:
                return False
            self.shown += came.decode(errors="replace")
            return bool(came)
        return True

    def expect(self, text: str, count: int = 1) -> None:
        """Wait until the text was printed so often."""
        end = time.monotonic() + PATIENCE
        while self.shown.count(text) < count:
            assert time.monotonic() < end, f"{text!r} was not shown in {self.shown!r}"
            assert self.read(0.1) or self.shown.count(text) >= count, self.shown

    def finish(self) -> int:
        """The exit code, once the program has ended and all it printed was read."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            self.read(0.05)
            assert time.monotonic() < end, self.shown
        while self._ready(0) and self.read(0):
            pass
        return self.process.returncode

    def close(self) -> None:
        """Hang up; the program has some time to end. Closing twice is harmless."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
