"""One thread for all who wait through one store: it hears the doorbell, and looks for rings it missed.

It starts with the first who waits, and ends when nobody has waited for a while. However many wait, there
is one socket, one thread and one connection, used only to read.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable

from interlock.backends.sqlite.database import Database
from interlock.backends.sqlite.doorbell import Doorbell, available
from interlock.backends.sqlite.statements import CLAIMS
from interlock.errors import InterlockError
from interlock.ports import Signal

NET = 0.05  # seconds between looks for rings that were missed
NO_BELL = 0.01  # where there are no doorbells, looking is all there is
DEAF = 0.005  # after a miss: rings do not reach us (another network namespace), so look often
SHARE = 20  # of this thread's time at most one part in so many is spent looking
LONGEST = 0.25  # seconds between looks at most: on a busy machine a look only seems to take long
IDLE = 5.0  # seconds the thread outlives the last who waited


class Ear:
    """Somebody who waits for a topic: a claim of a resource, or anything `changed` can look at."""

    __slots__ = ("changed", "resource", "signal", "topic")

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


class Listener:
    """Sets the signals of those who wait, when they are rung or when it finds that they should have been."""

    def __init__(self, database: Database) -> None:
        self.bell = Doorbell()
        self._database = database  # its own connection: whether *others* have written is told per connection
        self._guard = threading.Lock()
        self._ears: dict[str, list[Ear]] = {}
        self._thread: threading.Thread | None = None
        self._seen = (0, 0)
        self._pause = NET if available() else NO_BELL
        self._closed = False

    def listen(self, ear: Ear) -> None:
        """From now on a ring for the topic sets the signal. Look once more after this, then wait."""
        with self._guard:
            self._ears.setdefault(ear.topic, []).append(ear)
            if self._thread is None and not self._closed:
                self.bell.hang()
                self._thread = threading.Thread(target=self._run, name="interlock-doorbell", daemon=True)
                self._thread.start()

    def forget(self, ear: Ear) -> None:
        with self._guard:
            ears = self._ears.get(ear.topic)
            if ears is not None:
                ears.remove(ear)
                if not ears:
                    del self._ears[ear.topic]

    def hang(self) -> str:
        """The address to leave in a row: '' where there are no doorbells."""
        if not self.bell.address:
            with self._guard:
                self.bell.hang()
        return self.bell.address

    def ring(self, calls: dict[str, list[str]]) -> None:
        """Wake those whom a transaction has let in: ours at once, others by datagram."""
        for address, topics in calls.items():
            if address == self.bell.address:
                self._wake(topics)
            else:
                self.bell.ring(address, topics)

    def _wake(self, topics: list[str]) -> None:
        with self._guard:
            signals = [ear.signal for topic in topics for ear in self._ears.get(topic, ())]
        for signal in signals:
            signal.set()

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
        self._guard = threading.Lock()
        self._ears = {}
        self._thread = None
        self.bell.after_fork()

    # ---- the thread ---------------------------------------------------------------

    def _run(self) -> None:
        look_at = idle_at = time.monotonic()
        while True:
            now = time.monotonic()
            self._hear(look_at - now)
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

    def _hear(self, timeout: float) -> None:
        if not self.bell.address:
            time.sleep(max(0.0, timeout))
            return
        try:
            self._wake(self.bell.hear(timeout))
        except OSError:  # the socket is gone, or out of memory: the net has to do
            time.sleep(max(0.0, timeout))

    def _look(self) -> None:
        """Look for what was changed without a ring reaching us."""
        try:
            missed = self._database.run(self._database.clock.now() + NET, self._missed)
        except InterlockError:
            return  # whoever waits learns it from its own next call
        for ear in missed:
            ear.signal.set()
        if available():
            self._pause = DEAF if missed else min(NET, self._pause * 2)

    def _missed(self, connection: sqlite3.Connection) -> list[Ear]:
        (version,) = connection.execute("pragma data_version").fetchone()
        now_seen = (self._database.opened, version)
        if now_seen == self._seen:
            return []
        with self._guard:  # after the version: who listens later looks for itself, and sees what it has
            ears = [ear for listening in self._ears.values() for ear in listening]
        rows: dict[str, dict[str, int]] = {}
        missed: list[Ear] = []
        for ear in ears:
            if ear.signal.is_set():
                continue
            if ear.changed is not None:
                changed = ear.changed(connection)
            else:
                if ear.resource not in rows:
                    rows[ear.resource] = dict(connection.execute(CLAIMS["rung"], (ear.resource,)))
                changed = rows[ear.resource].get(ear.topic[1:], 1) != 0
            if changed:
                missed.append(ear)
        self._seen = now_seen  # at the end: whoever is interrupted in between has seen nothing
        return missed
