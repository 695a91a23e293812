"""The time of one call, of which every request in it gets what is left.

The port promises that a call is back within its `timeout`, however many requests it makes and however long
its server takes for each. The polled watches of Redis and Redlock and the waits of SQLite count on this.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.store import IO_TIMEOUT

MIN_REQUEST_S = 0.001  # seconds: a request that is made at all is given this long


class Deadline:
    """The instant by which a call must be back, on the clock of its store.

    Connecting may have seconds of its own, `connecting`: the call may take as much longer as it uses of them.
    """

    __slots__ = ("_now", "at", "connecting")

    def __init__(self, now: Callable[[], float], timeout: float, connecting: float = 0.0) -> None:
        self._now = now
        self.at = now() + timeout
        self.connecting = connecting

    def left(self) -> float:
        """Seconds until then; 0.0 when it has passed."""
        return max(0.0, self.at - self._now())

    def passed(self) -> bool:
        """Whether the time is up.

        A call for which that is an answer asks this before it raises the error of its last request.
        """
        return self._now() >= self.at

    def for_request(self, most: float = IO_TIMEOUT) -> float:
        """Seconds that the next request may take: the time that is left, or `most` if that is shorter."""
        return max(MIN_REQUEST_S, min(self.at - self._now(), most))

    def to_connect(self) -> float:
        """Seconds that connecting may take now, all in all."""
        return self.left() + self.connecting

    def connected(self, took: float) -> None:
        """Note that connecting has taken so many seconds."""
        extra = min(took, self.connecting)
        self.connecting -= extra
        self.at += extra

    def of_request(self) -> float:
        """The instant by which the next request must be answered, if it is made now."""
        now = self._now()
        return max(now + MIN_REQUEST_S, min(self.at, now + IO_TIMEOUT))
