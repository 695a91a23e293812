"""The time of one call, of which every request in it gets what is left.

The port promises that a call is back within its `timeout`, however many requests it makes and however long
its server takes for each. The polled watches of Redis and Redlock and the waits of SQLite count on this.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.store import IO_TIMEOUT

SHORTEST = 0.001  # seconds: a request that is made at all is given this long


class Deadline:
    """The instant by which a call must be back, on the clock of its store."""

    __slots__ = ("_now", "at")

    def __init__(self, now: Callable[[], float], timeout: float) -> None:
        self._now = now
        self.at = now() + timeout

    def left(self) -> float:
        """Seconds until then; 0.0 when it has passed."""
        return max(0.0, self.at - self._now())

    def passed(self) -> bool:
        """Whether the time is up. Where that is an answer too, an error of the last request is none."""
        return self._now() >= self.at

    def for_request(self, most: float = IO_TIMEOUT) -> float:
        """Seconds that the next request may take: what is left, and no more than one request may ever
        take.
        """
        return max(SHORTEST, min(self.at - self._now(), most))

    def of_request(self) -> float:
        """The instant by which the next request must be answered, if it is made now."""
        now = self._now()
        return max(now + SHORTEST, min(self.at, now + IO_TIMEOUT))
