"""The checks that a guard makes inside the user's transaction, once for blocking and asyncio libraries.

If a check does not return, the transaction has been rolled back: a caller that swallows the error cannot commit unguarded
work of that transaction. Otherwise the row that was checked is locked until the transaction ends, so the answer stays true.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from interlock.errors import StaleToken, StoreUnfit
from interlock.guards.presented import Presented
from interlock.guards.sql.claims import claim_table
from interlock.guards.sql.statements import assignments, condition, quoted, statement
from interlock.guards.sql.transaction import (
    Dialect,
    Transaction,
    created_meanwhile,
    missing_table,
    not_serializable,
)
from interlock.record import record


@record
class Mark:
    """A mark that was left in a row: what `update_marked` needs to find the row and to compare."""

    resource: str
    token: int
    table: str
    where: Mapping[str, Any]
    column: str
    text: str


@asynccontextmanager
async def _fatal(transaction: Transaction) -> AsyncIterator[None]:
    """Roll the transaction back if the block raises. The error of the rollback, if any, is only noted."""
    try:
        yield
    except BaseException as error:
        try:
            await transaction.end()
        except Exception as failure:
            error.add_note(f"and the rollback failed: {failure}")
        raise


async def pass_fence(transaction: Transaction, presented: tuple[Presented, ...], table: str) -> None:
    """Accept tokens in the fence table; `StaleToken` if a higher one was accepted before."""
    dialect = transaction.dialect
    name = quoted(table, dialect)
    transaction.check()
    async with _fatal(transaction):
        for each in presented:
            asked = {"resource": _encoded(each.resource, dialect), "token": each.token}
            try:
                done = await transaction.execute(statement("fence", "accept", dialect, table=name), asked)
            except Exception as error:
                if missing_table(error):
                    raise _without_fence(table, dialect) from error
                raise
            if done.changed == 1 and dialect != "mysql":
                continue
            read = statement("fence", "accepted", dialect, table=name)
            found = await transaction.execute(read, {"resource": asked["resource"]})
            accepted = int(found.rows[0][0])
            if accepted > each.token:
                raise StaleToken(each.resource, each.token, accepted)


async def pin_claims(transaction: Transaction, presented: tuple[Presented, ...], claims: str | None) -> None:
    """Lock the claims' own rows in the store's table; `StaleToken` if one of them is gone."""
    transaction.check()
    async with _fatal(transaction):
        for each in presented:
            table = await claim_table(transaction, each, claims)
            if (
                each.lease is not None
            ):  # the next holder must be let in by the store, which sees the lock, not by our client
                each.lease._holding.client.cohorts.withhold(each.lease)
            try:
                await _pin(transaction, each, table)
            except Exception as error:
                if not_serializable(error):  # the row was removed since the transaction's snapshot
                    raise StaleToken(each.resource, each.token, 0) from error
                raise


async def _pin(transaction: Transaction, presented: Presented, table: str) -> None:
    dialect = transaction.dialect
    resource = _encoded(presented.resource, dialect)
    asked: dict[str, Any] = {"resource": resource, "token": presented.token}
    name = "pin_token"
    if presented.lease is not None:
        name, asked["id"] = "pin", _encoded(presented.lease.id, dialect)
    if dialect == "sqlite":
        await transaction.execute(statement("claim", "lock", dialect, claims=table), {})
    pinned = await transaction.execute(statement("claim", name, dialect, claims=table), asked)
    if not pinned.rows:
        read = statement("claim", "holder", dialect, claims=table)
        holder = (await transaction.execute(read, {"resource": resource})).rows[0][0]
        raise StaleToken(presented.resource, presented.token, int(holder or 0))


async def update_row(
    transaction: Transaction,
    presented: Presented,
    table: str,
    where: Mapping[str, Any],
    changes: Mapping[str, Any],
    column: str,
) -> None:
    """Show the token to one row, and change the row; `StaleToken` if it has a higher one."""
    dialect = transaction.dialect
    key, values = condition(_named(where), dialect)
    assigned, new = assignments(dict(changes), dialect)
    parts = {
        "table": quoted(table, dialect),
        "key": key,
        "changes": assigned,
        "column": quoted(column, dialect),
    }
    transaction.check()
    async with _fatal(transaction):
        asked = {**values, **new, "token": presented.token}
        done = await transaction.execute(statement("row", "update", dialect, **parts), asked)
        if done.changed > 1:
            raise ValueError(f"{dict(where)} names {done.changed} rows of {table}: name one, by its key")
        if done.changed == 1:
            return
        # Nothing was changed: stale, no such row, or on MySQL the same values and the same token again.
        rows = (await transaction.execute(statement("row", "token", dialect, **parts), values)).rows
        if not rows:
            raise LookupError(f"{table} has no row with {dict(where)}")
        accepted = rows[0][0]
        if accepted is None:
            raise ValueError(f"{table}.{column} is null: a token column must be not null, with the default 0")
        if int(accepted) != presented.token:
            raise StaleToken(presented.resource, presented.token, int(accepted))


async def mark(
    transaction: Transaction, presented: Presented, table: str, where: Mapping[str, Any], column: str
) -> Mark:
    """Leave a new mark in one row, which `update_marked` compares later, in another transaction."""
    dialect = transaction.dialect
    key, values = condition(_named(where), dialect)
    left = Mark(presented.resource, presented.token, table, dict(where), column, _fresh(presented.token))
    transaction.check()
    async with _fatal(transaction):
        sql = statement(
            "row", "mark", dialect, table=quoted(table, dialect), key=key, column=quoted(column, dialect)
        )
        done = await transaction.execute(sql, {**values, "mark": left.text})
        if done.changed != 1:
            raise LookupError(f"{dict(where)} names {done.changed} rows of {table}: name one, by its key")
    return left


async def update_marked(transaction: Transaction, mark: Mark, changes: Mapping[str, Any]) -> Mark:
    """Change the row if nobody else has marked it since; `StaleToken` otherwise. Returns the mark that stands there now."""
    dialect = transaction.dialect
    key, values = condition(dict(mark.where), dialect)
    assigned, new = assignments(dict(changes), dialect)
    column = quoted(mark.column, dialect)
    parts = {"table": quoted(mark.table, dialect), "key": key, "changes": assigned, "column": column}
    text = _fresh(mark.token)
    transaction.check()
    async with _fatal(transaction):
        asked = {**values, **new, "mark": mark.text, "next": text}
        done = await transaction.execute(statement("row", "update_marked", dialect, **parts), asked)
        if done.changed != 1:
            rows = (await transaction.execute(statement("row", "token", dialect, **parts), values)).rows
            raise StaleToken(mark.resource, mark.token, _token_of(rows[0][0]) if rows else 0)
    return Mark(mark.resource, mark.token, mark.table, mark.where, mark.column, text)


async def create(transaction: Transaction, table: str) -> None:
    """Create the fence table if there is none, and commit."""
    sql = schema(transaction.dialect, table)
    try:
        await transaction.define(sql)
    except Exception as error:
        if not created_meanwhile(error):
            raise
        await transaction.end()
        await transaction.define(sql)  # now it is there


def schema(dialect: Dialect, table: str) -> str:
    """Return the statement that creates the fence table."""
    return statement("fence", "create", dialect, table=quoted(table, dialect))


def _without_fence(table: str, dialect: Dialect) -> StoreUnfit:
    return StoreUnfit(
        f"the fence table {table} does not exist; create it once with guards.sql.create(connection), or with: "
        f"{' '.join(schema(dialect, table).split())}"
    )


def _named(where: Mapping[str, Any]) -> dict[str, Any]:
    if not where:
        raise ValueError('name the row by its key, as in {"id": 1}: a token guards single rows here')
    return dict(where)


def _encoded(text: str, dialect: Dialect) -> str:
    """On MySQL hexadecimal digits, for `unhex`: the character set of the connection must not change a name."""
    return text.encode().hex() if dialect == "mysql" else text


def _fresh(token: int) -> str:
    """Return a mark that nobody else has. It begins with the token, so that a refusal can name it."""
    return f"{token}-{uuid4().hex}"


def _token_of(mark: object) -> int:
    """Return the token in a mark of ours; 0 in one that another program has left."""
    token = mark.partition("-")[0] if isinstance(mark, str) else ""
    return int(token) if token.isdecimal() else 0
