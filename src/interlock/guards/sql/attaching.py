"""Attaches the lock file of the embedded store to the user's own SQLite connection, for the absolute form."""

from __future__ import annotations

from typing import Any, Protocol

from interlock._core.client import Client as Core
from interlock._core.drive import drive
from interlock.errors import Unsupported
from interlock.guards.sql.recognition import transaction


class AnyClient(Protocol):
    """A client of the sync or the async API."""

    _core: Core


def attach(connection: Any, client: AnyClient, *, schema: str = "interlock") -> None:
    """Attach the lock file of a client to a SQLite connection, under the name `schema`, unless it is attached
    already.

    Call it once for each connection, outside a transaction. From then on a `begin immediate` on this
    connection stops all acquires, renewals and releases on that file until it ends, so keep such transactions
    short.
    """
    found = transaction(connection, asynchronous=False)
    store: Any = client._core.store
    if store.traits.backend != "sqlite" or found.dialect != "sqlite":
        raise Unsupported("attach is for locks in a SQLite file and data in another one")
    if not schema.isidentifier():
        raise ValueError(f"{schema!r} is no name for an attached database")
    listed = drive(found.execute("select name from pragma_database_list", {}), nested=True)
    if (schema,) not in listed.rows:
        drive(found.execute(f'attach :path as "{schema}"', {"path": store.path}), nested=True)
