"""Idle names leave nothing behind: lapsed rows that no call touches any more are removed a slice at a time.

After a number of writes or seconds, one writer sweeps the next slice of the table, and the cursor goes round like the hand of
a clock. So the cost is bounded, and other writers need not maintain an index. If a slice has many lapsed rows, the next one
follows at once and is larger.
"""

from __future__ import annotations

from interlock.backends.sql.sqlite.tables.lapse import SLACK
from interlock.backends.sql.sqlite.tables.registers import REMEMBERED
from interlock.backends.sql.sqlite.tables.statements import SWEEP
from interlock.backends.sql.sqlite.tables.transaction import Transaction

WRITES = 64  # between two slices
SECONDS = 2.0
SLICE = 256
LARGEST_SLICE = 2048
START: tuple[str, int] = ("", 0)
END: tuple[bytes, int] = (b"", 0)  # SQLite orders every blob after every text


class SweepCursor:
    """Where the next slice begins, and when it is due."""

    def __init__(self) -> None:
        self._row = START
        self._slice = SLICE
        self.most = WRITES
        self.writes = (
            WRITES  # since the last slice; the first write of a process pays: it may be the only one in days
        )
        self.due_at = 0.0

    def due(self, now: float) -> bool:
        """Count one write; whether it is the one that shall sweep."""
        self.writes += 1
        return self.writes > self.most or now >= self.due_at

    def put_off(self, now: float) -> None:
        self.writes = 0
        self.due_at = now + SECONDS

    def sweep(self, tx: Transaction) -> None:
        end = tx.execute(SWEEP["slice_end"], (*self._row, self._slice - 1)).fetchone()
        before, last = self._row, end or END
        rows = {"resource": before[0], "token": before[1], "last_resource": last[0], "last_token": last[1]}
        ahead = {"now": tx.now, "ahead": REMEMBERED + SLACK}
        gone = tx.execute(SWEEP["sweep_claims"], {**rows, "now": tx.now, "slack": SLACK}).rowcount
        gone += tx.execute(SWEEP["sweep_registers"], {**ahead, "limit": self._slice}).rowcount
        tx.execute(SWEEP["sweep_bells"], ahead)
        many = gone > self._slice // 4
        self._row = START if end is None else end
        self._slice = min(LARGEST_SLICE, self._slice * 2) if many else SLICE
        if many:
            self.writes = self.most
