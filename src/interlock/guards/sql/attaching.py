"""Attaches the lock file of the embedded store to the user's own SQLite connection, for the absolute form.

If the lock file is deleted or replaced, the store goes to the new one, and the user's connection stays in the
old one, where nobody ends a claim any more. So `attach` notes which files it has attached, in a temporary
table, which lives as long as the connection; and the guard looks whether the names still lead to them.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

from interlock._core.client import Client as Core
from interlock._core.drive import drive
from interlock.errors import StoreUnfit, Unsupported
from interlock.guards.sql.recognition import transaction
from interlock.guards.sql.statements import statement
from interlock.guards.sql.transaction import Transaction

BUILT_IN = ("main", "temp")


class AnyClient(Protocol):
    """A client of the sync or the async API."""

    _core: Core


def attach(connection: Any, client: AnyClient, *, schema: str = "interlock") -> None:
    """Attach the lock file of a client to a SQLite connection, under the name `schema`, unless it is attached
    already.

    Call it once for each connection, outside a transaction. `Unsupported` if another file is attached under
    that name, and `StoreUnfit` if the lock file was deleted or replaced since it was attached. From then on
    a `begin immediate` on this connection stops all acquires, renewals and releases on that file until it
    ends, so keep such transactions short.
    """
    found = transaction(connection, asynchronous=False)
    store: Any = client._core.store
    if store.traits.backend != "sqlite" or found.dialect != "sqlite":
        raise Unsupported("attach is for locks in a SQLite file and data in another one")
    if not schema.isidentifier() or schema.lower() in BUILT_IN:
        raise ValueError(f"{schema!r} is no name for an attached database")
    drive(_attach(found, store.path, schema), nested=True)


async def _attach(transaction: Transaction, path: str, schema: str) -> None:
    listed = await transaction.execute("select name, file from pragma_database_list", {})
    for name, file in listed.rows:
        if text(name).lower() == schema.lower():
            if not same_file(text(file), path):
                raise Unsupported(
                    f"{schema} is the name of another file in this connection, {text(file)}; give "
                    f'{path} a name of its own: attach(connection, client, schema="…")'
                )
            break
    else:
        before = _files(path)
        await transaction.execute(f'attach :path as "{schema}"', {"path": path})
        # Now SQLite opens the file with the memory that the log's readers share.
        await transaction.execute(f'select count(*) from "{schema}".sqlite_master', {})
        if before != _files(path):
            await transaction.execute(f'detach "{schema}"', {})
            raise _moved(path)
    if await _noted(transaction, schema) is None:
        await transaction.execute(
            statement("attached", "note", "sqlite", schema=schema), {"path": path, "files": _files(path)}
        )
    await check_attached(transaction, schema)


async def check_attached(transaction: Transaction, schema: str) -> None:
    """Raise `StoreUnfit` if the lock file under this name is no longer the one that was attached;
    `Unsupported` if `attach` has not attached it.
    """
    noted = await _noted(transaction, schema)
    if noted is None:
        raise Unsupported(
            "the absolute form needs a lock file that was attached by guards.sql.attach(connection, "
            "client), and "
            f"{schema} was not: call it once, outside a transaction"
        )
    path, files = noted
    if _files(path) != files:
        raise _moved(path)


def same_file(one: str, other: str) -> bool:
    """Whether two names lead to the same place, or to one file."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


async def _noted(transaction: Transaction, schema: str) -> tuple[str, str] | None:
    """The path attached under this name, and the files it led to; None if `attach` has not done it."""
    exists = statement("attached", "exists", "sqlite")
    named = {"name": f"interlock_attached_{schema}"}
    if not (await transaction.execute(exists, named)).rows:
        return None
    ((path, files),) = (
        await transaction.execute(statement("attached", "noted", "sqlite", schema=schema), {})
    ).rows
    return text(path), text(files)


def _files(path: str) -> str:
    """The lock file, and the one with the memory that the log's readers share, which the store compares
    too.
    """
    found: list[str] = []
    for name in (path, f"{path}-shm"):
        try:
            state = os.stat(name)
            found.append(f"{state.st_dev}:{state.st_ino}")
        except OSError:
            found.append("")
    return " ".join(found)


def _moved(path: str) -> StoreUnfit:
    return StoreUnfit(
        f"{path}: the lock file was deleted or replaced since this connection attached it, and the locks "
        "are now "
        "in another file; close the connection, and attach the lock file to a new one"
    )


def text(value: Any) -> str:
    """Text of SQLite: a connection's `text_factory` may be bytes."""
    return os.fsdecode(value) if isinstance(value, bytes) else str(value or "")
