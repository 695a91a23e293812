"""The checks that a guard makes inside the user's transaction, once for blocking and asyncio libraries.

If a check does not return, the transaction has been rolled back: a caller that swallows the error cannot
commit unguarded work of that transaction. Otherwise the row that was checked is locked until the transaction
ends, so the answer stays true.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from interlock._core.cohort import TOKENS_PER_GRANT
from interlock._core.presented import Presented
from interlock._core.signature import MARK, signature
from interlock._support.record import record
from interlock.errors import StaleToken, StoreUnavailable, StoreUnfit, Unsupported
from interlock.guards.sql.attaching import check_attached
from interlock.guards.sql.claims import claim_table
from interlock.guards.sql.statements import assignments, condition, quoted, statement
from interlock.guards.sql.transaction import (
    Dialect,
    Transaction,
    created_meanwhile,
    missing_right,
    missing_table,
    nested,
    not_serializable,
)


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
async def fatal(transaction: Transaction) -> AsyncIterator[None]:
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
    async with fatal(transaction):
        dialect = transaction.dialect
        name = quoted(table, dialect)
        transaction.check()
        for each in presented:
            asked = {"resource": _encoded(each.resource, dialect), "token": each.token}
            try:
                done = await transaction.execute(statement("fence", "accept", dialect, table=name), asked)
            except Exception as error:
                if missing_table(error):
                    raise _without_fence(table, dialect) from error
                raise
            if done.rows and not done.rows[0][0]:
                await _refuse_savepoints(transaction)
            if done.changed == 1 and dialect != "mysql":
                continue
            read = statement("fence", "accepted", dialect, table=name)
            named = _named_table(table) if dialect == "mysql" else {}
            found = await transaction.execute(read, {"resource": asked["resource"], **named})
            if dialect == "mysql" and found.rows and found.rows[0][1] is not None:
                raise _without_transactions(table, found.rows[0][1])
            accepted = int(found.rows[0][0]) if found.rows else 0
            if accepted > each.token:
                raise StaleToken(each.resource, each.token, accepted)
            if accepted < each.token:
                raise _dropped(table)


async def _refuse_savepoints(transaction: Transaction) -> None:
    """Raise `Unsupported` if a savepoint can undo the guard alone, where the database can tell.

    It is asked after the guard has changed or locked its row: a savepoint in which nothing was written has no
    number yet.
    """
    if transaction.dialect == "postgresql":
        found = await transaction.execute(statement("row", "savepoints", "postgresql"), {})
        if int(found.rows[0][0]) > transaction.savepoints:
            raise nested("call it before the savepoint is made")


async def _refuse_engine(transaction: Transaction, table: str) -> None:
    """Raise `Unsupported` if a table of MySQL or MariaDB keeps no lock until the commit, and cannot be rolled
    back.

    It is asked each time, because a name may lead to another table after `use`, and a table may be altered;
    and after the guard's own statement, because a read before it could fix a snapshot that does not show
    what an earlier holder commits.
    """
    if transaction.dialect == "mysql":
        found = await transaction.execute(statement("row", "engine", "mysql"), _named_table(table))
        if found.rows:
            raise _without_transactions(table, found.rows[0][0])


def _named_table(table: str) -> dict[str, str | None]:
    """The name of a table as a parameter of statements that look up its engine."""
    schema, _, name = table.rpartition(".")
    return {"schema": schema or None, "name": name}


def _without_transactions(table: str, engine: Any) -> Unsupported:
    engine = engine.decode() if isinstance(engine, bytes) else engine
    return Unsupported(
        f"{table}: its engine {engine} has no transactions, so a guard could lock nothing and undo nothing: "
        f"alter table {table} engine = InnoDB"
    )


async def pin_claims(transaction: Transaction, presented: tuple[Presented, ...], claims: str | None) -> None:
    """Lock the claims' own rows in the store's table; `StaleToken` if one of them is gone."""
    async with fatal(transaction):
        transaction.check()
        for each in presented:
            table = await claim_table(transaction, each, claims)
            if each.lease is not None:
                # The next holder must be let in by the store, which sees the row lock, and not by our client.
                each.lease._pin()
                each.lease.check()  # again: if another thread has released it, an heir may have the claim
            try:
                await _pin(transaction, each, table)
                await _refuse_savepoints(transaction)
            except Exception as error:
                if not_serializable(error):  # the row was removed since the transaction's snapshot
                    raise StaleToken(each.resource, each.token, 0) from error
                if missing_right(error):
                    raise _without_right(table, transaction.dialect) from error
                raise


async def _pin(transaction: Transaction, presented: Presented, table: str) -> None:
    dialect = transaction.dialect
    resource = _encoded(presented.resource, dialect)
    asked: dict[str, Any] = {"resource": resource, "token": presented.token}
    if presented.lease is not None:
        name, asked["id"], asked["row"] = (
            "pin",
            _encoded(presented.lease.id, dialect),
            presented.lease._stands_as,
        )
    else:
        name, asked["signed"] = "pin_token", signature(presented.token, "")
        if dialect == "mysql":
            find = statement("claim", "find_token", dialect, claims=table)
            if found := (await transaction.execute(find, asked)).rows:
                name, asked["row"] = "pin_token_at", found[0][0]
    if dialect == "sqlite":
        await transaction.execute(statement("claim", "lock", dialect, claims=table), {})
        # From here on nobody else writes to the file that this connection has open.
        await check_attached(transaction, table.rpartition(".")[0].strip('"') or "main")
    pinned = await transaction.execute(statement("claim", name, dialect, claims=table), asked)
    if not pinned.rows:
        if presented.lease is None and dialect != "sqlite":
            await _refuse_unsigned(transaction, presented, table)
        read = statement("claim", "holder", dialect, claims=table)
        holder = (await transaction.execute(read, {"resource": resource})).rows[0][0]
        raise StaleToken(presented.resource, presented.token, int(holder or 0))


async def _refuse_unsigned(transaction: Transaction, presented: Presented, table: str) -> None:
    """Say what to do if the token may be the holder's, and the store cannot know it."""
    dialect = transaction.dialect
    asked = {"resource": _encoded(presented.resource, dialect), "token": presented.token}
    read = statement("claim", "unsigned", dialect, claims=table)
    if (await transaction.execute(read, {**asked, "block": TOKENS_PER_GRANT, "mark": MARK})).rows:
        if dialect == "mysql" and await _signature_pends(transaction, asked, table):
            raise StoreUnavailable(
                f"{presented.resource}: the renewal that named token {presented.token} has not reached the "
                "claim's row, because another transaction locks it; run the transaction again"
            )
        raise Unsupported(
            f"{presented.resource}: the store cannot tell whether token {presented.token} still holds, "
            "because a lock may be passed on within its client; give the lease, or call lease.renew() where "
            "it is held before the number is used"
        )


async def _signature_pends(transaction: Transaction, asked: dict[str, Any], table: str) -> bool:
    """Whether a renewal with the signature is kept beside the row, which was locked; False also if the
    user may not look.
    """
    pending = statement(
        "claim", "pending", "mysql", pending=table.replace("interlock_claim", "interlock_pending")
    )
    try:
        return bool(
            (await transaction.execute(pending, {**asked, "signed": signature(asked["token"], "")})).rows
        )
    except Exception as error:
        if missing_right(error):
            return False
        raise


async def update_row(
    transaction: Transaction,
    presented: Presented,
    table: str,
    where: Mapping[str, Any],
    changes: Mapping[str, Any],
    column: str,
) -> None:
    """Show the token to one row, and change the row; `StaleToken` if it has a higher one."""
    async with fatal(transaction):
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
        asked = {**values, **new, "token": presented.token}
        done = await transaction.execute(statement("row", "update", dialect, **parts), asked)
        if done.changed > 1:
            raise ValueError(f"{dict(where)} names {done.changed} rows of {table}: name one, by its key")
        await _refuse_engine(transaction, table)
        if done.changed == 1:
            await _refuse_savepoints(transaction)
            return
        # Nothing was changed: stale, no such row, or on MySQL the same values and the same token again.
        rows = (await transaction.execute(statement("row", "token", dialect, **parts), values)).rows
        if not rows:
            raise LookupError(f"{table} has no row with {dict(where)}")
        accepted = rows[0][0]
        if accepted is None:
            raise ValueError(f"{table}.{column} is null: a token column must be not null, with the default 0")
        if int(accepted) > presented.token:
            raise StaleToken(presented.resource, presented.token, int(accepted))
        if int(accepted) < presented.token or dialect != "mysql":
            raise _dropped(table)
        await _refuse_savepoints(transaction)


async def mark(
    transaction: Transaction, presented: Presented, table: str, where: Mapping[str, Any], column: str
) -> Mark:
    """Leave a new mark in one row, which `update_marked` compares later; `StaleToken` if a higher token
    has marked it.
    """
    async with fatal(transaction):
        dialect = transaction.dialect
        key, values = condition(_named(where), dialect)
        left = Mark(presented.resource, presented.token, table, dict(where), column, _fresh(presented.token))
        transaction.check()
        parts = {"table": quoted(table, dialect), "key": key, "column": quoted(column, dialect)}
        if dialect == "sqlite":
            await transaction.execute(statement("row", "lock", dialect, **parts), values)
        rows = (await transaction.execute(statement("row", "token", dialect, **parts), values)).rows
        await _refuse_engine(transaction, table)
        if len(rows) != 1:
            raise LookupError(f"{dict(where)} names {len(rows)} rows of {table}: name one, by its key")
        if (accepted := _token_of(rows[0][0])) > presented.token:
            raise StaleToken(presented.resource, presented.token, accepted)
        await transaction.execute(statement("row", "mark", dialect, **parts), {**values, "mark": left.text})
        await _refuse_savepoints(transaction)
    return left


async def update_marked(transaction: Transaction, mark: Mark, changes: Mapping[str, Any]) -> Mark:
    """Change the row if nobody else has marked it since; `StaleToken` otherwise.

    Returns the mark that stands there now.
    """
    async with fatal(transaction):
        dialect = transaction.dialect
        key, values = condition(dict(mark.where), dialect)
        assigned, new = assignments(dict(changes), dialect)
        column = quoted(mark.column, dialect)
        parts = {"table": quoted(mark.table, dialect), "key": key, "changes": assigned, "column": column}
        text = _fresh(mark.token)
        transaction.check()
        asked = {**values, **new, "mark": mark.text, "next": text}
        done = await transaction.execute(statement("row", "update_marked", dialect, **parts), asked)
        await _refuse_engine(transaction, mark.table)
        if done.changed != 1:
            rows = (await transaction.execute(statement("row", "token", dialect, **parts), values)).rows
            raise StaleToken(mark.resource, mark.token, _token_of(rows[0][0]) if rows else 0)
        await _refuse_savepoints(transaction)
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
        f"the fence table {table} does not exist; create it once with guards.sql.create(connection), or "
        f"with: {' '.join(schema(dialect, table).split())}"
    )


def _dropped(table: str) -> StoreUnfit:
    return StoreUnfit(
        f"{table}: the row was not changed, though its token is not higher; does a trigger, a rule or a "
        "policy "
        "of the table drop the change?"
    )


def _without_right(table: str, dialect: Dialect) -> StoreUnfit:
    # A share lock of PostgreSQL wants the right to change a row of the table, too.
    rights = "select, update" if dialect == "postgresql" else "select"
    return StoreUnfit(
        f"the absolute form locks the claim's own row, and this user may not do that: have an owner run "
        f"grant {rights} on {table} to the user of this connection"
    )


def _named(where: Mapping[str, Any]) -> dict[str, Any]:
    if not where:
        raise ValueError('name the row by its key, as in {"id": 1}: a token guards single rows here')
    return dict(where)


def _encoded(text: str, dialect: Dialect) -> str:
    """On MySQL hexadecimal digits, for `unhex`: the character set of the connection must not change a
    name.
    """
    return text.encode().hex() if dialect == "mysql" else text


def _fresh(token: int) -> str:
    """Return a mark that nobody else has. It begins with the token, so that a refusal can name it."""
    return f"{token}-{uuid4().hex}"


def _token_of(mark: object) -> int:
    """Return the token in a mark of ours; 0 in one that another program has left."""
    mark = mark.decode(errors="replace") if isinstance(mark, bytes) else mark
    token = mark.partition("-")[0] if isinstance(mark, str) else ""
    return int(token) if token.isdecimal() else 0
