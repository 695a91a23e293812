"""A server's process: a free port and a folder of its own; it can be broken, and ends with its harness."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import Any, Self
from unittest import SkipTest

from interlock.testing.patience import PATIENCE, until

PR_SET_PDEATHSIG = 1
SETPRIV = shutil.which("setpriv")
PORTS = range(10_240, 32_000)  # below those that systems give to connections


class ServerMissing(AssertionError):
    """A program that is not installed, and the package of Debian in which it comes."""

    def __init__(self, program: str, package: str) -> None:
        super().__init__(f"{program} is not installed: apt-get install {package}")
        self.program, self.package = program, package


class FaultUnavailable(SkipTest):
    """A fault that cannot be made on this machine, and why. Test runners skip the test that wanted it."""


def find_program(name: str, package: str, *patterns: str) -> str:
    """Return the path of a program, also from where Debian puts those of root; or raise `ServerMissing`."""
    path = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin"
    found = [
        shutil.which(name, path=path),
        *(match for pattern in patterns for match in sorted(glob(pattern), reverse=True)),
    ]
    for program in found:
        if program:
            return program
    raise ServerMissing(name, package)


_dice = random.SystemRandom()  # a test may have seeded the usual one


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now.

    Not one that the system would choose: those it gives to connections as well, so the port could be taken
    before the server is up.
    """
    while True:
        port = _dice.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def die_with_parent() -> None:
    """In the child: a killed test run must not leave servers behind for the next one to talk to."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start_program(argv: Sequence[str], **settings: Any) -> subprocess.Popen[Any]:
    """Start a program that ends with this process, also if this process is killed.

    With `preexec_fn`, Python copies this whole process first, and thousands of starts made that a part of
    the run's cost. So setpriv does it.
    """
    if SETPRIV:
        return subprocess.Popen([SETPRIV, "--pdeathsig", "KILL", *argv], **settings)
    if os.name == "nt":
        return subprocess.Popen(argv, **settings)
    return subprocess.Popen(argv, preexec_fn=die_with_parent, **settings)


def freeze(*pids: int) -> None:
    """Stop processes, and return when all their threads have stopped; a busy machine needs a while."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: all(_stopped(pid) for pid in pids))


def thaw(*pids: int) -> None:
    """Let processes go on; the first of them may end others, and does not wait for us."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _stopped(pid: int) -> bool:
    """Whether every thread of a process has stopped, or the process has ended."""
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = thread.read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue  # it has ended
        if state not in "TtZX":
            return False
    return True


class ServerProcess:
    """One server; `kill`, `restart` and `freeze` are for those who break it."""

    port: int
    folder: str
    _process: subprocess.Popen[Any] | None = None

    def start(self) -> None:
        """Start the server, and return when it serves."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def freeze(self) -> None:
        """From now on it accepts connections and answers nothing."""
        freeze(self.pid)

    def thaw(self) -> None:
        thaw(self.pid)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def close(self) -> None:
        """End it, and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _await_ready(self, ready: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Wait until it serves; AssertionError with the end of its log if it ends instead."""

        def settled() -> bool:
            return not self.running or ready()

        until(settled, patience, pause=0.005)
        assert self.running, f"{type(self).__name__} on port {self.port} ended at once\n{self._log()}"

    def _log(self) -> str:
        log = Path(self.folder, "log")
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""
