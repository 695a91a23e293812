"""How long a call may take to connect: the same rule for every store that speaks to a server.

The first connection of a client has a time limit of its own, `connect_timeout`, whatever the caller's timeout
is: nobody knows yet how far the server is. From then on connecting counts within the caller's timeout, or a
server that hangs would keep every caller for `connect_timeout` from the second call on. A caller that does
not wait for the lock at all still waits for the network: for as long as the last connection took, and a
second.
"""

from __future__ import annotations

from interlock._core import timing

MIN_CONNECT_S = 1.5  # seconds that connecting may always take, however quick it was before
MAX_SLOWDOWN = 3  # how many times as long as before connecting may take
# Seconds that a caller who does not wait for the lock gives a connection, beside what the last one took.
SPARE_S = 1.0


class ConnectPace:
    """How long connecting took so far, which tells a distant server from a dead one."""

    def __init__(self, limit: float) -> None:
        self.longest = limit  # seconds that connecting may ever take
        self._took: float | None = None  # seconds that the last connection took

    def reached(self, took: float) -> None:
        """Note that a server was reached, login included, after so many seconds."""
        self._took = took

    @property
    def limit(self) -> float:
        """Seconds that connecting may take: the whole limit at first, later a multiple of what it took
        before.
        """
        return (
            self.longest
            if self._took is None
            else min(self.longest, max(MIN_CONNECT_S, MAX_SLOWDOWN * self._took))
        )

    def share(self, least: float) -> float:
        """Seconds that one of several servers may take before the others are asked."""
        return max(least, MAX_SLOWDOWN * (self._took or 0.0))

    def within(self, timeout: float) -> float:
        """Seconds that connecting may take for a request that has `timeout` seconds."""
        if self._took is None:
            return self.longest
        return min(self.longest, time_to_reconnect(timeout, self._took))

    def counts(self, timeout: float) -> bool:
        """Whether the time to connect is part of the request's own. Ask before connecting."""
        return self._took is not None and not does_not_wait(timeout)


def left_after(timeout: float, spent: float) -> float:
    """Seconds for a request after connecting has used up a part of its time: at least the grace that every
    request has.
    """
    return max(timeout - spent, min(timeout, timing.GRACE_S))


def time_to_reconnect(timeout: float, took: float) -> float:
    """Seconds that connecting may take for a request that has `timeout` seconds, if it took so long the
    last time.
    """
    return took + SPARE_S if does_not_wait(timeout) else max(timeout, 2 * took)


def does_not_wait(timeout: float) -> bool:
    """Whether it is the request of a caller that waits for nothing but the network; see `timing.patience`."""
    return timing.MIN_REQUEST_S < timeout <= timing.GRACE_S
