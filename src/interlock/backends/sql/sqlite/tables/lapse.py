"""When a row of the tables counts: the instants in it are seconds on the machine's boot clock."""

from __future__ import annotations

SLACK = 1.0  # seconds: what two processes' readings of the clock around one transaction may differ by


def live(now: float, lapses_at: float, ttl: float) -> bool:
    """Whether a row counts: not lapsed, and not further ahead than its ttl, as only an earlier boot's is."""
    return now < lapses_at <= now + ttl + SLACK
