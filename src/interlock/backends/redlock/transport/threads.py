"""Threads that begin without a wait, and whose end is noticed however they end.

Not `threading.Thread`: its `start` waits until the new thread runs. An exception that is thrown into a thread while it is in
there (`PyThreadState_SetAsyncExc`, as dramatiq and func_timeout do) can end the new thread instead, on Python 3.11; then
`start` waits for ever, and with it the caller's lock.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from interlock.backends.redis.transport.handshake import stepped
from interlock.ports import Job


class Life:
    """Goes when its thread does."""

    __slots__ = ("ended", "work")

    def __init__(self, work: Callable[[], object], ended: Callable[[], object]) -> None:
        self.work = work
        self.ended: Callable[[], object] | None = ended

    def end(self) -> None:
        ended, self.ended = self.ended, None
        if ended is not None:
            ended()

    def __del__(self) -> None:
        self.end()


def begin(work: Callable[[], object], ended: Callable[[], object]) -> None:
    """Do `work` on a new thread, and `ended` when that is over; RuntimeError if no thread can be had."""
    life = Life(work, ended)
    try:
        _thread.start_new_thread(_run, (life,))
    except BaseException:
        life.ended = None
        raise


def _run(life: Life) -> None:
    try:
        life.work()
    finally:
        life.end()  # not only when it goes: an error that somebody keeps may keep this frame, too


class ThreadJob:
    """A thread that steps one coroutine which never suspends."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._running = True
        begin(lambda: stepped(work()), self._end)

    def _end(self) -> None:
        self._running = False

    def alive(self) -> bool:
        return self._running


class OnThreads:
    """The blocking runtime of a store: waits on the calling thread, and runs things beside it on threads."""

    def __init__(self, now: Callable[[], float], signal: Callable[[], Any] = threading.Event) -> None:
        self.now = now
        self.signal = signal

    async def wait(self, signal: threading.Event, timeout: float | None) -> bool:
        return signal.wait(timeout)

    def spawn(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Job:
        return ThreadJob(work)
