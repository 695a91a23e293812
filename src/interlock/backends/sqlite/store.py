"""The store port over a lock file. What happens to claims is in `operations`, how rings are heard in `notifier`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence

from interlock._core.outline import outline
from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.defaults import StoreDefaults
from interlock.backends.kit.executor import CallerThread, Executor
from interlock.backends.kit.runtime import ThreadRuntime, WaitRuntime
from interlock.backends.sqlite.doorbell import available
from interlock.backends.sqlite.notifier import Notifier, Waiter
from interlock.backends.sqlite.operations import Operations
from interlock.errors import StoreUnavailable
from interlock.model import (
    Busy,
    Claim,
    ClaimAnswer,
    Granted,
    Queue,
    Renewal,
    RenewAnswer,
    Standing,
    Traits,
    Versioned,
)
from interlock.ports import IO_TIMEOUT, Store

TRAITS = Traits(
    backend="sqlite",
    fair=True,
    shares="any",
    lapses="claim",
    wakes="doorbell" if available() else "poll",
    reach="machine",
    survives="process",
    two_holders=(
        "the lock file, or its log (-wal), is deleted or replaced while leases are held",
        "its shared memory (-shm) is removed in the instant in which a process is stopped in the middle of a write",
    ),
    min_ttl=0.01,
    max_ttl=365 * 86400.0,
)


class SqliteStore(StoreDefaults):
    """Claims and registers in one file, for the processes of one machine."""

    traits = TRAITS

    def __init__(
        self,
        operations: Operations,
        notifier: Notifier,
        runtime: WaitRuntime,
        executor: Executor,
        *,
        shared: bool,
    ) -> None:
        self._operations = operations
        self._notifier = notifier
        self._runtime = runtime
        self._executor = executor
        self._here = isinstance(
            executor, CallerThread
        )  # then the most frequent calls need no coroutine to get there
        self._shared = shared  # another store has made operations and notifier, and will close them
        self._twin: SqliteStore | None = None

    @property
    def path(self) -> str:
        """The lock file."""
        return self._operations.path

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    # ---- claims -------------------------------------------------------------------

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        if self._here:
            return self._operations.claim(self._operations.now() + timeout, claim)
        return await self._executor.run(self._operations.claim, claim, timeout=timeout)

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        waiter = Waiter("c" + claim.id, self._runtime.signal(), resource=claim.resource)
        await self._listen(waiter, timeout, self._operations.unchanged, claim, busy is not None)
        return None  # the next claim tells: a grant is a few microseconds away, and always right

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        return await self._executor.run(self._operations.renew, renewals, timeout=timeout)

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        if self._here:
            return self._operations.release(self._operations.now() + timeout, resource, id, linger)
        return await self._executor.run(self._operations.release, resource, id, linger, timeout=timeout)

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        return await self._executor.run(self._operations.inspect, resource, limit, timeout=timeout)

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        return await self._executor.run(self._operations.scan, prefix, after, limit, timeout=IO_TIMEOUT)

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        return await self._executor.run(self._operations.evict, resource, id, reason, timeout=IO_TIMEOUT)

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        first_lapse = min((standing.lapses_in for standing in seen.standings), default=timeout)
        before = outline(seen)

        def changed(connection: sqlite3.Connection) -> bool:
            return outline(self._operations.read_queue(connection, resource)) != before

        await self._watch("q" + resource, changed, min(timeout, first_lapse))

    # ---- registers ----------------------------------------------------------------

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        return await self._executor.run(self._operations.read, name, timeout=timeout)

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        return await self._executor.run(
            self._operations.compare_and_set, name, version, value, id, timeout=timeout
        )

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        def changed(connection: sqlite3.Connection) -> bool:
            return self._operations.version(connection, name) != version

        await self._watch("r" + name, changed, timeout)

    # ---- waiting --------------------------------------------------------------------

    async def _watch(self, topic: str, changed: Callable[[sqlite3.Connection], bool], timeout: float) -> None:
        waiter = Waiter(topic, self._runtime.signal(), changed=changed)
        await self._listen(waiter, timeout, self._operations.watch, topic, changed)

    async def _listen(
        self, waiter: Waiter, timeout: float, unchanged: Callable[..., bool], *args: object
    ) -> None:
        """Wait for a ring, having looked once after starting to listen: none is missed."""
        deadline = Deadline(self._operations.now, timeout)
        self._notifier.listen(waiter)
        try:
            if await self._executor.run(unchanged, *args, timeout=min(timeout, IO_TIMEOUT)):
                await self._runtime.wait(waiter.signal, deadline.left())
        except StoreUnavailable:
            if not deadline.passed():
                raise  # otherwise the time is up, which is an answer too
        finally:
            self._notifier.forget(waiter)

    # ---- housekeeping -----------------------------------------------------------------

    def inside(self) -> bool:
        """Whether the calling thread is inside one of this store's own critical sections.

        Then a finalizer or a signal handler has interrupted it there, and nothing can be asked of the store.
        """
        return self._operations.inside()

    def vital(self) -> tuple[str, int] | None:
        """The file, and the byte of it, that a process must lock for this store to count it as a part of ours.

        A claim of ours is then taken for that of a dead process only when both are gone. None if nobody can tell.
        """
        life = self._operations.life()
        return (os.path.realpath(self.path), life) if life else None

    def blocking(self) -> Store:
        if self._here:
            return self
        if self._twin is None:
            now = self._operations.now
            self._twin = SqliteStore(
                self._operations, self._notifier, ThreadRuntime(now), CallerThread(now), shared=True
            )
        return self._twin

    def after_fork(self) -> None:
        """The connections are new by themselves (see `Database`); so is everything else, from here."""
        self._executor.after_fork()
        if not self._shared:
            self._notifier.after_fork()
            self._operations.after_fork()

    async def close(self) -> None:
        if not self._shared:
            await self._executor.run(self._close, timeout=IO_TIMEOUT)
            self._executor.close()

    def _close(self, until: float) -> None:
        self._notifier.close()
        self._operations.close()
