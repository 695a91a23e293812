"""When a waiter asks again. Nobody wakes it: on a quorum there is no queue, so waiters poll.

The longer a lock has been held, the longer it will be, as a rule: so a waiter pauses for a part of its holder's age, and learns
of the release late by no more than that part. Locks that change hands between two looks are wanted by others as well: whoever
loses such races pauses for longer, because some other waiter takes the lock anyway. Pauses are random: two that ask at once
split the votes, and must not meet again. Pure: facts in, seconds out.
"""

from __future__ import annotations

from interlock.model import Busy

SHORTEST, FIRST = 0.002, 0.032  # seconds: a first pause is between these
PART = 0.1  # of the time for which the holder has had it
LONGEST = 0.5  # seconds
LOST = 0.25  # how much longer a pause may be for each race that was lost
RACES = 4  # of which so many count, at most: or newcomers would always overtake those who have waited
REMEMBERED = 10_000  # waiters; those that left without a word are forgotten with the rest


class Backoff:
    """The waiters of one store: whom each met when it last looked, and how many races it has lost."""

    def __init__(self) -> None:
        self.waiters: dict[str, tuple[int, int]] = {}  # by the claim's id: the holder's token, races lost

    def pause(self, id: str, busy: Busy, chance: float) -> float:
        """Seconds until this waiter should ask again; `chance` is between 0 and 1."""
        age, token = (busy.holder.age, busy.holder.token) if busy.holder is not None else (0.0, 0)
        before, lost = self.waiters.get(id, (token, 0))
        if token != before or not token:
            lost = min(RACES, lost + 1)
        if len(self.waiters) >= REMEMBERED:
            self.waiters.clear()
        self.waiters[id] = (token, lost)
        longest = min(LONGEST, max(FIRST * (1 + LOST * lost), PART * age))
        return SHORTEST + (longest - SHORTEST) * chance

    def over(self, id: str) -> None:
        """This one waits no longer."""
        self.waiters.pop(id, None)
