"""A wait goes on while its server restarts, as the wait for a lock does."""

from __future__ import annotations

import math

from interlock._core import timing
from interlock._core.runtime import Runtime

LONGEST_OUTAGE_S = timing.PLACE_TTL_S
"""Seconds for which a wait asks a store that does not answer: a waiter for a lock has a place that long."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0


class Outage:
    """The time in which one wait cannot reach its store. A wait that has never reached it ends at once."""

    def __init__(self, runtime: Runtime, until: float = math.inf) -> None:
        self._runtime = runtime
        self._until = until
        self._began = -math.inf
        self._pause = FIRST_PAUSE_S

    def over(self) -> None:
        """Note that the store has answered."""
        self._began, self._pause = math.inf, FIRST_PAUSE_S

    async def endured(self) -> bool:
        """Pause, and return whether to ask again; False once the time of the wait, or ours, is up."""
        now = self._runtime.now()
        self._began = min(self._began, now)
        left = min(self._until, self._began + LONGEST_OUTAGE_S) - now
        if left <= 0:
            return False
        # Of many waiters, not all at the same time.
        await self._runtime.sleep(min(left, self._pause * (0.5 + self._runtime.random())))
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
        return True
