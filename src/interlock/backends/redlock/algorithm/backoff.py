"""When a waiter claims again: a quorum has no queue, so waiters poll. Pure: facts in, seconds out.

A lock that has been held for long will probably be held for longer. So a waiter pauses for a part of the time
for which its holder has had the lock, and notices the release late by no more than that part. If a lock
changes hands between two polls, others want it as well: a waiter that loses such races pauses for longer,
because some other waiter takes the lock anyway. Pauses are random, as Sanfilippo's Redlock asks: two claims
at the same time split the votes, and must not meet again.
"""

from __future__ import annotations

from interlock.model import Busy

MIN_PAUSE_S, FIRST_PAUSE_S = 0.002, 0.032  # seconds: a first pause is between these
HELD_PART = 0.1  # of the time for which the holder has had the lock
MAX_PAUSE_S = 0.5  # seconds
GROWTH_PER_LOST_RACE = 0.25  # how much longer a pause may be for each race that was lost
MAX_LOST_RACES = 4  # count at most: otherwise newcomers would always overtake those that have waited
MAX_WAITERS_REMEMBERED = 10_000  # waiters; then all are forgotten, with those that left without a release


class Backoff:
    """The waiters of one store: which holder each saw last, and how many races it has lost."""

    def __init__(self) -> None:
        self.waiters: dict[str, tuple[int, int]] = {}  # by the claim's id: the holder's token, races lost

    def pause(self, id: str, busy: Busy, chance: float) -> float:
        """Seconds until this waiter should ask again; `chance` is between 0 and 1."""
        age, token = (busy.holder.age, busy.holder.token) if busy.holder is not None else (0.0, 0)
        before, lost = self.waiters.get(id, (token, 0))
        if token != before or not token:
            lost = min(MAX_LOST_RACES, lost + 1)
        if len(self.waiters) >= MAX_WAITERS_REMEMBERED:
            self.waiters.clear()
        self.waiters[id] = (token, lost)
        longest = min(MAX_PAUSE_S, max(FIRST_PAUSE_S * (1 + GROWTH_PER_LOST_RACE * lost), HELD_PART * age))
        return MIN_PAUSE_S + (longest - MIN_PAUSE_S) * chance

    def over(self, id: str) -> None:
        """Forget a waiter that waits no longer."""
        self.waiters.pop(id, None)
