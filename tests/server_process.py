"""What every server that a test starts needs: a free port, and an end with the test run."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.patience import until

PR_SET_PDEATHSIG = 1
SETPRIV = shutil.which("setpriv")
PORTS = range(10_240, 32_000)  # below those that systems give to connections

_dice = random.SystemRandom()  # a test may have seeded the usual one


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses now.

    Not one that the system would choose: those it gives to connections as well, so the port could be taken before the server is up.
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

    With `preexec_fn`, Python copies this whole process first, and thousands of starts made that a part of the run's cost. So setpriv does it.
    """
    if SETPRIV:
        return subprocess.Popen([SETPRIV, "--pdeathsig", "KILL", *argv], **settings)
    return subprocess.Popen(argv, preexec_fn=die_with_parent, **settings)


def freeze(*pids: int) -> None:
    """Stop processes, and return when all their threads have stopped: on a busy machine that takes a while."""
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
