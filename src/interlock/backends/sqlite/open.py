"""From a path to a store."""

from __future__ import annotations

from interlock.backends.sqlite.clock import Clock
from interlock.backends.sqlite.database import Database
from interlock.backends.sqlite.leaf import Here, Leaf
from interlock.backends.sqlite.ledger import Ledger
from interlock.backends.sqlite.listener import Listener
from interlock.backends.sqlite.place import settle
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
    listener = Listener(Database(path, clock, runtime.random, kind))
    ledger = Ledger(database, listener)
    ledger.open()  # now, not at the first claim: a file that will not do is refused where it is named
    leaf: Leaf
    if asynchronous:
        from interlock.backends.sqlite.worker import Worker  # here, not above: it needs asyncio

        leaf = Worker(clock.now)
    else:
        leaf = Here(clock.now)
    return SqliteStore(ledger, listener, runtime, leaf, shared=False)
