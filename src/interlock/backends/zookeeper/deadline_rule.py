"""From when a session's time counts: the rule that no answered ping, and no single write, can stretch. Pure.

The leader of the ensemble decides when a session ends. A client that is connected to a follower is kept alive
there by what the follower reports: at every ping of the leader, twice a tick, the follower names the sessions
that it has heard from. So an answered ping proves nothing, for a follower that is cut off from its leader
goes on answering pings until it gives up. A confirmed write proves that the follower's stream to the leader
worked when the write was forwarded; on that stream, before the write, went the follower's last report. That
report may be up to half a tick older than the write, so it need not name the write itself. It does name what
was answered half a tick before.

    the session lives at least one timeout from the sending of a write E, once another write W is confirmed
    that was sent at least a quarter of the timeout after E was answered

The servers' shortest session is two ticks unless somebody has set less, so a quarter of the timeout is at
least half a tick. One more thing counts by itself: the beginning of a session is a write that the leader
itself enters in its table.

The shortest session of a server is two ticks whatever a session has negotiated, so a quarter of the shortest
timeout that it ever had is enough: a session that may live longer from now on is proved as soon as before.

Each connection negotiates the timeout anew, because servers may permit different ones. The server tells the
leader, which counts from then on with the new timeout, even if the session would have lived longer with the
old one. Whether the leader has heard of it is not proved; but either it has, after the connection was asked
for, or the session lives as long as before. So it lives up to the sooner of the two at least. Writes that
were confirmed on earlier connections prove nothing more.
"""

from __future__ import annotations

from collections import deque

APART = 1 / 4
"""The time between two writes of which the later proves the earlier, as part of the session's timeout."""

GRAIN = 1 / 32
"""Writes closer together than this part of the timeout are noted once: a busy client must not remember
thousands.
"""


class ConfirmedWrites:
    """The confirmed writes of one session, and the instant from which its time counts."""

    def __init__(self, timeout: float, began: float) -> None:
        self.timeout = timeout  # seconds, as negotiated
        self.counts_from = began  # before the session was asked for
        self._apart = timeout * APART  # seconds between two writes of which the later proves the earlier
        self._unproved: deque[tuple[float, float]] = (
            deque()
        )  # writes: when each was sent, and when it was answered

    def confirm(self, sent: float, answered: float) -> None:
        """Note a write that was confirmed, and what it proves of earlier ones."""
        unproved = self._unproved
        while unproved and unproved[0][1] + self._apart <= sent:
            self.counts_from = max(self.counts_from, unproved.popleft()[0])
        if not unproved or answered >= unproved[-1][1] + self.timeout * GRAIN:
            unproved.append((sent, answered))

    def renegotiated(self, timeout: float, asked: float) -> bool:
        """Note what a new connection has negotiated, which was asked for at this instant; return whether the
        session ends sooner than was known.
        """
        if timeout == self.timeout:
            return False
        before = self.ends
        ends = min(before, asked + timeout)
        self._unproved = deque()
        self._apart = min(self._apart, timeout * APART)
        self.timeout, self.counts_from = timeout, ends - timeout
        return ends < before

    @property
    def ends(self) -> float:
        """The instant up to which the session lives at least."""
        return self.counts_from + self.timeout

    def next_proof(self) -> float | None:
        """The instant from which another write would make the time count from later; None if nothing waits
        for one.
        """
        return self._unproved[0][1] + self._apart if self._unproved else None
