"""Waiting for facts: how long a test or a harness waits before it calls a fact missing.

Long enough for a machine with a lot of other work. A fact that comes ends the wait at once, so patience costs
nothing but the time of a test that fails. `interlock.testing.lag` checks what is promised to come *soon*.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = float(os.environ.get("INTERLOCK_PATIENCE", 60))
"""Seconds."""


def until(fact: Callable[[], T], patience: float = PATIENCE, pause: float = 0.002) -> T:
    """Return what `fact` answers once that is true; AssertionError if it does not come true in time."""
    end = time.monotonic() + patience
    while not (found := fact()):
        assert time.monotonic() < end, f"not so within {patience:g} s: {getattr(fact, '__qualname__', fact)}"
        time.sleep(pause)
    return found
