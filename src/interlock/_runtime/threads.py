"""The blocking runtime: an await blocks the calling thread and never suspends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from typing import Any

from interlock._core.drive import drive
from interlock._runtime import clock, identity
from interlock.ports import Job, Owner, Signal


class ThreadSignal(threading.Event):
    """An event that is set once, made of a single lock.

    Not of a condition, as `threading.Event` is: Ctrl-C inside the methods of a condition can leave its lock held
    for ever, and then the keeper, or whoever sets the event next, would hang.
    """

    def __init__(self) -> None:
        self._flag = False
        self._gate = threading.Lock()
        self._gate.acquire()  # held until it is set; open for everyone from then on

    def is_set(self) -> bool:
        return self._flag

    def set(self) -> None:
        self._flag = True
        with suppress(RuntimeError):  # it was open
            self._gate.release()

    def clear(self) -> None:
        raise RuntimeError("what has happened cannot be taken back")

    def wait(self, timeout: float | None = None) -> bool:
        try:
            if not self._flag:
                self._gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        finally:
            if self._flag:  # whoever waits beside us must get through the gate, too
                with suppress(RuntimeError):
                    self._gate.release()
        return self._flag


class ThreadJob:
    """A daemon thread that drives one coroutine."""

    def __init__(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        self._running = True
        self.thread = threading.Thread(target=self._run, args=(coroutine,), name=name, daemon=True)
        self.thread.start()

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            drive(coroutine)
        finally:
            self._running = False

    def alive(self) -> bool:
        return self._running  # not the thread's is_alive(): asked for every lease, it takes a lock


class Threads:
    """Waits by blocking. Safe to use from any number of threads at once."""

    def __init__(self, report: Callable[[BaseException, Any], object] | None = None) -> None:
        self._report = report

    now = staticmethod(clock.now)

    def random(self) -> float:
        return int.from_bytes(os.urandom(4), "big") / 2**32

    fresh_id = staticmethod(identity.fresh_id)

    owner = staticmethod(identity.thread_owner)

    who = staticmethod(identity.describe)

    def guard(self) -> AbstractContextManager[object]:
        return threading.Lock()

    def signal(self) -> ThreadSignal:
        return ThreadSignal()

    async def wait(self, signal: Signal, timeout: float | None) -> bool:
        assert isinstance(signal, threading.Event)
        if timeout is None:
            return signal.wait()
        return signal.wait(min(timeout, threading.TIMEOUT_MAX))

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> Job:
        return ThreadJob(name, coroutine)

    async def join(self, job: Job, timeout: float) -> None:
        assert isinstance(job, ThreadJob)
        if job.thread is not threading.current_thread():
            job.thread.join(timeout)

    async def finish(self, cleanup: Callable[[], Awaitable[object]]) -> None:
        try:
            await cleanup()
        except (KeyboardInterrupt, SystemExit):
            # Ctrl-C in the middle of giving back: whoever waits for the lock must not pay for it.
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
        thread = threading.Thread(target=run, name="interlock-callback", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads to be had; a loss untold would be worse than a renewal delayed
            run()

    def stalled(self) -> float:
        return 0.0
