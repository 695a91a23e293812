"""The boot clock, on which leases are counted: monotonic, and running during suspend where the system has
such a clock.

A laptop or a paused virtual machine must not wake up believing that its leases are fresh.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial


def boot_clock() -> Callable[[], float]:
    """The system's best clock for this: seconds since the machine started."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):  # Linux; macOS, where it counts sleep too
        number = getattr(time, name, None)
        if number is not None:
            return partial(time.clock_gettime, number)
    return time.monotonic


now: Callable[[], float] = boot_clock()
"""Seconds since some fixed instant, the same in every process of this machine since it started."""
