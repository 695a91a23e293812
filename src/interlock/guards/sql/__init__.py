"""Guards inside your own transaction, in PostgreSQL, MySQL, MariaDB or SQLite.

    with client.lock("account:1") as lease, session.begin():
        guards.sql.guard(session, lease)          # the first statement: before anything is read
        account = session.get(Account, 1)
        account.balance -= 10

A guard accepts the token of the lease, and locks what it has checked until your transaction ends; or it
raises `StaleToken`, and your transaction is rolled back. It must be the first statement: if the token is
checked only when you write, the next holder may have read already, without having shown its token, and one of
the two updates is lost.

| form | functions | what it needs |
|---|---|---|
| table-wide | `guard` | the fence table: `create`, or the SQL of `schema` |
| absolute | `guard(..., absolute=True)` | locks in the same database; on SQLite the lock file attached by `attach` |
| row-level | `guard_row`, `update_row` | a column for the token in your table |
| mark, then compare | `mark`, `update_marked` | a column for the mark in your table |

Each function takes a connection or cursor of sqlite3, psycopg 3 or PyMySQL, a Session or Connection of
SQLAlchemy, or a connection or an alias of Django's. The same function with an `a` before its name is awaited,
and takes those of psycopg and SQLAlchemy for asyncio, and of aiomysql.
"""  # noqa: E501  (a table)

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlock._core.drive import drive
from interlock._core.lease import Lease
from interlock._core.presented import TokenSource, presented, presented_all
from interlock.guards.sql import checks
from interlock.guards.sql.attaching import attach
from interlock.guards.sql.checks import Mark
from interlock.guards.sql.recognition import transaction
from interlock.guards.sql.transaction import DIALECTS

__all__ = [
    "Mark",
    "acreate",
    "aguard",
    "aguard_row",
    "amark",
    "attach",
    "aupdate_marked",
    "aupdate_row",
    "create",
    "guard",
    "guard_row",
    "mark",
    "schema",
    "update_marked",
    "update_row",
]

FENCE = "interlock_fence"
"""The usual name of the fence table."""


def guard(
    session: Any,
    lease: TokenSource,
    token: int | None = None,
    *,
    table: str = FENCE,
    absolute: bool = False,
    claims: str | None = None,
) -> None:
    """Accept the token of a lease in the caller's transaction, or raise `StaleToken` and roll the transaction
    back.

    Give a lease, several leases or a multilock's lease, or a resource and a token. A lease that is known to
    be lost raises `LeaseLost`. The token stands in `table`, whose row stays locked until the transaction
    ends.

    With `absolute` the claim's own row is locked instead, in the tables of the store: no other holder is let
    in before the transaction ends. The lock must live in the same database; `claims` names its claim table if
    it is not the usual one. A resource and a token are enough only if the holder has called `lease.renew()`
    before; otherwise the store cannot tell whose the token is, and the guard raises `Unsupported`.
    """
    drive(
        _guard(transaction(session, asynchronous=False), lease, token, table, absolute, claims), nested=True
    )


async def aguard(
    session: Any,
    lease: TokenSource,
    token: int | None = None,
    *,
    table: str = FENCE,
    absolute: bool = False,
    claims: str | None = None,
) -> None:
    """Accept the token of a lease in the caller's transaction, or raise `StaleToken` and roll the transaction
    back.

    Give a lease, several leases or a multilock's lease, or a resource and a token. A lease that is known to
    be lost raises `LeaseLost`. The token stands in `table`, whose row stays locked until the transaction
    ends.

    With `absolute` the claim's own row is locked instead, in the tables of the store: no other holder is let
    in before the transaction ends. The lock must live in the same database; `claims` names its claim table if
    it is not the usual one. A resource and a token are enough only if the holder has called `lease.renew()`
    before; otherwise the store cannot tell whose the token is, and the guard raises `Unsupported`.
    """
    await _guard(transaction(session, asynchronous=True), lease, token, table, absolute, claims)


async def _guard(
    in_transaction: Any, lease: TokenSource, token: int | None, table: str, absolute: bool, claims: str | None
) -> None:
    async with checks.fatal(in_transaction):  # a lease that is known to be lost ends the transaction as well
        tokens = presented_all(lease, token, shared=absolute)
    if absolute:
        await checks.pin_claims(in_transaction, tokens, claims)
    else:
        await checks.pass_fence(in_transaction, tokens, table)


def guard_row(
    session: Any,
    lease: Lease | str,
    token: int | None = None,
    *,
    table: str,
    where: Mapping[str, Any],
    column: str = "token",
) -> None:
    """Show the token to one row of the caller's table, which stays locked until the transaction ends; or
    raise `StaleToken`.

    Call it before you read the row. `where` names the row by its key, and `column` is where the row keeps its
    token: a 64-bit integer, not null, 0 at first. LookupError if there is no such row.
    """
    update_row(session, lease, token, table=table, where=where, changes={}, column=column)


async def aguard_row(
    session: Any,
    lease: Lease | str,
    token: int | None = None,
    *,
    table: str,
    where: Mapping[str, Any],
    column: str = "token",
) -> None:
    """Show the token to one row of the caller's table, which stays locked until the transaction ends; or
    raise `StaleToken`.

    Call it before you read the row. `where` names the row by its key, and `column` is where the row keeps its
    token: a 64-bit integer, not null, 0 at first. LookupError if there is no such row.
    """
    await aupdate_row(session, lease, token, table=table, where=where, changes={}, column=column)


def update_row(
    session: Any,
    lease: Lease | str,
    token: int | None = None,
    *,
    table: str,
    where: Mapping[str, Any],
    changes: Mapping[str, Any],
    column: str = "token",
) -> None:
    """Run `update table set changes, column = token where … and column <= token`; raise `StaleToken` if the
    token is too low.

    If the new values depend on what the row was, call `guard_row` before you read it.
    """
    in_transaction = transaction(session, asynchronous=False)
    drive(_update_row(in_transaction, lease, token, table, where, changes, column), nested=True)


async def aupdate_row(
    session: Any,
    lease: Lease | str,
    token: int | None = None,
    *,
    table: str,
    where: Mapping[str, Any],
    changes: Mapping[str, Any],
    column: str = "token",
) -> None:
    """Run `update table set changes, column = token where … and column <= token`; raise `StaleToken` if the
    token is too low.

    If the new values depend on what the row was, call `guard_row` before you read it.
    """
    in_transaction = transaction(session, asynchronous=True)
    await _update_row(in_transaction, lease, token, table, where, changes, column)


async def _update_row(in_transaction: Any, lease: Lease | str, token: int | None, *row: Any) -> None:
    async with checks.fatal(in_transaction):
        shown = presented(lease, token)
    await checks.update_row(in_transaction, shown, *row)


def mark(
    session: Any,
    lease: Lease | str,
    token: int | None = None,
    *,
    table: str,
    where: Mapping[str, Any],
    column: str = "mark",
) -> Mark:
    """Leave a mark in one row; then commit, read the row, work without a transaction, and call
    `update_marked`.

    `column` is text of at least 52 characters. Raises `StaleToken` if a later holder has marked the row.
    """
    in_transaction = transaction(session, asynchronous=False)
    return drive(_mark(in_transaction, lease, token, table, where, column), nested=True)


async def amark(
    session: Any,
    lease: Lease | str,
    token: int | None = None,
    *,
    table: str,
    where: Mapping[str, Any],
    column: str = "mark",
) -> Mark:
    """Leave a mark in one row; then commit, read the row, work without a transaction, and call
    `update_marked`.

    `column` is text of at least 52 characters. Raises `StaleToken` if a later holder has marked the row.
    """
    return await _mark(transaction(session, asynchronous=True), lease, token, table, where, column)


async def _mark(in_transaction: Any, lease: Lease | str, token: int | None, *row: Any) -> Mark:
    async with checks.fatal(in_transaction):
        shown = presented(lease, token)
    return await checks.mark(in_transaction, shown, *row)


def update_marked(session: Any, mark: Mark, changes: Mapping[str, Any]) -> Mark:
    """Change a row if it still has our mark; raise `StaleToken` if another holder has marked it since.

    Returns the new mark of the row, for a further change.
    """
    return drive(checks.update_marked(transaction(session, asynchronous=False), mark, changes), nested=True)


async def aupdate_marked(session: Any, mark: Mark, changes: Mapping[str, Any]) -> Mark:
    """Change a row if it still has our mark; raise `StaleToken` if another holder has marked it since.

    Returns the new mark of the row, for a further change.
    """
    return await checks.update_marked(transaction(session, asynchronous=True), mark, changes)


def create(session: Any, *, table: str = FENCE) -> None:
    """Create the fence table if there is none, and commit; for a connection that is in no transaction."""
    drive(checks.create(transaction(session, asynchronous=False), table), nested=True)


async def acreate(session: Any, *, table: str = FENCE) -> None:
    """Create the fence table if there is none, and commit; for a connection that is in no transaction."""
    await checks.create(transaction(session, asynchronous=True), table)


def schema(dialect: str, *, table: str = FENCE) -> str:
    """Return the SQL that creates the fence table, for a migration: "postgresql", "mysql", "mariadb" or
    "sqlite".
    """
    if dialect not in DIALECTS:
        raise ValueError(f"guards know {', '.join(DIALECTS)}, not {dialect!r}")
    return checks.schema(DIALECTS[dialect], table)
