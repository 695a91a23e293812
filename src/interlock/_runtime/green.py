"""Runtimes for programs of greenlets (gevent, eventlet): callers wait as greenlets do, the keeper runs on a
thread.

Greenlets of one thread take turns: while one computes, no other runs. The keeper must not be one of them. It
runs on a thread of the system and waits only for locks of the system. It wakes greenlets through a pair of
sockets, because another thread cannot safely open the locks of these libraries.
"""

from __future__ import annotations

import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from interlock._core.runtime import Job, Signal
from interlock._runtime.threads import Deliveries, ThreadJob, Threads, ThreadSignal
from interlock._support import native
from interlock._support.waiting import only_waits

JOIN_POLL_S = 0.005  # seconds between looks at a thread that is to end


class GreenSignal(ThreadSignal):
    """A flag that greenlets wait for, and any thread of the system may raise."""

    def __init__(self) -> None:
        self._flag = False
        self._bells: list[Callable[[], object]] = []  # each wakes one that waits

    def set(self) -> None:
        self._flag = True
        for ring in list(self._bells):
            with suppress(OSError):  # it rings already, or nobody waits there any more
                ring()

    @only_waits
    def wait(self, timeout: float | None = None) -> bool:
        if self._flag or (timeout is not None and timeout <= 0):
            return self._flag
        if native.no_greenlets():
            # Not by sockets: gevent would make a hub for them on this thread. See `native.run`.
            gate = NativeSignal()
            self._listen(gate.set, lambda: gate.wait(timeout))
            return self._flag
        heard, bell = socket.socketpair()
        try:
            bell.setblocking(False)  # ringing never waits
            heard.settimeout(timeout)
            self._listen(partial(bell.send, b"!"), lambda: heard.recv(1))
        finally:
            heard.close()
            bell.close()
        return self._flag

    def _listen(self, ring: Callable[[], object], hear: Callable[[], object]) -> None:
        self._bells.append(ring)
        try:
            if not self._flag:  # raised by another thread since the first look
                with suppress(TimeoutError):
                    hear()
        finally:
            with suppress(ValueError):
                self._bells.remove(ring)


class NativeSignal(ThreadSignal):
    """A flag that a thread of the system waits for; for greenlets, too, to raise."""

    def __init__(self) -> None:
        self._flag = False
        self._gate = native.original("allocate_lock")()
        self._gate.acquire()


class NativeJob(ThreadJob):
    """A thread of the system that drives one coroutine."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._begin()
        self.gone = False
        self.ident = native.run(lambda: self._run(work), self._go)

    def _go(self) -> None:
        self.gone = True


class Green(Threads):
    """Waits as greenlets do."""

    def __init__(self, report: Callable[[BaseException, Any], object] | None = None) -> None:
        super().__init__(report)
        self._hub = _hub()
        self._told: deque[tuple[Callable[[Any], object], object]] = deque(maxlen=Deliveries.MAX_QUEUED)
        self._telling = False

    def signal(self) -> GreenSignal:
        return GreenSignal()

    def for_keeper(self) -> Threads:
        return Native(self._report)

    def call(self, callback: Callable[[Any], object], argument: object) -> None:
        """Call it among the greenlets of the thread where this was made, because it is a user's callback.

        On a thread of the system with eventlet, whose greenlets nothing can reach from outside.
        """

        def run() -> None:
            try:
                callback(argument)
            except Exception as error:
                if self._report is not None:
                    self._report(error, argument)

        _post(self._hub, run)

    def later(self, deliver: Callable[[Any], object], argument: object) -> None:
        self._told.append((deliver, argument))
        _post(self._hub, self._tell)

    def _tell(self) -> None:
        """Deliver all that waits, in order: one at a time, however many greenlets were started for it."""
        with suppress(IndexError):
            while not self._telling:
                deliver, argument = self._told.popleft()
                self._telling = True
                try:
                    with suppress(Exception):
                        deliver(argument)
                finally:
                    self._telling = False


class Native(Green):
    """Waits and runs on threads of the system, whatever replaced those; for the keeper."""

    def signal(self) -> NativeSignal:  # type: ignore[override]
        return NativeSignal()

    async def wait(self, signal: Signal, timeout: float | None) -> bool:
        assert isinstance(signal, NativeSignal)
        return signal.wait(timeout)

    async def sleep(self, seconds: float) -> None:
        NativeSignal().wait(seconds)

    def spawn(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Job:
        return NativeJob(work)

    async def join(self, job: Job, timeout: float) -> None:
        """Wait as a greenlet does, so that the other greenlets go on.

        It waits not only until the work is over, but until the thread can do no harm to an interpreter that
        ends.
        """
        assert isinstance(job, NativeJob)
        end = self.now() + timeout
        while not job.gone and self.now() < end and job.ident != native.original("get_ident")():
            time.sleep(JOIN_POLL_S)


# ---- hubs ------------------------------------------------------------------------------


def _hub() -> Any:
    """The hub that runs the greenlets of the calling thread; None where no other thread can reach them."""
    return sys.modules["gevent"].get_hub() if native.green() == "gevent" else None


def _post(hub: Any, call: Callable[[], object]) -> None:
    """Make a call among the greenlets of a hub, from any thread; on a thread of the system where that
    cannot be.
    """
    if hub is None:
        native.run(call)
    else:
        hub.loop.run_callback_threadsafe(sys.modules["gevent"].spawn, call)
