"""Wakes all waiters of a store: receives the doorbell's rings, and polls the file for changes without a ring.

A thread that waits alone does both itself, so that a ring wakes it directly. As soon as others wait as well,
or tasks of an event loop do, a thread of the notifier does it for all of them, and ends when it has not been
needed for a while. However many waiters there are, they share one socket, one thread and one connection,
which is only used to read.

Two things happen without a ring: a ring gets lost, or a process dies. Each waiter watches the life of the
process just ahead of it, and the first in the queue watches those of the holders (see `file.liveness`).
However many processes die at once, the first waiter that is alive finds out, and its next claim removes all
of them.

Any process on the machine may send datagrams, so they must not cost more than a small part of a core. If too
many come in that are for no waiter here, the thread ignores its doorbell for a while and polls more often
instead. Rings for waiters do not excuse the others: a stranger could send its datagrams between them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from interlock._support import clock, native
from interlock.backends.kit.waiters import WeakWaiters, notify
from interlock.backends.sql.sqlite.doorbell import DATAGRAMS_PER_READ, UNKNOWN, Doorbell, available
from interlock.backends.sql.sqlite.file.critical_section import CriticalSection
from interlock.backends.sql.sqlite.file.database import Database, unmask
from interlock.backends.sql.sqlite.steps import READS
from interlock.backends.sql.sqlite.tables.statements import CLAIMS
from interlock.backends.sql.sqlite.tables.transaction import Transaction
from interlock.backends.sql.steps import WAITS
from interlock.backends.sql.waking import Waiter
from interlock.errors import InterlockError, StoreUnavailable

if TYPE_CHECKING:
    from interlock.backends.kit.wake_pipe import WakePipe
    from interlock.backends.sql.sqlite.bell_reader import BellReader

POLL_PERIOD_S = 0.05  # seconds between two polls for missed rings, and between two checks for dead processes
BELL_LESS_POLL_PERIOD_S = 0.01  # the same where there are no doorbells: polling is all there is
# The same after a missed ring: rings may not reach us at all (another network namespace).
MISSED_RING_POLL_PERIOD_S = 0.005
# The thread spends at most one part in 20 of its time on polls, and one on rings for nobody.
PAUSE_PER_POLL = 20
# Seconds between two polls at most: on a busy machine a poll only seems to take long.
MAX_POLL_PERIOD_S = 0.25
IDLE_STOP_S = 5.0  # seconds that the thread outlives the last who needed it
# More seconds than this, spent on rings for nobody here, are a flood; each second forgives one part in
# `PAUSE_PER_POLL`.
WASTED_S = 0.005
# Seconds that such a reception counts at least: the kernel has had work with it, too.
MIN_RECEPTION_S = 0.0002

NOBODY: frozenset[int] = frozenset()


class Polled(NamedTuple):
    """What a poll found about one claim: whether it stands, was rung, and whose death would let it come
    nearer.
    """

    stands: bool
    rung: bool
    lives: frozenset[int]


GONE = Polled(False, True, NOBODY)


class Notifier:
    """Sets the signals of waiters, when a ring arrives for them or a poll finds that one should have: see
    `Waking`.
    """

    def __init__(self, database: Database) -> None:
        self.doorbell = Doorbell()
        # A connection of its own: `data_version` tells for each connection whether *others* have written.
        self._database = database
        self._mutex = native.mutex()  # a finalizer may call us from within
        self._waiters: WeakWaiters[str, Waiter] = WeakWaiters()
        self._thread: threading.Thread | None = None  # None: at most one waits, and its thread reads
        self._reading = CriticalSection()  # of a waiter that reads: what it polls must not be closed
        self._pipe: WakePipe | None = None  # wakes it
        self._poll_at = self._check_at = 0.0
        self._seen = (0, 0)
        self._pause = POLL_PERIOD_S if available() else BELL_LESS_POLL_PERIOD_S
        self._watched: WeakWaiters[int, Waiter] = WeakWaiters()  # by the life whose end brings them nearer
        self._wasted = 0.0
        self._wasted_at = 0.0  # when that was so
        self._deaf_until = 0.0
        self._closed = False

    def listen(self, waiter: Waiter) -> None:
        """Raises `StoreUnavailable` if no thread can be started to receive rings: the next try may work."""
        with self._mutex:
            # Without a thread at most one waits: see `_thread`.
            others = [] if self._thread is not None else self._waiters.everyone()
            self._waiters.add(waiter, *waiter.topics)
            closed = self._closed
            if self._thread is None and not self._closed and (others or not self._may_read(waiter)):
                self._start()
                for reading in others:  # no waiter should depend on a thread that may leave at any time
                    if (wake := reading.wake) is not None:
                        wake()
        if closed:  # nobody would wake it any more
            notify([waiter])

    def _may_read(self, waiter: Waiter) -> bool:
        """Whether the waiter's own thread can read the bell; not where greenlets share it, or for lack of
        descriptors.
        """
        if not waiter.reads or not available() or native.green() or native.green("socket"):
            return False
        from interlock.backends.kit.wake_pipe import WakePipe  # here, not above: it needs sockets

        with suppress(OSError):
            self.doorbell.hang()
            self._pipe = self._pipe or WakePipe()
            return True
        return False

    def _start(self) -> None:
        try:
            self.doorbell.hang()
            self._thread = native.Thread(target=self._run, name="interlock-doorbell", daemon=True)
            self._thread.start()
        except (OSError, RuntimeError) as error:  # no descriptor, or no thread
            raise StoreUnavailable(
                f"{self._database.path}: waiters cannot be woken, for lack of resources: {error}"
            ) from error
        finally:
            if self._thread is not None and not self._thread.is_alive():
                self._thread = None  # one that did not start must not be taken for one that runs

    def forget(self, waiter: Waiter) -> None:
        with self._mutex:
            self._waiters.remove(waiter, *waiter.topics)

    def subscribed(self, waiter: Waiter) -> bool:
        return True  # the bell hangs, if there is one to be had; if not, the thread polls

    def wake(self, topic: str) -> None:
        if topic in self._waiters.topics:
            self._wake([topic])

    def _listening(self) -> list[Waiter]:
        """Everybody who waits."""
        with self._mutex:
            return self._waiters.everyone()

    @property
    def bell(self) -> str:
        return self.doorbell.address

    def hang(self) -> str:
        """Return the address of our bell for a row; '' if there are no doorbells here, or no free
        descriptor for one.
        """
        if not self.doorbell.address:
            with self._mutex, suppress(OSError):
                self.doorbell.hang()
        return self.doorbell.address

    def ring(self, rings: dict[str, list[str]]) -> None:
        """Wake the waiters that a committed transaction rings: those of this store directly, others by a
        datagram.
        """
        for address, topics in rings.items():
            if address != self.doorbell.address:
                self.doorbell.ring(address, topics)
            elif self._waiters.topics:  # whoever listens later looks at the file, and sees what was committed
                self._wake(topics)

    def _wake(self, topics: list[str]) -> bool:
        """Whether anybody here was meant."""
        with self._mutex:
            waiters = [waiter for topic in topics for waiter in self._waiters.of(topic)]
        notify(waiters)
        return bool(waiters)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self.doorbell.ring(self.doorbell.address, [""])  # so that it looks up
            thread.join(2 * POLL_PERIOD_S + 1.0)
        notify(self._listening())
        self._database.close()
        self._take_down()

    def _take_down(self) -> None:
        """Close what is polled; if a waiter still polls it, that is left to its thread."""
        section, missed = self._reading, False
        if section.owned():
            return  # in a signal handler of that thread
        try:
            with section:
                if section.take(True, 1.0):
                    self._close_sockets()
                    return
                missed = True
        except RuntimeError as error:
            unmask(error, missed)

    def _close_sockets(self) -> None:
        self.doorbell.take_down()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()

    def __del__(self) -> None:
        if self._pipe is not None:
            self._pipe.close()

    def after_fork(self) -> None:
        """In a forked child: nobody of ours waits yet, and no thread runs."""
        self._mutex = native.mutex()
        self._waiters = WeakWaiters()
        self._thread = None
        self._reading = CriticalSection()
        self.doorbell.after_fork()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close()  # our copies of the parent's

    # ---- a waiter that is alone -----------------------------------------------------

    def wait(self, waiter: Waiter, timeout: float) -> float:
        """Read the bell on the calling thread until it is rung for its waiter, while no thread of ours does.

        Returns for how many seconds the waiter has still to wait for its signal; 0.0 if the wait is over.
        """
        until = clock.now() + timeout
        section, missed = self._reading, True
        if self._thread is None and not section.owned():
            try:
                with section:
                    if section.take(False):
                        missed = False
                        if self._read(waiter, until):
                            return 0.0
            except RuntimeError as error:
                unmask(error, missed)
        with self._mutex:
            if self._thread is None and not self._closed:
                self._start()
        return max(0.0, until - clock.now())

    def _read(self, waiter: Waiter, until: float) -> bool:
        """Whether the wait is over."""
        from interlock.backends.sql.sqlite.bell_reader import BellReader  # here, not above: as in `_may_read`

        if (pipe := self._pipe) is None or not self.doorbell.address:
            return False
        reader = BellReader(waiter.signal, waiter.topics, self.doorbell, pipe)
        waiter.wake = reader.wake
        try:
            while self._thread is None and not self._closed:
                if (now := clock.now()) >= until or waiter.is_set():
                    return True
                if self._receive(min(until, self._poll_at, self._check_at) - now, reader, waiter):
                    return True
                self._look_around()
            return False
        finally:
            waiter.wake = None
            if self._closed:
                self._close_sockets()

    # ---- the thread ---------------------------------------------------------------

    def _run(self) -> None:
        idle_at = clock.now() + IDLE_STOP_S
        while True:
            self._receive(min(self._poll_at, self._check_at) - clock.now(), self.doorbell)
            now = clock.now()
            with self._mutex:
                if self._needed():
                    idle_at = now + IDLE_STOP_S
                if self._closed or (now >= idle_at and not self._waiters):
                    self._thread = None
                    return
            self._look_around()

    def _needed(self) -> bool:
        """Whether anybody waits who could not do without the thread."""
        if len(self._waiters.topics) > 1:
            return True
        waiters = self._waiters.everyone()
        return len(waiters) > 1 or not all(waiter.reads for waiter in waiters)

    # ---- both -----------------------------------------------------------------------

    def _look_around(self) -> None:
        """Poll, and look for dead processes, if it is time."""
        now = clock.now()
        if now >= self._poll_at:
            self._poll()
            self._poll_at = now + max(
                self._pause, min(MAX_POLL_PERIOD_S, PAUSE_PER_POLL * (clock.now() - now))
            )
        if now >= self._check_at:
            self._check_lives()
            self._check_at = now + POLL_PERIOD_S

    def _receive(self, timeout: float, bell: Doorbell | BellReader, reading: Waiter | None = None) -> bool:
        """Wait for a ring and wake those it is meant for; whether that is only the waiter whose thread is
        `reading`.
        """
        if not self.doorbell.address or (self._deaf_until and self._ignores_rings()):
            bell.pause(timeout)
            return False
        began = time.thread_time() if self._wasted else 0.0  # a first ring for nobody is not worth a clock
        try:
            # One at a time, or a waiter would wait for a look at the next ring; all together once some are
            # for nobody.
            topics = bell.receive(timeout, DATAGRAMS_PER_READ if self._wasted else 1)
        except OSError:  # the socket is gone, or out of memory: the net has to do
            bell.pause(timeout)
            return False
        if not topics:
            return False
        alone = reading is not None and self._is_alone(reading, topics)
        if not alone and (not self._wake(topics) or UNKNOWN in topics):
            self._waste(time.thread_time() - began if began else 0.0)
        elif self._wasted:
            self._waste(0.0, least=0.0)
        return alone

    def _waste(self, seconds: float, least: float = MIN_RECEPTION_S) -> None:
        """Count what a reception with rings for nobody took; stop listening for a while if that is too
        much.
        """
        now = clock.now()
        left = max(0.0, self._wasted - (now - self._wasted_at) / PAUSE_PER_POLL)
        self._wasted, self._wasted_at = left + max(least, seconds), now
        if self._wasted > WASTED_S:
            self._deaf_until = now + max(MISSED_RING_POLL_PERIOD_S, PAUSE_PER_POLL * seconds)
            self._pause = MISSED_RING_POLL_PERIOD_S

    def _is_alone(self, waiter: Waiter, topics: list[str]) -> bool:
        """Whether the topics are this waiter's, and nobody else waits: then nobody has to be looked up or
        set.
        """
        waiting = self._waiters.topics
        return len(waiting) == 1 and waiter.topics == (*topics,) and len(waiting.get(topics[0], ())) == 1

    def _ignores_rings(self) -> bool:
        return clock.now() < self._deaf_until

    def _poll(self) -> None:
        """Wake waiters for whom something has changed although no ring reached us."""
        try:
            missed = self._database.read(self._database.clock.now() + POLL_PERIOD_S, self._missed)
        except InterlockError:
            return  # a waiter learns of it from its own next call
        notify(missed)
        if available():
            self._pause = (
                MISSED_RING_POLL_PERIOD_S
                if missed or self._ignores_rings()
                else min(POLL_PERIOD_S, self._pause * 2)
            )

    def _missed(self, tx: Transaction) -> list[Waiter]:
        (version,) = tx.execute("pragma data_version").fetchone()
        now_seen = (self._database.opened, version)
        waiters = (
            self._listening()
        )  # after the version: who listens later looks for itself, and sees what it has
        if now_seen == self._seen and all(waiter.polled for waiter in waiters):
            return []
        polled: dict[str, dict[str, Polled]] = {}
        watched: WeakWaiters[int, Waiter] = WeakWaiters()
        missed: list[Waiter] = []
        for waiter in waiters:
            if (change_read := waiter.change_read) is not None:
                changed = not waiter.is_set() and change_read.changed(
                    READS[change_read.step](tx, *change_read.args)
                )
            else:
                if waiter.resource not in polled:
                    polled[waiter.resource] = dict(_poll_claims(tx, waiter.resource))
                stands, rung, lives = polled[waiter.resource].get(waiter.topics[0][1:], GONE)
                # A holder was rung when it came in, and nothing has cleared that if it saw so with a look.
                changed = not stands if waiter.holds else rung
                for life in lives:
                    watched.add(waiter, life)
            waiter.polled = True
            if changed and not waiter.is_set():
                missed.append(waiter)
        self._watched = watched
        self._seen = now_seen  # at the end: whoever is interrupted in between has seen nothing
        return missed

    def _check_lives(self) -> None:
        """Wake the waiters that watch a process which has died."""
        alive = self._database.liveness.alive
        for life in self._watched.topics:
            if not alive(life):
                notify(self._watched.of(life))


def _poll_claims(tx: Transaction, resource: str) -> Iterator[tuple[str, Polled]]:
    """Yield for each claim of a resource what a poll tells of it."""
    holders: set[int] = set()
    lives: frozenset[int] = NOBODY
    for id, rung, state, life in tx.execute(CLAIMS["rung"], (resource,)):
        if state == WAITS:
            yield id, Polled(True, rung != 0, lives or frozenset(holders))
            lives = frozenset((life,))
        else:
            yield id, Polled(True, rung != 0, NOBODY)
            holders.add(life)
