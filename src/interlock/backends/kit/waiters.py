"""The registry of who waits for what: signals by topic, of threads and tasks alike.

The store decides what its topics are: the ids of claims, queues, registers. The part of the store that learns
of a change wakes the topic: the space in memory itself, the doorbell of SQLite, the subscription of Redis, a
watch of etcd or ZooKeeper, PostgreSQL's LISTEN.

    with mutex:
        waiters.add(signal, topic)  # or several topics at once
    ...  look once more, for what changed before; then wait for the signal
    with mutex:
        waiters.remove(signal, topic)

The registry has no lock. The store has a mutex, for this and for what it must change in the same step (a
thread that is started with the first who waits, say), and enters it once. A finalizer may run on any thread
at any time and enter it again, so it is a mutex of `native` or of the runtime, and nothing here calls foreign
code while it changes anything.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from interlock._core.runtime import Signal

Topic = TypeVar("Topic", bound=Hashable)
W = TypeVar("W", bound=Signal)


def notify(waiters: Iterable[Signal]) -> None:
    """Set their signals. Outside the mutex, where it can be: those who wake up need it next."""
    for waiter in waiters:
        waiter.set()


class Waiters(Generic[Topic, W]):
    """The registry of waiters by topic. All of it is called under the store's mutex."""

    def __init__(self) -> None:
        self.topics: dict[Topic, dict[W, None]] = {}  # no topic is here for which nobody waits
        self._abandoned: list[W] = []
        self._closed = False

    def __bool__(self) -> bool:
        """Whether anybody waits."""
        return bool(self.topics)

    def add(self, waiter: W, *topics: Topic) -> None:
        for topic in topics:
            self.topics.setdefault(topic, {})[waiter] = None
        if self._closed:
            waiter.set()

    def close(self) -> list[W]:
        """End all waits: the caller notifies those who wait now, and whoever is added later is set at once.

        Otherwise a call that begins to wait just while its store is closed would be woken by nobody.
        """
        self._closed = True
        return self.everyone()

    def remove(self, waiter: W, *topics: Topic) -> None:
        for topic in topics:
            waiting = self.topics.get(topic)
            if waiting is not None:
                waiting.pop(waiter, None)
                if not waiting:
                    del self.topics[topic]

    def of(self, topic: Topic) -> list[W]:
        """Who waits for it now."""
        return list(self.topics.get(topic, ()))

    def everyone(self) -> list[W]:
        """Who waits for anything; once for each topic."""
        return [waiter for waiting in self.topics.values() for waiter in waiting]

    def wake(self, topic: Topic) -> None:
        """Set the signals of a topic, under the mutex: for stores whose change and whose signal are one
        step.
        """
        for waiter in self.of(topic):  # of a copy: a finalizer may remove a waiter meanwhile
            waiter.set()

    def abandon(self, gone: Callable[[W], bool]) -> None:
        """Drop waiters that are gone without a word, such as tasks whose loop was closed.

        They are kept alive. Collecting a task ends it, on any thread and at any time, and its clean-up takes
        the mutex, which that very thread may hold.
        """
        for topic, waiting in list(self.topics.items()):
            for waiter in [waiter for waiter in waiting if gone(waiter)]:
                self._abandoned.append(waiter)
                self.remove(waiter, topic)


class WeakWaiters(Generic[Topic, W]):
    """The registry of waiters by topic, for as long as somebody else has the waiter. All is called under the
    store's mutex.

    For stores that do work for everybody who waits: an interrupt can keep a waiter from being removed, and
    the store would work for it for ever.
    """

    def __init__(self) -> None:
        self.topics: dict[Topic, dict[weakref.ref[W], None]] = {}

    def __bool__(self) -> bool:
        """Whether anybody waits, or has gone since `everyone` was asked for."""
        return bool(self.topics)

    def add(self, waiter: W, *topics: Topic) -> None:
        for topic in topics:
            self.topics.setdefault(topic, {})[weakref.ref(waiter)] = None

    def remove(self, waiter: W, *topics: Topic) -> None:
        for topic in topics:
            waiting = self.topics.get(topic)
            if waiting is not None:
                waiting.pop(weakref.ref(waiter), None)
                if not waiting:
                    self.topics.pop(topic, None)

    def of(self, topic: Topic) -> list[W]:
        """Who waits for it now."""
        return [
            waiter for reference in list(self.topics.get(topic, ())) if (waiter := reference()) is not None
        ]

    def everyone(self) -> list[W]:
        """Who waits for anything; once for each topic. Those who went without a word are forgotten."""
        found: list[W] = []
        for topic in list(self.topics):
            waiters = self.of(topic)
            found += waiters
            if not waiters:
                self.topics.pop(topic, None)
            elif len(waiters) < len(self.topics[topic]):
                self.topics[topic] = {weakref.ref(waiter): None for waiter in waiters}
        return found
