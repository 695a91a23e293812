"""The interface through which the core waits, works in the background, and learns who is calling.

There are four runtimes: threads, greenlets and tasks (`_runtime/`), and a simulated one with virtual time
(`interlock.testing`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

BRIEF_S = 0.1
"""Seconds of the most common wait, in a line of the same client.

A runtime may end all waits of this length by one timer.
"""


class Owner(Protocol):
    """One thread or one task, as the owner of leases. Owners are compared by identity.

    `str(owner)` is `thread worker-7`.
    """

    @property
    def name(self) -> str: ...
    def alive(self) -> bool:
        """False once the thread or task has ended. May be called from any thread."""
        ...


class Signal(Protocol):
    """A flag that is set once and never cleared. `set` may be called from any thread."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...


class Mutex(Protocol):
    """A mutex around a few lines that never wait. It knows which thread is inside."""

    def __enter__(self) -> object: ...
    def __exit__(self, *exc_info: Any) -> object: ...
    def _is_owned(self) -> bool:
        """Whether the calling thread is inside."""
        ...


class Job(Protocol):
    """A thread or task that runs in the background."""

    def alive(self) -> bool: ...


class Runtime(Protocol):
    """How this program waits, runs work in the background, and knows which thread or task is calling."""

    def now(self) -> float:
        """Seconds on a monotonic clock, one that also runs while the machine is suspended where the system
        has such a clock.
        """
        ...

    def random(self) -> float:
        """A random number, 0 <= x < 1, for jitter. In simulation it comes from the seed."""
        ...

    def fresh_id(self) -> str:
        """A new random id that no other caller gets, not even a forked child."""
        ...

    def owner(self) -> Owner:
        """The thread or task on whose behalf the call is made; the same object each time."""
        ...

    def runner(self) -> Owner:
        """The thread or task that is running now, which is the one to interrupt.

        `owner()` may be a task that awaits it.
        """
        ...

    def who(self, owner: Owner, /) -> str:
        """Describe the owner as JSON: host, pid, thread or task, and the call site outside interlock."""
        ...

    def mutex(self) -> Mutex: ...

    def signal(self) -> Signal: ...

    def wait(self, signal: Signal, timeout: float | None) -> Coroutine[Any, Any, bool]:
        """Return True once the signal is set, or False if `timeout` seconds pass first."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def spawn(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Job:
        """Run `work` in the background.

        If code outside interlock cancels it and the program goes on, it is started again.
        """
        ...

    async def join(self, job: Job, timeout: float) -> None: ...

    async def finish(self, cleanup: Callable[[], Awaitable[object]]) -> None:
        """Run an idempotent clean-up to its end. If it is interrupted, it runs once more, and then the
        interruption is raised.

        An error of the clean-up itself is raised to the caller.
        """
        ...

    def interrupt(self, owner: Owner, wanted: Callable[[], bool]) -> None:
        """Cancel the owner's task at its next await, if `wanted()` is still true by then.

        `wanted` is called on the event loop of the task. A thread cannot be interrupted: then nothing
        happens.
        """
        ...

    def call(self, callback: Callable[[Any], object], argument: object) -> None:
        """Call a user's callback where it can neither block the caller nor raise into it."""
        ...

    def sweep_statements(self) -> None:
        """Release what interrupted `with` statements have left behind; see `_runtime/with_statements.py`."""
        ...

    def later(self, deliver: Callable[[Any], object], argument: object) -> None:
        """Call `deliver` in the background.

        Such calls run one after the other, in the order in which they were requested.
        """
        ...

    def stalled(self) -> float:
        """Seconds for which the event loop of this runtime has been stuck; always 0.0 for threads."""
        ...
