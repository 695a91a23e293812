"""The store for asyncio: every call runs on one thread beside the event loop, and the loop never blocks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from interlock._core.drive import drive
from interlock.backends.kit.executor_thread import ExecutorThread
from interlock.backends.kit.runtime import ThreadRuntime, WaitRuntime
from interlock.backends.sql.sqlite.file.database import Database
from interlock.backends.sql.sqlite.notifier import Notifier
from interlock.backends.sql.sqlite.store import SqliteStore
from interlock.backends.sql.sqlite.tables import reading
from interlock.backends.sql.steps import Rows
from interlock.model import Claim, ClaimAnswer
from interlock.store import IO_TIMEOUT, Store

T = TypeVar("T")


class AsyncSqliteStore(SqliteStore):
    """`SqliteStore`, whose steps suspend their caller while the worker thread runs them, and its claims
    and releases as a whole.
    """

    decides_here = False  # an event loop does not block
    _reads = False

    def __init__(self, database: Database, notifier: Notifier, runtime: WaitRuntime) -> None:
        super().__init__(database, notifier, runtime)
        self._executor = ExecutorThread(self.now, "interlock-sqlite", "the file")
        self._blocking = SqliteStore(database, notifier, ThreadRuntime(self.now), of=self)

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        return await self._executor.run(self._finish, self._blocking.claim, claim, timeout=timeout)

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        release = self._blocking.release
        return await self._executor.run(self._finish, release, resource, id, linger, timeout=timeout)

    async def _find_claim(self, until: float, now: float, resource: str, id: str) -> Rows:
        read = partial(self._database.read, verified=True)
        return await self._executor.run(read, reading.admitted, resource, id, timeout=until - now)

    async def _run(self, step: str, args: Sequence[object], until: float) -> Rows:
        return await self._executor.run(self._blocking._do, step, args, timeout=until - self.now())

    def _finish(self, until: float, call: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run a call of the blocking store, which never suspends, to its end."""
        return drive(call(*args, timeout=until - self.now()), nested=True)

    def blocking(self) -> Store:
        return self._blocking

    def after_fork(self) -> None:
        self._executor.after_fork()
        super().after_fork()

    async def close(self) -> None:
        await self._executor.run(self._close, timeout=IO_TIMEOUT)
        self._executor.close()
