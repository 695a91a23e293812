"""From a path to a store."""

from __future__ import annotations

from interlock.backends.kit.executor import CallerThread, Executor
from interlock.backends.sqlite.file.clock import Clock
from interlock.backends.sqlite.file.database import Database
from interlock.backends.sqlite.file.location import settle
from interlock.backends.sqlite.notifier import Notifier
from interlock.backends.sqlite.operations import Operations
from interlock.backends.sqlite.store import SqliteStore
from interlock.ports import Runtime


def open_store(
    path: str | None,
    runtime: Runtime,
    *,
    asynchronous: bool,
    allow_network_filesystem: bool = False,
    clock: Clock | None = None,
) -> SqliteStore:
    """The store in the file at `path`, made if there is none; None is the file in the user's state directory.

    Raises `StoreUnfit`, which says what to do, for a place or a file that cannot carry locks. With
    `asynchronous` the calls suspend and never block the event loop.
    """
    clock = clock or Clock()
    path, kind = settle(path, allow_network_filesystem)
    database = Database(path, clock, runtime.random, kind)
    notifier = Notifier(Database(path, clock, runtime.random, kind))
    operations = Operations(database, notifier)
    operations.open()  # now, not at the first claim: a file that will not do is refused where it is named
    executor: Executor
    if asynchronous:
        from interlock.backends.kit.executor_thread import ExecutorThread  # here, not above: it needs asyncio

        executor = ExecutorThread(clock.now, "interlock-sqlite", "the file")
    else:
        executor = CallerThread(clock.now)
    return SqliteStore(operations, notifier, runtime, executor, shared=False)
