"""Whether this is a full run, with the soaks and searches that take minutes: `python3 dev.py test --full`.

What runs of the second face (tasks) on the four stores that came last: the two faces run the same algorithms, and differ in how the servers
are reached. So a usual run takes the suites that depend on that, and a full one takes all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

FULL = bool(os.environ.get("INTERLOCK_FULL"))

REACHED = {
    "Claims",
    "Renewals",
    "Wakeups",
    "Operators",
    "Leases",
    "LockAsMutex",
    "Cancellation",
    "Conditions",
}

T = TypeVar("T")


def second_face(suites: Mapping[str, T]) -> dict[str, T]:
    """The suites for tasks that run now."""
    return {
        name: suite
        for name, suite in suites.items()
        if name.endswith("Async") and (FULL or name.removeprefix("Test").removesuffix("Async") in REACHED)
    }
