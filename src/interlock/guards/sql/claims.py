"""Where the store keeps its claims, as the user's own connection sees it: for the absolute form."""

from __future__ import annotations

from typing import Any

from interlock._core.presented import Presented
from interlock.errors import Unsupported
from interlock.guards.sql.attaching import same_file, text
from interlock.guards.sql.statements import quoted
from interlock.guards.sql.transaction import Dialect, Transaction

USUAL = {"postgresql": "interlock.claim", "mysql": "interlock_claim", "sqlite": "interlock.claim"}


async def claim_table(transaction: Transaction, presented: Presented, claims: str | None) -> str:
    """Return the quoted name of the claim table; `Unsupported` if the lock is known to live elsewhere."""
    dialect = transaction.dialect
    store: Any = None if presented.lease is None else presented.lease._holding.client.store
    if store is not None and claims is None:
        backend = store.traits.backend
        if not _same_kind(backend, dialect):
            raise Unsupported(
                f"{presented.resource}: the absolute form needs the lock in the database of this "
                f"transaction, but it lives in {backend}; guard without absolute=True"
            )
        if dialect == "sqlite":
            claims = await _attached(transaction, store)
        elif store.claim_table is not None:
            return str(store.claim_table)
    return quoted(claims or USUAL[dialect], dialect)


def _same_kind(backend: str, dialect: Dialect) -> bool:
    return backend == dialect or (backend == "mariadb" and dialect == "mysql")


async def _attached(transaction: Transaction, store: Any) -> str:
    """Return the claim table in the lock file, by the name under which the user's connection has attached
    it.
    """
    path = store.path
    listed = await transaction.execute("select name, file from pragma_database_list", {})
    for name, file in listed.rows:
        if file and same_file(text(file), path):
            return f"{text(name)}.claim"
    raise Unsupported(
        "the absolute form needs the lock file in this connection: call guards.sql.attach(connection, "
        f"client) once, outside a transaction, for {path}"
    )
