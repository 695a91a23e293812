"""The clocks of a machine. Lapses are counted on the boot clock, which all processes share and nobody can
set.

The boot clock is the same in all processes, runs during suspend, and does not move when somebody sets
the wall clock. The wall clock only gives tokens their floor. After a restart of the machine the boot
clock begins again. Claims from before are recognised by the name of their boot; where boots have no
names, such a claim lives for one ttl at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from interlock._support import clock

SAME_BOOT_S = 10.0  # seconds: by how much the computed instant of one boot may wander

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NAMESPACE = "/proc/self/timens_offsets"


def _shift() -> float:
    """How far this process's boot clock is from the machine's: a time namespace moves it.

    Two processes in different ones would take each other's claims for lapsed.
    """
    try:
        with open(_NAMESPACE, encoding="ascii") as file:
            for line in file:
                name, seconds, nanoseconds = line.split()
                if name in ("boottime", "7"):
                    return int(seconds) + int(nanoseconds) / 1e9
    except (OSError, ValueError):
        pass
    return 0.0


def _boot_clock() -> Callable[[], float]:
    shift = _shift()
    if shift:
        return lambda: time.clock_gettime(time.CLOCK_BOOTTIME) - shift
    return clock.now


def _boot_id() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


class Clock:
    """What time it is for a store; a test may bring its own."""

    def __init__(
        self,
        now: Callable[[], float] | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
        boot: str | None = None,
    ) -> None:
        self.now = now or _boot_clock()
        self.wall_ns = wall_ns
        self.boot = _boot_id() if boot is None else boot

    def booted(self) -> float:
        """The wall clock's reading when the boot clock was 0."""
        return self.wall_ns() / 1e9 - self.now()

    def restarted(self, boot: str, booted: float) -> bool:
        """Whether the machine has started anew since `boot`, which began at `booted`; never a guess.

        Names alone do not tell: some containers are given a boot id of their own while they share the
        kernel, and taking their neighbours' claims for dead would give two holders. A reboot also moves
        the instant of the boot by at least the time the machine had been up.
        """
        return bool(boot and self.boot) and boot != self.boot and abs(booted - self.booted()) > SAME_BOOT_S
