"""Waiters of one client in a long queue: only the first of them asks the server for its turn; the others wait for it, locally.

A claim that shares with nobody is not let in before those ahead of it have left, and of some of those the client knows by itself: its
own. To find out who is just ahead, the server reads every claim under the name, since it keeps them by key and not by age. So a
thousand waiters of a client that each look, watch and look again make it read a million claims. Here all but the first sleep
until the one before them, in the order of creation, has left.

No turn is decided here: the first waiter looks at the queue on the server, as any waiter does.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable

from interlock.model import Standing
from interlock.ports import Signal

RECENT = 1.0  # seconds for which a holder that one of the waiters was told of is named by the others


class Crowd:
    """The claims of one client that wait for one resource, or have waited and hold it. The caller holds a guard."""

    def __init__(self) -> None:
        self._order: list[tuple[int, str]] = []  # the revision of the creation, and the id
        self._created: dict[str, int] = {}
        self._called: dict[str, Signal] = {}
        self._listed: list[tuple[int, bytes]] = []  # the front of the server's queue, as last read
        self._holder: tuple[float, Standing | None] = (float("-inf"), None)

    def __len__(self) -> int:
        return len(self._order)

    def join(self, id: str, created: int) -> None:
        self.leave(id)
        insort(self._order, (created, id))
        self._created[id] = created

    def leave(self, id: str) -> None:
        """Take a claim out, and wake its waiter and the one that is first now."""
        # In one step, and wherever it stands: an earlier one may have been interrupted by an exception from outside.
        self._order = [one for one in self._order if one[1] != id]
        self._created.pop(id, None)
        for woken in (id, *(first for _, first in self._order[:1])):
            called = self._called.pop(woken, None)
            if called is not None:
                called.set()

    def behind(self, id: str, signal: Callable[[], Signal]) -> Signal | None:
        """None if no claim is before this one; otherwise what is set when that may have changed."""
        if id not in self._created or self._order[0][1] == id:
            return None
        called = self._called[id] = signal()
        return called

    def first(self) -> tuple[int, str] | None:
        return self._order[0] if self._order else None

    # ---- the front of the queue -----------------------------------------------------------

    def front_was(self, front: Iterable[tuple[int, bytes]]) -> None:
        """Remember the front of the queue: each claim's creation and key, in order and without gaps."""
        self._listed = list(front)

    def ahead_of(self, created: int) -> list[tuple[int, bytes]] | None:
        """Those that stood ahead of a claim; None if it is not among those that were read.

        Nobody enters ahead of it later, so no other can be there: a list is right for ever, but for those that have left.
        """
        place = bisect_left(self._listed, (created, b""))
        if place == len(self._listed) or self._listed[place][0] != created:
            return None
        return self._listed[:place]

    def left(self, gone: Collection[tuple[int, bytes]]) -> None:
        """Forget those of the front that were found to have left."""
        if gone:
            self._listed = [one for one in self._listed if one not in gone]

    # ---- the holder, for people to read ---------------------------------------------------

    def told(self, holder: Standing | None, now: float) -> None:
        self._holder = now, holder

    def holder(self, now: float) -> tuple[bool, Standing | None]:
        """Whether that was asked recently, and the holder that was named then."""
        when, holder = self._holder
        return now < when + RECENT, holder
