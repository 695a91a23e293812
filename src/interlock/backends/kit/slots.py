"""A bounded number of objects that threads share, each used by one thread at a time: connections, or sets of
them.

A slot is an object held by weak reference. However a thread ends that uses one, even by an exception that
another thread throws into it between two lines, the slot is free once nobody holds the object. For the same
reason there is no `threading.Condition` here: an exception inside its methods can leave its lock held for
ever.

The pool of the SQL stores (`sql.pool`) is another one on purpose, and says why.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, SupportsIndex, TypeVar
from weakref import WeakSet

from interlock._support import native

NAP_S = 0.05
"""Seconds after which a thread that waits looks for a slot that became free unannounced."""

T = TypeVar("T")


class IdleList(Protocol[T]):
    """A list of idle objects; the last used comes last."""

    def append(self, item: T, /) -> None: ...
    def pop(self, at: SupportsIndex = -1, /) -> T: ...
    def __len__(self) -> int: ...


class _Waiter(Generic[T]):
    """A thread that waits for a slot."""

    __slots__ = ("gate", "given")

    def __init__(self) -> None:
        self.given: T | None = None
        self.gate = threading.Lock()
        self.gate.acquire()  # released when an object was given, or a slot may be free


class Slots(Generic[T]):
    """At most `most` objects, made when they are needed.

    Threads that find none wait, first come, first served: otherwise threads that lock back to back would
    always win. A hot path may take the last of `idle` without any call here, and appends it afterwards; if
    anybody is `waiting` then, it calls `hand_over`.
    """

    def __init__(self, most: int, make: Callable[[], T], idle: IdleList[T]) -> None:
        self._most = most
        self._make = make
        self.idle = idle
        self.waiting: deque[_Waiter[T]] = deque()
        self.closed = False
        self._all: WeakSet[T] = WeakSet()  # including those in use
        self.mutex = native.mutex()

    def __iter__(self) -> Iterator[T]:
        """All of them, those in use included."""
        with self.mutex:
            return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def take(self, left: Callable[[], float]) -> tuple[T, bool] | None:
        """An idle object, or a new one, and whether it is new.

        None if there was none within the seconds that are `left()`, or if the pool was closed.
        """
        waiter: _Waiter[T] = _Waiter()
        # This comes before the first try: a thread that gives one back later sees that we wait.
        self.waiting.append(waiter)
        try:
            while not self.closed:
                if (found := self._take_free()) is not None:
                    return found
                if (seconds := left()) <= 0:
                    return None
                woken = waiter.gate.acquire(timeout=min(seconds, NAP_S))
                given, waiter.given = waiter.given, None
                if given is not None:
                    return given, False
                if woken:
                    # Another thread was quicker, but nobody has waited longer.
                    self.waiting.appendleft(waiter)
            return None
        finally:
            self._stop_waiting(waiter)

    def _take_free(self) -> tuple[T, bool] | None:
        with self.mutex:
            if self.idle:
                return self.idle.pop(), False
            if len(self._all) < self._most:
                made = self._make()
                self._all.add(made)  # from here on its slot is taken, as long as the object exists
                return made, True
            return None

    def _stop_waiting(self, waiter: _Waiter[T]) -> None:
        """Wait no longer; what was given to us meanwhile goes to the next thread."""
        with self.mutex:
            try:
                self.waiting.remove(waiter)
            except ValueError:
                pass  # it was woken
            given, waiter.given = waiter.given, None
        if given is not None:
            self.idle.append(given)
            self.hand_over()

    def hand_over(self) -> None:
        """Give an idle object, or the hint that a slot is free, to the thread that has waited longest."""
        with self.mutex:
            try:
                waiter = self.waiting.popleft()
            except IndexError:
                return  # nobody waits any more
            try:
                waiter.given = self.idle.pop()
            except IndexError:
                pass  # another thread has taken it; the woken thread looks for itself
        waiter.gate.release()

    def remove(self, item: T) -> None:
        """Free the slot of an object that is of no use any more."""
        with self.mutex:
            self._all.discard(item)
        if self.waiting:
            self.hand_over()

    def close(self) -> None:
        """Give out no object any more, and wake the threads that wait for one."""
        self.closed = True
        for _ in range(len(self.waiting)):
            self.hand_over()
