"""Ctrl-C at random moments of taking and giving back, on PostgreSQL: nothing stands that nobody would give back."""

from __future__ import annotations

from tests.field.test_interrupts import needs_timers, struck


@needs_timers
def test_no_claim_is_orphaned(url: str) -> None:
    strikes, unknown, left = struck(url, 300, 1)
    assert strikes > 100
    assert (unknown, left) == (0, 0)
