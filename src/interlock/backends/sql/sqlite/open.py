"""From a path to a store."""

from __future__ import annotations

from importlib import import_module

from interlock._core.runtime import Runtime
from interlock.backends.sql.sqlite.file.clock import Clock
from interlock.backends.sql.sqlite.file.database import Database
from interlock.backends.sql.sqlite.file.location import settle
from interlock.backends.sql.sqlite.notifier import Notifier
from interlock.backends.sql.sqlite.store import SqliteStore

# What the first waiter needs. Loaded with the store, because later there may be no descriptor left to import
# it with; and not above, because it needs sockets.
WAITING = ("interlock.backends.kit.wake_pipe", "interlock.backends.sql.sqlite.bell_reader")


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
    for part in WAITING:
        import_module(part)
    clock = clock or Clock()
    path, kind = settle(path, allow_network_filesystem)
    database = Database(path, clock, runtime.random, kind)
    notifier = Notifier(Database(path, clock, runtime.random, kind))
    database.open()  # now, not at the first claim: a file that will not do is refused where it is named
    if not asynchronous:
        return SqliteStore(database, notifier, runtime)
    # Here, not above: it needs asyncio.
    from interlock.backends.sql.sqlite.async_store import AsyncSqliteStore

    return AsyncSqliteStore(database, notifier, runtime)
