"""Detects a node's clock that jumps. Pure: instants in, a verdict out.

A reply carries the node's clock, read between sending and receiving, so the offset between the two clocks
lies in an interval (as in Cristian's "Probabilistic clock synchronization", 1989). Each reply narrows the
interval, and each second that passes widens it by the drift that clocks may have. A reading outside of it is
a jump. Kleppmann's "How to do distributed locking" (2016) shows how a jump makes Redlock grant one lock
twice.
"""

from __future__ import annotations

from interlock.backends.redlock.wire.requests import Clock

DRIFT_PART = 0.01  # a node's clock may run faster or slower than ours by this part
SLACK_S = 0.002  # seconds two honest readings may be apart


class ClockWatch:
    """What one client knows of one node's clock."""

    __slots__ = ("_high", "_low", "distrusted_until", "seen")

    def __init__(self) -> None:
        self._low, self._high = float("-inf"), float("inf")
        # The earliest instant at which it may last have been read: drift counts from there.
        self.seen = float("-inf")
        self.distrusted_until = 0.0

    @property
    def offset(self) -> float | None:
        """The node's clock less ours, seconds; None before the first reply."""
        return (self._low + self._high) / 2 if self.seen > float("-inf") else None

    def observe(self, clock: Clock, sent: float, received: float) -> float:
        """How far, in seconds, the clock jumped since the last reply; 0.0 when it runs as it should."""
        stood = int(clock) / 1e6
        low, high = stood - received, stood - sent
        between = received - self.seen
        room = DRIFT_PART * between if between > 0.0 else 0.0
        least, most = self._low - room, self._high + room
        self.seen = sent
        if least <= high and low <= most:
            self._low = max(least, low)
            self._high = min(most, high)
            return 0.0
        if low > most + SLACK_S or high < least - SLACK_S:
            self._low, self._high = low, high
            return low - most if low > most else high - least
        # A reading that only the slack excuses moves nothing: many small steps must not add up to an unseen
        # jump.
        self._low, self._high = least, most
        return 0.0

    def distrust(self, until: float) -> None:
        """Do not count this node before `until`: what it granted may have lapsed too early."""
        if until > self.distrusted_until:
            self.distrusted_until = until

    def steady(self, now: float) -> bool:
        return now >= self.distrusted_until
