"""One thread for all who wait through one store: it hears the doorbell, and looks for what no ring told it.

It starts with the first who waits, and ends when nobody has waited for a while. However many wait, there
is one socket, one thread and one connection, used only to read.

What no ring tells: a ring that was lost, and the death of a process. Each waiter watches the life of the one just ahead
of it, the first in line that of the holders (see `presence`): so however many die at once, the first who lives
finds out, and its next claim removes them all.

Anybody on the machine may ring, so the bell must not cost more than a small part of a core: when rings come that
mean nothing to anybody here, and too many of them, the thread does not hear for a while and looks more often.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeAlias

from interlock import native
from interlock.backends.sqlite.database import Database
from interlock.backends.sqlite.doorbell import Doorbell, available
from interlock.backends.sqlite.row import WAITS
from interlock.backends.sqlite.statements import CLAIMS
from interlock.errors import InterlockError, StoreUnavailable
from interlock.ports import Signal

NET = 0.05  # seconds between looks for rings that were missed, and for deaths
NO_BELL = 0.01  # where there are no doorbells, looking is all there is
DEAF = 0.005  # after a miss: rings do not reach us (another network namespace), so look often
SHARE = 20  # of this thread's time at most one part in so many is spent looking, and one hearing nonsense
LONGEST = 0.25  # seconds between looks at most: on a busy machine a look only seems to take long
IDLE = 5.0  # seconds the thread outlives the last who waited
NONSENSE = (
    20  # times in a row that rings were heard, and all for nobody here, before they are taken for a flood
)
WASTED = 0.005  # seconds of computing on such rings, likewise

Place: TypeAlias = tuple[bool, frozenset[int]]
NOBODY: frozenset[int] = frozenset()
GONE: Place = (True, NOBODY)


class Ear:
    """Somebody who waits for a topic: a claim of a resource, or anything `changed` can look at."""

    __slots__ = ("__weakref__", "changed", "placed", "resource", "signal", "topic")

    def __init__(
        self,
        topic: str,
        signal: Signal,
        resource: str = "",
        changed: Callable[[sqlite3.Connection], bool] | None = None,
    ) -> None:
        self.topic = topic
        self.signal = signal
        self.resource = resource
        self.changed = changed
        self.placed = False  # whether its place in the queue has been looked at


class Listener:
    """Sets the signals of those who wait, when they are rung or when it finds that they should have been."""

    def __init__(self, database: Database) -> None:
        self.bell = Doorbell()
        self._database = database  # its own connection: whether *others* have written is told per connection
        self._guard = native.guard()  # a finalizer may call us from within
        # Weakly: an interrupt can keep a waiter from being forgotten, and nobody would wait for it for ever.
        self._ears: dict[str, list[weakref.ref[Ear]]] = {}
        self._thread: threading.Thread | None = None
        self._seen = (0, 0)
        self._pause = NET if available() else NO_BELL
        self._watched: dict[
            int, list[weakref.ref[Ear]]
        ] = {}  # by the life whose end would let them come nearer
        self._nonsense = 0
        self._wasted = 0.0
        self._deaf_until = 0.0
        self._closed = False

    def listen(self, ear: Ear) -> None:
        """From now on a ring for the topic sets the signal. Look once more after this, then wait.

        Raises `StoreUnavailable` if there is no thread to be had that could hear it: the next try may work.
        """
        with self._guard:
            self._ears.setdefault(ear.topic, []).append(weakref.ref(ear))
            if self._thread is None and not self._closed:
                self._start()

    def _start(self) -> None:
        try:
            self.bell.hang()
            self._thread = threading.Thread(target=self._run, name="interlock-doorbell", daemon=True)
            self._thread.start()
        except (OSError, RuntimeError) as error:  # no descriptor, or no thread
            raise StoreUnavailable(
                f"{self._database.path}: nobody can be woken, for want of resources: {error}"
            ) from error
        finally:
            if self._thread is not None and not self._thread.is_alive():
                self._thread = None  # one that did not start must not be taken for one that runs

    def forget(self, ear: Ear) -> None:
        with self._guard:
            ears = [other for other in self._ears.get(ear.topic, ()) if other() not in (ear, None)]
            if ears:
                self._ears[ear.topic] = ears
            else:
                self._ears.pop(ear.topic, None)

    def _listening(self) -> list[Ear]:
        """Everybody who waits. Those who went without a word are forgotten."""
        with self._guard:
            found: list[Ear] = []
            for topic, references in list(self._ears.items()):
                ears = [ear for reference in references if (ear := reference()) is not None]
                found += ears
                if not ears:
                    del self._ears[topic]
            return found

    def hang(self) -> str:
        """The address to leave in a row: '' where there are no doorbells, or no descriptor for one."""
        if not self.bell.address:
            with self._guard, suppress(OSError):
                self.bell.hang()
        return self.bell.address

    def ring(self, calls: dict[str, list[str]]) -> None:
        """Wake those whom a transaction has let in: ours at once, others by datagram."""
        for address, topics in calls.items():
            if address == self.bell.address:
                self._wake(topics)
            else:
                self.bell.ring(address, topics)

    def _wake(self, topics: list[str]) -> bool:
        """Whether anybody here was meant."""
        with self._guard:
            references = [reference for topic in topics for reference in self._ears.get(topic, ())]
        for reference in references:
            ear = reference()
            if ear is not None:
                ear.signal.set()
        return bool(references)

    def close(self) -> None:
        with self._guard:
            self._closed = True
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self.bell.ring(self.bell.address, [""])  # so that it looks up
            thread.join(2 * NET + 1.0)
        self._database.close()
        self.bell.take_down()

    def after_fork(self) -> None:
        """In a forked child: nobody of ours waits yet, and no thread runs."""
        self._guard = native.guard()
        self._ears = {}
        self._thread = None
        self.bell.after_fork()

    # ---- the thread ---------------------------------------------------------------

    def _run(self) -> None:
        look_at = beat_at = idle_at = time.monotonic()
        while True:
            self._hear(min(look_at, beat_at) - time.monotonic())
            now = time.monotonic()
            with self._guard:
                if self._ears:
                    idle_at = now + IDLE
                if self._closed or now >= idle_at:
                    self._thread = None
                    return
            if now >= look_at:
                self._look()
                look_at = now + max(self._pause, min(LONGEST, SHARE * (time.monotonic() - now)))
            if now >= beat_at:
                self._mourn()
                beat_at = now + NET

    def _hear(self, timeout: float) -> None:
        if not self.bell.address or self._deaf():
            time.sleep(max(0.0, timeout))
            return
        began = time.thread_time()
        try:
            topics = self.bell.hear(timeout)
        except OSError:  # the socket is gone, or out of memory: the net has to do
            time.sleep(max(0.0, timeout))
            return
        if not topics:
            return
        if self._wake(topics):
            self._nonsense, self._wasted = 0, 0.0
            return
        self._nonsense += 1
        self._wasted += time.thread_time() - began
        if self._nonsense > NONSENSE or self._wasted > WASTED:
            self._deaf_until = time.monotonic() + max(DEAF, SHARE * self._wasted)
            self._pause, self._wasted = DEAF, 0.0

    def _deaf(self) -> bool:
        return time.monotonic() < self._deaf_until

    def _look(self) -> None:
        """Look for what was changed without a ring reaching us."""
        try:
            missed = self._database.run(self._database.clock.now() + NET, self._missed)
        except InterlockError:
            return  # whoever waits learns it from its own next call
        for ear in missed:
            ear.signal.set()
        if available():
            self._pause = DEAF if missed or self._deaf() else min(NET, self._pause * 2)

    def _missed(self, connection: sqlite3.Connection) -> list[Ear]:
        (version,) = connection.execute("pragma data_version").fetchone()
        now_seen = (self._database.opened, version)
        ears = (
            self._listening()
        )  # after the version: who listens later looks for itself, and sees what it has
        if now_seen == self._seen and all(ear.placed for ear in ears):
            return []
        places: dict[str, dict[str, Place]] = {}
        watched: dict[int, list[weakref.ref[Ear]]] = {}
        missed: list[Ear] = []
        for ear in ears:
            if ear.changed is not None:
                changed = not ear.signal.is_set() and ear.changed(connection)
            else:
                if ear.resource not in places:
                    places[ear.resource] = dict(_places(connection, ear.resource))
                changed, lives = places[ear.resource].get(ear.topic[1:], GONE)
                for life in lives:
                    watched.setdefault(life, []).append(weakref.ref(ear))
            ear.placed = True
            if changed and not ear.signal.is_set():
                missed.append(ear)
        self._watched = watched
        self._seen = now_seen  # at the end: whoever is interrupted in between has seen nothing
        return missed

    def _mourn(self) -> None:
        """Wake those for whom the death of another process makes a difference."""
        alive = self._database.presence.alive
        for life, references in self._watched.items():
            if not alive(life):
                for reference in references:
                    if (ear := reference()) is not None:
                        ear.signal.set()


def _places(connection: sqlite3.Connection, resource: str) -> Iterator[tuple[str, Place]]:
    """For each claim of a resource whether it was rung, and whose death would let it come nearer."""
    holders: set[int] = set()
    lives: frozenset[int] = NOBODY
    for id, rung, state, life in connection.execute(CLAIMS["rung"], (resource,)):
        if state == WAITS:
            yield id, (rung != 0, lives or frozenset(holders))
            lives = frozenset((life,))
        else:
            yield id, (rung != 0, NOBODY)
            holders.add(life)
