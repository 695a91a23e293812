"""Where the blocking calls of a store run: on the caller's own thread, or (see `executor_thread`) on one beside the event loop.

SQLite's calls all block, and so do those of most clients of SQL databases. Such a store is written once, as plain functions with a
deadline; its sync and its async side differ by their executor alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Executor(Protocol):
    """How a store's calls reach its operations: `step(until, *args)`, where `until` is the instant by which it must be back."""

    async def run(self, step: Callable[..., T], *args: Any, timeout: float) -> T: ...
    def after_fork(self) -> None: ...
    def close(self) -> None: ...


class CallerThread:
    """The blocking executor: nothing suspends."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    async def run(self, step: Callable[..., T], *args: Any, timeout: float) -> T:
        return step(self._now() + timeout, *args)

    def after_fork(self) -> None:
        """Nothing is shared with the parent."""

    def close(self) -> None:
        """Nothing is open."""
