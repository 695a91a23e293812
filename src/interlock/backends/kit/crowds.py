"""Waiters of one client in one queue: only the first of them asks the server for its turn; the others wait
for it, locally.

A claim is not let in before an older one of the same client that waits, and the client knows its own. If each
of a thousand waiters looked at the queue, watched it and looked again, the server would read, and the client
would parse, a million claims. Here all but the first sleep until the one before them, in the order of
creation, waits no longer.

Nothing is decided here: the first waiter reads the queue on the server, as any waiter does.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from interlock._core.runtime import Signal
from interlock.model import Standing

RECENT_S = 1.0  # seconds for which a holder that one of the waiters was told of is named by the others

Key = TypeVar("Key")
Item = TypeVar("Item")


class _Front(Generic[Key, Item]):
    """The front of a queue: what was read is never changed, so threads may look at it while another one
    notes who has left.
    """

    def __init__(self, listed: Iterable[tuple[Key, Item]]) -> None:
        self.listed = list(listed)
        self.places = {key: place for place, (key, _) in enumerate(self.listed)}
        self.gone: set[Key] = set()
        self.start = 0  # all before it have left


class Crowd(Generic[Key, Item]):
    """The waiters of one client on one resource. The caller holds a mutex.

    The front of the server's queue is remembered by a `Key` for each claim, such as its creation, with an
    `Item` that tells where it stands.
    """

    def __init__(self) -> None:
        self._order: list[tuple[int, str]] = []  # when each was created, and its id
        self._created: dict[str, int] = {}
        self._called: dict[str, Signal] = {}
        self._front = _Front[Key, Item](())  # of the server's queue, as last read
        self._holder: tuple[float, Standing | None] = (float("-inf"), None)

    def __len__(self) -> int:
        return len(self._order)

    def join(self, id: str, created: int) -> None:
        if self._created.get(id) == created:
            return  # nobody need be woken
        self.leave(id)
        self._created[id] = created  # first: whoever is interrupted here leaves nothing in the order
        insort(self._order, (created, id))

    def leave(self, id: str) -> None:
        """Take a claim out, and wake its waiter and the one that is first now."""
        created = self._created.get(id)
        if created is not None:
            place = bisect_left(self._order, (created, id))
            if self._order[place : place + 1] == [(created, id)]:
                del self._order[place]
            self._created.pop(id, None)
        for woken in (id, *(first for _, first in self._order[:1])):
            called = self._called.pop(woken, None)
            if called is not None:
                called.set()

    def behind(self, id: str, signal: Callable[[], Signal]) -> Signal | None:
        """None if no claim is before this one; otherwise a signal that is set when that may have changed."""
        if id not in self._created or self._order[:1] == [(self._created[id], id)]:
            return None
        called = self._called[id] = signal()
        return called

    def first(self) -> tuple[int, str] | None:
        return self._order[0] if self._order else None

    # ---- the front of the queue -----------------------------------------------------------

    def front_was(self, front: Iterable[tuple[Key, Item]]) -> None:
        """Remember the front of the queue, in order and without gaps."""
        self._front = _Front(front)

    def ahead_of(self, key: Key) -> list[tuple[Key, Item]] | None:
        """Those that stood ahead of a claim; None if it is not among those that were read.

        Nobody enters ahead of it later, so no other can be there: a list is right for ever, but for those
        that have left.
        """
        front = self._front
        place = front.places.get(key)
        if place is None or key in front.gone:
            return None
        while front.start < place and front.listed[front.start][0] in front.gone:
            front.start += 1
        return [one for one in front.listed[front.start : place] if one[0] not in front.gone]

    def left(self, gone: Iterable[Key]) -> None:
        """Forget those of the front that were found to have left."""
        self._front.gone.update(gone)

    # ---- the holder, for people to read ---------------------------------------------------

    def told(self, holder: Standing | None, now: float) -> None:
        self._holder = now, holder

    def holder(self, now: float) -> tuple[bool, Standing | None]:
        """Whether that was asked recently, and the holder that was named then."""
        when, holder = self._holder
        return now < when + RECENT_S, holder
