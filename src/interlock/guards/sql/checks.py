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
    missing_column,
    missing_right,
    missing_table,
    nested,
    not_serializable,
    old_snapshot,
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
            try:
                await _accept(transaction, each, table, name)
            except Exception as error:
                if missing_table(error):
                    raise _without_fence(table, dialect) from error
                if missing_column(error):  # only tables have the columns of the system that we ask for
                    raise _no_table(table) from error
                raise


async def _accept(transaction: Transaction, presented: Presented, table: str, name: str) -> None:
    dialect = transaction.dialect
    if dialect == "mysql":
        await _accept_after_a_look(transaction, presented, table, name)
        return
    if dialect == "sqlite" and table.rpartition(".")[0] in ("", "temp"):
        shadows = statement("fence", "shadows", dialect)
        if (await transaction.execute(shadows, {"name": table.rpartition(".")[2]})).rows[0][0]:
            raise _temporary(table)
    asked = {"resource": _encoded(presented.resource, dialect), "token": presented.token}
    done = await transaction.execute(statement("fence", "accept", dialect, table=name), asked)
    if done.rows:
        own, noted, temporary = done.rows[0]
        if not own:
            await _refuse_savepoints(transaction)
        if temporary:
            raise _temporary(table)
        if not noted:
            raise _dropped(table)
        return
    read = statement("fence", "accepted", dialect, table=name)
    found = await transaction.execute(read, {"resource": asked["resource"]})
    _compare(presented, table, int(found.rows[0][0]) if found.rows else 0)


async def _accept_after_a_look(transaction: Transaction, presented: Presented, table: str, name: str) -> None:
    """Accept a token on MySQL, where a transaction may have a snapshot that is older than the row that it
    locks.
    """
    asked = {"resource": _encoded(presented.resource, "mysql")}
    await transaction.execute(statement("fence", "lock", "mysql", table=name), asked)
    look = statement("fence", "look", "mysql", table=name)
    stands = _current((await transaction.execute(look, {**asked, **_named_table(table)})).rows, table)
    newest = int(stands[0]) if stands else 0
    if newest < presented.token:
        noted = {**asked, "token": presented.token}
        await transaction.execute(statement("fence", "note", "mysql", table=name), noted)
        read = statement("fence", "accepted", "mysql", table=name)
        found = (await transaction.execute(read, asked)).rows
        newest = int(found[0][0]) if found else 0
    _compare(presented, table, newest)


def _current(rows: tuple[tuple[Any, ...], ...], table: str) -> list[Any]:
    """What `look` has found in the rows that it has locked.

    `Unsupported` if the table has no transactions, or if the transaction's snapshot shows another state of
    the row: then whatever else it shows may be as old.
    """
    newest = [value for value, is_newest, _ in rows if is_newest]
    for _, _, engine in rows:
        if engine is not None:
            raise _without_transactions(table, engine)
    if newest != [value for value, is_newest, _ in rows if not is_newest]:
        raise old_snapshot()
    return newest


def _compare(presented: Presented, table: str, accepted: int) -> None:
    """Raise unless the token that stands in a row is the one that was shown."""
    if accepted > presented.token:
        raise StaleToken(presented.resource, presented.token, accepted)
    if accepted < presented.token:
        raise _dropped(table)


async def _refuse_savepoints(transaction: Transaction, row_of: str | None = None) -> None:
    """Raise `Unsupported` if a savepoint can undo the guard alone, where the database can tell; and if the
    table of a guarded row is none.

    It is asked after the guard has changed or locked its row: a savepoint in which nothing was written has no
    number yet.
    """
    if transaction.dialect == "postgresql":
        name = None if row_of is None else quoted(row_of, "postgresql")
        found = await transaction.execute(statement("row", "around", "postgresql"), {"name": name})
        savepoints, indirect = found.rows[0]
        if indirect:
            raise _no_table(str(row_of))
        if int(savepoints) > transaction.savepoints:
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
    if engine == "view":
        return _no_table(table)
    return Unsupported(
        f"{table}: its engine {engine} has no transactions, so a guard could lock nothing and undo nothing: "
        f"alter table {table} engine = InnoDB"
    )


def _no_table(table: str) -> Unsupported:
    return Unsupported(
        f"{table}: a guard needs a table, because what stands in place of one, as a view or a rule, may "
        "change other rows than those it compares; hand over the table itself"
    )


def _temporary(table: str) -> Unsupported:
    return Unsupported(
        f"{table}: a temporary table of this connection has the name of the fence table, and no other "
        "connection sees what is written there; drop it, or name the fence table with its schema"
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
    if dialect == "mysql":
        seen = statement("claim", "seen", dialect, claims=table)
        if not (await transaction.execute(seen, {**asked, "row": pinned.rows[0][0]})).rows:
            raise old_snapshot()


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
        if dialect == "mysql":
            look = {**values, **_named_table(table)}
            rows = (await transaction.execute(statement("row", "look", dialect, **parts), look)).rows
            _refuse_row(presented, table, where, column, _current(rows, table))
        done = await transaction.execute(statement("row", "update", dialect, **parts), asked)
        changed = len(done.rows) if dialect == "postgresql" else done.changed
        if changed > 1:
            raise ValueError(f"{dict(where)} names {changed} rows of {table}: name one, by its key")
        if dialect == "postgresql" and changed:
            if not done.rows[0][0]:
                raise _dropped(table)
        else:
            rows = (await transaction.execute(statement("row", "token", dialect, **parts), values)).rows
            if rows or changed != 1:  # a row that is not there any more has another key now
                _refuse_row(presented, table, where, column, [value for (value,) in rows])
                if int(rows[0][0]) < presented.token or (changed != 1 and dialect != "mysql"):
                    raise _dropped(table)
        await _refuse_savepoints(transaction, table)


def _refuse_row(
    presented: Presented, table: str, where: Mapping[str, Any], column: str, found: list[Any]
) -> None:
    """Raise unless the condition names one row, whose token is not higher than the one that is shown."""
    if not found:
        raise LookupError(f"{table} has no row with {dict(where)}")
    if len(found) > 1:
        raise ValueError(f"{dict(where)} names {len(found)} rows of {table}: name one, by its key")
    if found[0] is None:
        raise ValueError(f"{table}.{column} is null: a token column must be not null, with the default 0")
    if int(found[0]) > presented.token:
        raise StaleToken(presented.resource, presented.token, int(found[0]))


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
        if dialect == "mysql":
            look = {**values, **_named_table(table)}
            rows = (await transaction.execute(statement("row", "look", dialect, **parts), look)).rows
            found = _current(rows, table)
        else:
            rows = (await transaction.execute(statement("row", "token", dialect, **parts), values)).rows
            found = [value for (value,) in rows]
        if len(found) != 1:
            raise LookupError(f"{dict(where)} names {len(found)} rows of {table}: name one, by its key")
        if (accepted := _token_of(found[0])) > presented.token:
            raise StaleToken(presented.resource, presented.token, accepted)
        asked = {**values, "mark": left.text}
        done = await transaction.execute(statement("row", "mark", dialect, **parts), asked)
        if dialect != "postgresql":
            done = await transaction.execute(statement("row", "marked", dialect, **parts), asked)
        if not done.rows or not done.rows[0][0]:
            raise _dropped(table)
        await _refuse_savepoints(transaction, table)
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
        await _refuse_savepoints(transaction, mark.table)
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
        "policy of the table drop the change, or is its type too small?"
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
    """On servers hexadecimal digits, which the statements decode: the encoding of the connection must not
    change a name.
    """
    return text if dialect == "sqlite" else text.encode().hex()


def _fresh(token: int) -> str:
    """Return a mark that nobody else has. It begins with the token, so that a refusal can name it."""
    return f"{token}-{uuid4().hex}"


def _token_of(mark: object) -> int:
    """Return the token in a mark of ours; 0 in one that another program has left."""
    mark = mark.decode(errors="replace") if isinstance(mark, bytes) else mark
    token = mark.partition("-")[0] if isinstance(mark, str) else ""
    return int(token) if token.isdecimal() else 0
