"""The interface of a user's transaction, whichever library it is in; and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from interlock._support.record import record
from interlock.errors import Unsupported

Dialect: TypeAlias = Literal["postgresql", "mysql", "sqlite"]
"""The SQL that a database speaks. MariaDB speaks that of MySQL, as far as guards go."""

DIALECTS: dict[str, Dialect] = {
    "postgresql": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}


@record
class Outcome:
    """What a statement did: how many rows it changed (-1 if the library does not say), and which it
    returned.
    """

    changed: int
    rows: tuple[tuple[Any, ...], ...]


class Transaction(Protocol):
    """A transaction of the user's. Under a blocking library no call suspends, so `drive` can run it."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def asynchronous(self) -> bool: ...

    @property
    def savepoints(self) -> int:
        """How many savepoints stand in the place of the transaction, as those of Django's TestCase do; known
        after `check`.
        """
        ...

    def check(self) -> None:
        """Raise `Unsupported` if each statement would be committed by itself, or if a savepoint would undo
        the guard alone.

        SQLAlchemy may be asked only after it has connected, so its first statement raises instead.
        """

    async def execute(self, sql: str, parameters: Mapping[str, Any]) -> Outcome:
        """Run a statement with `:name` parameters; `select` returns its rows, as tuples."""
        ...

    async def end(self) -> None:
        """Roll the whole transaction back at once, whatever savepoints it has; it cannot be committed
        afterwards.
        """

    async def define(self, sql: str) -> None:
        """Run a statement that creates something, and commit it.

        `Unsupported` if that would commit the user's work.
        """


AUTOCOMMIT = (
    "a guard must be the first statement of the transaction that it protects, but this connection is in "
    "autocommit mode and no transaction is open: {advice}, then call the guard, then read and write"
)
NESTED = (
    "a guard inside a savepoint would be undone with it, while the transaction around it could still be "
    "committed: {advice}"
)
OLD_SNAPSHOT = (
    "this transaction has read something before its guard, and at its isolation level everything that it "
    "reads later is as old as that, also what an earlier holder has changed since: begin the transaction "
    "after the lock is taken, and call the guard first, or use READ COMMITTED"
)
PENDING = (
    "a table cannot be created inside a transaction of yours: commit it first, or use a connection of its own"
)


def outside(advice: str) -> Unsupported:
    """The error for a guard without a transaction."""
    return Unsupported(AUTOCOMMIT.format(advice=advice))


def nested(advice: str) -> Unsupported:
    """The error for a guard inside a savepoint."""
    return Unsupported(NESTED.format(advice=advice))


def old_snapshot() -> Unsupported:
    """The error for a guard in a transaction of MySQL that reads what was committed before others have
    changed it.
    """
    return Unsupported(OLD_SNAPSHOT)


def chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it was made from: SQLAlchemy and Django wrap those of the driver."""
    seen: BaseException | None = error
    for _ in range(5):
        if seen is None:
            return
        yield seen
        original = getattr(seen, "orig", None)
        seen = original if isinstance(original, BaseException) else seen.__cause__


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of an error of PostgreSQL; '' if it has none.

    SQLAlchemy and Django bring drivers of several kinds.
    """
    for each in chain(error):
        for name in ("sqlstate", "pgcode"):  # psycopg and asyncpg; psycopg2
            if isinstance(state := getattr(each, name, None), str):
                return state
        fields: Any = each.args[0] if each.args else None
        if hasattr(fields, "get") and isinstance(state := fields.get("C"), str):  # pg8000
            return state
    return ""


def number(error: BaseException) -> int:
    """The number of an error of MySQL; 0 if it has none."""
    for each in chain(error):
        if each.args and isinstance(each.args[0], int):
            return int(each.args[0])
    return 0


def missing_table(error: BaseException) -> bool:
    """Whether a statement failed because a table or its schema does not exist."""
    if sqlstate(error) in ("42P01", "3F000") or number(error) in (1146, 1049):
        return True
    return any("no such table" in str(each) or "unknown database" in str(each) for each in chain(error))


def missing_column(error: BaseException) -> bool:
    """Whether a statement of PostgreSQL failed because a table has no such column."""
    return sqlstate(error) == "42703"


def missing_right(error: BaseException) -> bool:
    """Whether a statement failed because the user may not do that to this table, its columns or its
    schema.
    """
    return sqlstate(error) == "42501" or number(error) in (1142, 1143)


def not_serializable(error: BaseException) -> bool:
    """Whether PostgreSQL ended a transaction above READ COMMITTED because a row it needs was changed
    meanwhile.
    """
    return sqlstate(error) == "40001"


def created_meanwhile(error: BaseException) -> bool:
    """Whether PostgreSQL refused `create table if not exists` because somebody else did the same at that
    moment.
    """
    return sqlstate(error) in ("23505", "42P07", "42710", "XX000")  # 42710: of the table's own type
