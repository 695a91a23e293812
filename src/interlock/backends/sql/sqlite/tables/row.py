"""One row of the claim table, as Python reads it, and when a row of any table counts.

The instants in rows are seconds on the machine's boot clock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

EVICTED = 2  # a state of claims beside those of `steps`, WAITS and IN: see schema.sql
SLACK_S = 1.0  # seconds: what two processes' readings of the clock around one transaction may differ by


def live(now: float, lapses_at: float, ttl: float) -> bool:
    """Whether a row counts: not lapsed, and not further ahead than its ttl, as only an earlier boot's is."""
    return now < lapses_at <= now + ttl + SLACK_S


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

    def described(self, now: float) -> tuple[Any, ...]:
        """The columns of `steps.QUEUE`.

        `since` counts from the admission, or for a waiter from when it came.
        """
        age, lapses_in = now - self.since, self.lapses_at - now
        return self.token, self.id, self.permits, self.capacity, age, lapses_in, self.note, self.who
