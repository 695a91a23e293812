"""The timeouts of one request, which first waits for connections and then for replies: the same rules for
both transports.

This module is pure: it gets instants and returns instants.
"""

from __future__ import annotations

from collections.abc import Sequence

MIN_CONNECT_S = 0.2  # seconds a request waits for further connections, at least, once a majority has one
FOR_EVER = float("inf")


class Timeouts:
    """A request waits for `timeout` seconds, or up to `longest` while fewer than `least` nodes have answered.

    An error is no answer. If fewer than `least` nodes have a connection, the request first waits for
    connections, for up to `connecting` seconds. `total` bounds both together; without it the time to connect
    is not counted. `shortened` means that the caller has less time than a request usually gets. Such a
    request still waits for one round trip, because a caller that does not want to wait for a lock must wait
    for the network all the same.
    """

    __slots__ = ("connecting", "least", "longest", "shortened", "timeout", "total")

    def __init__(
        self,
        timeout: float,
        longest: float,
        least: int,
        connecting: float | None = None,
        total: float = FOR_EVER,
        shortened: bool = False,
    ) -> None:
        self.timeout, self.longest, self.least = timeout, max(longest, timeout), least
        self.connecting = self.longest if connecting is None else connecting
        self.total, self.shortened = total, shortened

    def for_all(self, took: float) -> float:
        """Seconds to wait for all nodes if the first `least` answered after `took`: nodes at one distance
        answer after similar times.
        """
        return min(self.longest, max(self.timeout, 2 * took))

    def after(self, connecting: float, had: int, round_trip: float) -> Timeouts:
        """The timeouts of the request itself after `connecting` seconds.

        `had` nodes were connected before. If those were enough, the time spent on connecting to the others
        counts as the request's own: a call that did not have to connect must return when it promised.
        """
        longest = self.longest - connecting if had >= self.least else self.longest
        longest = max(0.001, min(longest, self.total - connecting))
        if self.shortened:
            longest = max(longest, 2 * round_trip)
        return Timeouts(min(self.timeout, longest), longest, self.least)


class ConnectTimes:
    """How long connecting to each node took, and the round trip of its handshake."""

    def __init__(self, nodes: int) -> None:
        self._took = [0.0] * nodes  # seconds the last connection took
        self._trips = [0.0] * nodes  # seconds the handshake took: one round trip, and little else
        # Since when a connection is wanted and there is none.
        self.trying: list[float | None] = [None] * nodes

    def wanted(self, node: int, now: float) -> None:
        if self.trying[node] is None:
            self.trying[node] = now

    def connected(self, node: int, took: float, round_trip: float) -> None:
        self._took[node] = _calmed(self._took[node], took)
        self._trips[node] = _calmed(self._trips[node], round_trip)
        self.trying[node] = None

    def connecting(self, least: int) -> float:
        """Seconds within which the nearest `least` nodes were connected to; 0.0 if that is not known."""
        return sorted(self._took)[: max(1, least)][-1]

    def round_trip(self, least: int) -> float:
        return sorted(self._trips)[: max(1, least)][-1]


def _calmed(known: float, new: float) -> float:
    """The new estimate: at most twice the old one, for a server that hung, or a busy machine, says little
    about the distance.
    """
    return min(new, 2 * known) if known else new


class ConnectDeadline:
    """The instant until which one request waits for connections.

    While fewer than a majority are connected, it waits for the whole connect timeout, counted from the first
    attempt at these nodes: servers that hang cost that time once, not once for each request. Once a majority
    is connected, the other nodes have as long again as the majority took.
    """

    def __init__(
        self, timeouts: Timeouts, missing: Sequence[int], awaited: int, speed: ConnectTimes, began: float
    ) -> None:
        self._began = self._reached = began
        self._enough = min(timeouts.least, awaited)
        self._usual = max(timeouts.timeout, MIN_CONNECT_S, 2 * speed.connecting(self._enough))
        tried = max((speed.trying[node] or began for node in missing), default=began)
        within = min(timeouts.longest, timeouts.connecting)
        longest = max(within, tried + timeouts.connecting - began)
        self._far = began + min(longest, timeouts.total - min(timeouts.longest, timeouts.total / 2))

    def until(self, connected: int, now: float) -> float:
        """The instant up to which to wait, if so many of the awaited nodes are connected now."""
        if connected < self._enough:
            self._reached = now
            return self._far
        return min(self._far, self._began + max(self._usual, 2 * (self._reached - self._began)))
