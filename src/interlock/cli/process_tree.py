"""The processes below this one: found, signalled, and bound to it. Linux has the means, others a part of
them.

Orphans are adopted: when a child dies before its own children, those become ours instead of init's. So
everything that a command has started stays below its warden, also what put itself into another process
group or session, and none of it can hide when all must end.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

KILL_PERIOD_S = 0.005  # seconds: what forked while we killed its parent is met at the next turn

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36


def load_prctl() -> Callable[..., Any] | None:
    """prctl(2), looked up now: between fork and exec is no time to load a library.

    None where there is none.
    """
    try:
        from ctypes import CDLL

        prctl: Callable[..., Any] = CDLL(None).prctl
    except (ImportError, AttributeError, OSError, TypeError):
        return None
    return prctl


def adopt_orphans(prctl: Callable[..., Any] | None) -> None:
    """From now on orphans below us become our children."""
    if prctl is not None:
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def be_called(name: bytes, prctl: Callable[..., Any] | None) -> None:
    """Show up as `name` in ps and top."""
    if prctl is not None:
        prctl(PR_SET_NAME, name, 0, 0, 0)


def die_with(parent: int, prctl: Callable[..., Any] | None) -> None:
    """Be killed when our parent, the process `parent`, dies: be it this instant, or before we asked."""
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """All live processes below `root`, nearest first; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    try:
        numbers = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return []
    for number in numbers:
        children.setdefault(_parent(number), []).append(number)
    found = list(children.get(root, []))
    for process in found:
        found.extend(children.get(process, []))
    return found


def _parent(process: int) -> int:
    """Its parent; 0 if it has gone meanwhile, or is dead and waits only to be noticed."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            # The name in brackets may itself hold blanks and brackets: look behind the last one.
            state, parent, *_ = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return 0
    return 0 if state == b"Z" else int(parent)


def send(processes: list[int], number: int) -> None:
    """Signal each; one that has gone, or that is not ours to signal, keeps nobody from the others."""
    for process in processes:
        if process <= 0:  # whole groups: ours, or everybody
            raise ValueError(f"{process} is not the number of a process")
        try:
            os.kill(process, number)
        except OSError:
            pass


def kill_below(root: int, timeout: float) -> None:
    """Kill every process below `root`; return when none is left, or `timeout` seconds later."""
    until = time.monotonic() + timeout
    while (below := descendants(root)) and time.monotonic() < until:
        send(below, signal.SIGKILL)
        time.sleep(KILL_PERIOD_S)
