"""One row of the claim table, as Python reads it."""

from __future__ import annotations

from typing import NamedTuple

from interlock.backends.sql.sqlite.tables.lapse import live
from interlock.model import Standing

WAITS, IN, EVICTED = 0, 1, 2  # states of a claim: see schema.sql


class Row(NamedTuple):
    """In the order of the statements `queue`, `behind` and `standings`."""

    token: int
    id: str
    state: int
    permits: int
    capacity: int
    ttl: float
    lapses_at: float
    rung: int
    bell: str
    life: int
    since: float = 0.0
    note: str = ""
    who: str = ""

    def live(self, now: float) -> bool:
        return live(now, self.lapses_at, self.ttl)

    def standing(self, now: float, admitted: bool) -> Standing:
        """What an operator sees. `since` counts from the admission, or for a waiter from when it came."""
        return Standing(
            id=self.id,
            token=self.token,
            permits=self.permits,
            admitted=admitted,
            age=max(0.0, now - self.since),
            lapses_in=self.lapses_at - now,
            note=self.note,
            who=self.who,
        )
