"""How long one request waits: for connections, and then for replies. Pure: instants in, instants out."""

from __future__ import annotations

from collections.abc import Sequence

AT_LEAST = 0.2  # seconds for which a connection is waited for at least, where a majority has one
FOR_EVER = float("inf")


class Limits:
    """Wait `timeout` seconds, or up to `longest` for as long as fewer than `least` nodes have answered. An error is no answer.

    Where fewer than `least` have a connection, that is waited for first, for up to `connecting` seconds. `total` bounds both:
    without it connecting takes its time beside the request. `hurried`: the caller has less time than a request usually gets;
    one round trip is waited for all the same, because not waiting for a lock is not the same as not waiting for the network.
    """

    __slots__ = ("connecting", "hurried", "least", "longest", "timeout", "total")

    def __init__(
        self,
        timeout: float,
        longest: float,
        least: int,
        connecting: float | None = None,
        total: float = FOR_EVER,
        hurried: bool = False,
    ) -> None:
        self.timeout, self.longest, self.least = timeout, max(longest, timeout), least
        self.connecting = self.longest if connecting is None else connecting
        self.total, self.hurried = total, hurried

    def patience(self, took: float) -> float:
        """Seconds for which all are waited for, when the first `least` of them took so long: far away all are late alike."""
        return min(self.longest, max(self.timeout, 2 * took))

    def after(self, connecting: float, had: int, round_trip: float) -> Limits:
        """What is left for the request itself after so many seconds of connecting, to nodes that are so far away.

        `had`: so many nodes had a connection before. Where those were enough, the others are waited for in the request's own
        time: a call that need not connect must be back when it promised.
        """
        longest = self.longest - connecting if had >= self.least else self.longest
        longest = max(0.001, min(longest, self.total - connecting))
        if self.hurried:
            longest = max(longest, 2 * round_trip)
        return Limits(min(self.timeout, longest), longest, self.least)


class ConnectTimes:
    """What is known of the ways to the nodes: how long connecting took, and the first words on a connection."""

    def __init__(self, nodes: int) -> None:
        self._took = [0.0] * nodes  # seconds the last connection took
        self._trips = [0.0] * nodes  # seconds the first words took: one round trip, and little else
        self.trying: list[float | None] = [
            None
        ] * nodes  # since when a connection is wanted and there is none

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
    """What to believe after this one: a server that hung, or a busy machine, says little of the way."""
    return min(new, 2 * known) if known else new


class ConnectPatience:
    """How long one request waits for connections. Pure: instants in, an instant out.

    While too few nodes have one: for as long as connecting may take, counted from when these nodes were first tried, so that
    servers that hang cost that time once and not once for each request. Then only as long again as those took.
    """

    def __init__(
        self, limits: Limits, missing: Sequence[int], awaited: int, speed: ConnectTimes, began: float
    ) -> None:
        self._began = self._reached = began
        self._enough = min(limits.least, awaited)
        self._usual = max(limits.timeout, AT_LEAST, 2 * speed.connecting(self._enough))
        tried = max((speed.trying[node] or began for node in missing), default=began)
        within = min(limits.longest, limits.connecting)
        longest = max(within, tried + limits.connecting - began)
        self._far = began + min(longest, limits.total - min(limits.longest, limits.total / 2))

    def until(self, connected: int, now: float) -> float:
        """Up to when to wait, with so many of the awaited connected now."""
        if connected < self._enough:
            self._reached = now
            return self._far
        return min(self._far, self._began + max(self._usual, 2 * (self._reached - self._began)))
