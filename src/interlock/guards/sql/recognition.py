"""Recognises what a user hands to a guard, by the modules of its class: no library is imported for it."""

from __future__ import annotations

from typing import Any

from interlock.guards.sql.transaction import Transaction

KNOWN = (
    "a guard takes a connection or cursor of sqlite3, psycopg 3, PyMySQL or aiomysql, a Session or "
    "Connection of SQLAlchemy, or a connection or an alias of Django's"
)


def transaction(session: object, *, asynchronous: bool) -> Transaction:
    """Return the transaction that a session, connection or cursor is in; TypeError if it is none, or of
    the other kind.
    """
    found = _transaction(session)
    if found is None:
        raise TypeError(f"{KNOWN}, not {type(session).__module__}.{type(session).__qualname__}")
    if found.asynchronous != asynchronous:
        name = type(session).__qualname__
        raise TypeError(
            f"{name} is used with await: call the async function (aguard for guard)"
            if found.asynchronous
            else f"{name} blocks: call the function without await (guard for aguard)"
        )
    return found


def _transaction(session: Any) -> Transaction | None:
    from interlock.guards.sql import dbapi, orm  # here: one of the two is enough for most programs

    if isinstance(session, str):
        return orm.DjangoTransaction(orm.django_connection(session))
    library = libraries(session)
    if "django" in library:
        if hasattr(session, "savepoint") and hasattr(session, "using"):  # transaction.atomic()
            return orm.DjangoTransaction(orm.django_connection(session.using or "default"))
        return orm.DjangoTransaction(session) if hasattr(session, "in_atomic_block") else None
    if "sqlalchemy" in library:
        if hasattr(session, "registry") and hasattr(session, "session_factory"):  # a scoped_session
            session = session()
        asynchronous = hasattr(session, "sync_session") or hasattr(session, "sync_connection")
        usable = hasattr(session, "rollback") and hasattr(session, "in_transaction")
        return orm.SQLAlchemyTransaction(session, asynchronous) if usable else None
    connection = getattr(session, "connection", session)
    if "sqlite3" in library:
        return dbapi.SQLiteTransaction(connection)
    if "psycopg" in library:
        asynchronous = any(kind.__name__ == "AsyncConnection" for kind in type(connection).__mro__)
        return dbapi.PsycopgTransaction(connection, asynchronous)
    if "aiomysql" in library:
        return dbapi.MySQLTransaction(connection, "aiomysql", asynchronous=True)
    if "pymysql" in library:
        return dbapi.MySQLTransaction(connection, "pymysql", asynchronous=False)
    return None


def libraries(session: object) -> set[str]:
    """The packages that an object's class and its parents come from."""
    return {kind.__module__.split(".")[0] for kind in type(session).__mro__}
