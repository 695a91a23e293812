"""The part of a runtime that stores use: to wait, and to run things beside the caller.

Every asyncio store has a blocking side for plain threads (the keeper's, and the end of the process). It waits
by `ThreadRuntime`, as the stores of Redis, Redlock and SQLite do. The store itself is handed the runtime of
its client, which waits in the same way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from interlock._core.drive import drive
from interlock._core.runtime import Job, Signal
from interlock._support import native
from interlock._support.waiting import only_waits


class WaitRuntime(Protocol):
    """The part of a runtime that waits."""

    def now(self) -> float: ...
    def signal(self) -> Signal: ...
    def wait(self, signal: Any, timeout: float | None) -> Coroutine[Any, Any, bool]: ...


class StoreRuntime(WaitRuntime, Protocol):
    """The part of a runtime that waits, and runs work beside the caller."""

    def spawn(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Job: ...


class ThreadRuntime:
    """Waits on the calling thread, and runs things beside it on threads."""

    def __init__(self, now: Callable[[], float], signal: Callable[[], Any] = threading.Event) -> None:
        self.now = now
        self.signal = signal

    @only_waits
    async def wait(self, signal: threading.Event, timeout: float | None) -> bool:
        return signal.wait(timeout)

    def spawn(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Job:
        return _ThreadJob(work)


class _ThreadJob:
    """A thread that runs one coroutine which never suspends.

    Its start waits for nothing: the caller may have a lock.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._running = True
        native.begin(lambda: drive(work(), nested=True), self._end)

    def _end(self) -> None:
        self._running = False

    def alive(self) -> bool:
        return self._running
