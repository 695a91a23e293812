"""Does a node's clock run as ours does? Pure: instants in, a verdict out.

A reply carries the node's clock, read between sending and receiving; so the offset of the two clocks lies in an
interval. Each reply narrows it, each second that passes widens it by what clocks may drift.
"""

from __future__ import annotations

DRIFT = 0.01  # how much faster or slower a clock may run than ours
SLACK = 0.002  # seconds two honest readings may be apart


class ClockWatch:
    """What is known of one node's clock, by one client."""

    __slots__ = ("_at", "_high", "_low", "distrusted_until")

    def __init__(self) -> None:
        self._low = self._high = self._at = 0.0
        self.distrusted_until = 0.0

    @property
    def offset(self) -> float | None:
        """The node's clock less ours, seconds; None before the first reply."""
        return (self._low + self._high) / 2 if self._at else None

    def observe(self, clock: int, sent: float, received: float) -> float:
        """How far, in seconds, the clock jumped since the last reply; 0.0 when it runs as it should."""
        stood = clock / 1e6
        low, high = stood - received, stood - sent
        if not self._at:
            self._low, self._high, self._at = low, high, sent
            return 0.0
        between = received - self._at
        room = DRIFT * between if between > 0.0 else 0.0
        least, most = self._low - room, self._high + room
        self._at = sent  # when it may have been read, at the earliest: a late reply tells of drift since then
        if low > most + SLACK or high < least - SLACK:
            self._low, self._high = low, high
            return low - most if low > most else high - least
        # What only the slack excuses moves nothing: many small steps must not add up to a jump unseen.
        overlap = low <= most and high >= least
        self._low = low if overlap and low > least else least
        self._high = high if overlap and high < most else most
        return 0.0

    def distrust(self, until: float) -> None:
        """Do not count this node before then: what it granted may have lapsed too early."""
        if until > self.distrusted_until:
            self.distrusted_until = until

    def steady(self, now: float) -> bool:
        return now >= self.distrusted_until
