"""Idle names leave nothing behind: lapsed rows that no call touches any more are removed a slice at a time.

After a number of writes or seconds, one writer sweeps the next slice of the table, and the cursor goes round
like the hand of a clock. So the cost is bounded, and other writers need not maintain an index. If a slice has
many lapsed rows, the next one follows at once and is larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WRITES_PER_SLICE = 256  # between two slices
PERIOD_S = 10.0
FIRST_SLICE_ROWS = 256
MAX_SLICE_ROWS = 2048
START: tuple[str, int] = ("", 0)


class SweepCursor:
    """Where the next slice begins, and when it is due: after `most` writes, or after so many seconds."""

    def __init__(self, most: int = WRITES_PER_SLICE, seconds: float = PERIOD_S) -> None:
        self.most = most
        self.writes = (
            most  # since the last slice; the first write of a process sweeps: it may be the only one in days
        )
        self.due_at = 0.0
        self._seconds = seconds
        self._row: tuple[str, int] = START
        self._slice = FIRST_SLICE_ROWS

    def due(self, now: float) -> bool:
        """Count one write; whether it is the one that shall sweep."""
        self.writes += 1
        return self.writes > self.most or now >= self.due_at

    def begin(self, now: float) -> tuple[str, int, int]:
        """Put the slice after this one off; return the arguments of `steps.SWEEP` for this one."""
        self.writes, self.due_at = 0, now + self._seconds
        return *self._row, self._slice

    def swept(self, row: Sequence[Any]) -> None:
        """Go on after what `steps.SWEEP` has returned."""
        gone, resource, token = row
        self._row = START if resource is None else (resource, token)
        many = gone > self._slice // 4
        self._slice = min(MAX_SLICE_ROWS, self._slice * 2) if many else FIRST_SLICE_ROWS
        if many:
            self.writes = self.most
