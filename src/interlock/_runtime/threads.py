"""The blocking runtime: an await blocks the calling thread and never suspends."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from interlock._core.drive import drive
from interlock._core.runtime import Job, Mutex, Owner, Signal
from interlock._runtime import identity, with_statements
from interlock._support import clock, native
from interlock._support.waiting import only_waits


def new_mutex() -> Mutex:
    """A lock that knows which thread is inside.

    A garbage collector or a signal may run code of ours while its thread is inside, and that code must know.
    """
    return native.mutex()


class ThreadSignal(threading.Event):
    """An event that is set once, made of a single lock.

    Not of a condition, as `threading.Event` is: Ctrl-C inside the methods of a condition can leave its lock
    held for ever, and then the keeper, or whoever sets the event next, would hang.
    """

    def __init__(self) -> None:
        self._flag = False
        self._gate = threading.Lock()
        self._gate.acquire()  # held until it is set; open for everyone from then on

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        try:
            self._gate.release()
        except RuntimeError:
            pass  # it was open

    def clear(self) -> None:
        raise RuntimeError("what has happened cannot be taken back")

    @only_waits
    def wait(self, timeout: float | None = None) -> bool:
        try:
            if not self._flag:
                self._gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        finally:
            if self._flag:  # others that wait beside us must get through the gate, too
                try:
                    self._gate.release()
                except RuntimeError:
                    pass  # another has opened it
        return self._flag


class ThreadJob:
    """A daemon thread that drives one coroutine."""

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._begin()
        self.thread = native.Thread(target=self._run, args=(work,), name=name, daemon=True)
        self.thread.start()

    def _begin(self) -> None:
        """Be alive from here on, until the work is over."""
        self._running = native.original("allocate_lock")()
        self._running.acquire()
        # The lock's own method, and not the thread's is_alive(): every lease asks.
        self.alive: Callable[[], bool] = self._running.locked

    def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            drive(work())
        finally:
            self._running.release()


class Deliveries:
    """Calls that are made one after the other on a thread of their own, which ends when there are none left.

    The keeper tells listeners of what happened in this way: a slow one must not cost anybody a lease.
    """

    MAX_QUEUED = 10_000  # a listener that never returns must not fill the memory: the oldest are dropped

    def __init__(self) -> None:
        self._process = os.getpid()
        self._mutex = new_mutex()
        self._waiting: deque[tuple[Callable[[Any], object], object]] = deque(maxlen=self.MAX_QUEUED)
        self._thread: threading.Thread | None = None

    def add(self, deliver: Callable[[Any], object], argument: object) -> None:
        if self._process != os.getpid():
            # Forked: the calls that wait are the parent's to make, and one of its threads may have had the
            # mutex.
            self.__init__()  # type: ignore[misc]
        with self._mutex:
            self._waiting.append((deliver, argument))
            if self._thread is not None and self._thread.is_alive():
                return
            thread = native.Thread(target=self._run, name="interlock-listener", daemon=True)
            with suppress(RuntimeError):  # no thread to be had: the next delivery tries again
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while True:
            with self._mutex:
                if not self._waiting:
                    self._thread = None
                    return
                deliver, argument = self._waiting.popleft()
            with suppress(Exception):
                deliver(argument)


class Threads:
    """Waits by blocking. Safe to use from any number of threads at once."""

    def __init__(self, report: Callable[[BaseException, Any], object] | None = None) -> None:
        self._report = report
        self._deliveries = Deliveries()
        self.who: Callable[[Owner], str] = identity.describe

    now = staticmethod(clock.now)

    def random(self) -> float:
        return int.from_bytes(os.urandom(4), "big") / 2**32

    fresh_id = staticmethod(identity.fresh_id)

    owner = runner = staticmethod(identity.thread_owner)

    def mutex(self) -> Mutex:
        return new_mutex()

    def signal(self) -> ThreadSignal:
        return ThreadSignal()

    @only_waits
    async def wait(self, signal: Signal, timeout: float | None) -> bool:
        assert isinstance(signal, threading.Event)
        if timeout is None:
            return signal.wait()
        return signal.wait(min(timeout, threading.TIMEOUT_MAX))

    @only_waits
    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def spawn(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Job:
        return ThreadJob(name, work)

    async def join(self, job: Job, timeout: float) -> None:
        assert isinstance(job, ThreadJob)
        if job.thread is not threading.current_thread():
            job.thread.join(timeout)

    async def finish(self, cleanup: Callable[[], Awaitable[object]]) -> None:
        try:
            await cleanup()
        except (KeyboardInterrupt, SystemExit):
            # Ctrl-C in the middle of giving back: other waiters of the lock must not pay for it.
            await cleanup()
            raise

    def interrupt(self, owner: Owner, wanted: Callable[[], bool]) -> None:
        """A thread cannot be interrupted; sync code learns of a loss at check() and at exit."""

    def call(self, callback: Callable[[Any], object], argument: object) -> None:
        def run() -> None:
            try:
                callback(argument)
            except Exception as error:
                if self._report is not None:
                    self._report(error, argument)

        # Its own thread: a callback that blocks must not stop the renewal of other leases.
        thread = native.Thread(target=run, name="interlock-callback", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads to be had; a loss untold would be worse than a renewal delayed
            run()

    def for_keeper(self) -> Threads:
        """The keeper's runtime beside this one."""
        return self

    sweep_statements = staticmethod(with_statements.sweep)

    def later(self, deliver: Callable[[Any], object], argument: object) -> None:
        self._deliveries.add(deliver, argument)

    def stalled(self) -> float:
        return 0.0


def blocking_runtime(report: Callable[[BaseException, Any], object] | None = None) -> Threads:
    """The runtime for callers on threads; in a program of greenlets, for callers on greenlets."""
    if not native.green():
        return Threads(report)
    from interlock._runtime.green import Green  # here, not above: few programs need it

    return Green(report)
