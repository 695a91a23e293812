"""From a URL or an engine of SQLAlchemy to a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interlock._core.runtime import Runtime
from interlock.backends.sql.assembly import Assembly
from interlock.backends.sql.mysql.address import Address, from_url
from interlock.backends.sql.mysql.dialect import MysqlDialect
from interlock.backends.sql.mysql.engines import LoopEngine, PyMysqlEngine
from interlock.backends.sql.mysql.schema import Schema
from interlock.backends.sql.server_store import ServerStore
from interlock.backends.sql.user_connections import refuse_shared
from interlock.errors import Unsupported

if TYPE_CHECKING:
    from urllib.parse import SplitResult


def open_url(
    parts: SplitResult, runtime: Runtime, *, asynchronous: bool, connect_timeout: float
) -> ServerStore:
    """The store in the database that a URL names.

    With `asynchronous` its calls suspend, and never block the event loop.
    """
    dialect = MysqlDialect(from_url(parts), connect_timeout)
    return Assembly(dialect, runtime).store(asynchronous=asynchronous)


def open_client(client: Any, runtime: Runtime, *, asynchronous: bool, connect_timeout: float) -> ServerStore:
    """The store in the database of an engine of SQLAlchemy, with a connection of it for each call."""
    if asynchronous != hasattr(client, "sync_engine"):
        raise Unsupported(
            "interlock.aio.connect takes an AsyncEngine, and interlock.connect an Engine: each runs on its "
            "own kind of engine"
        )
    drivers = ("aiomysql", "asyncmy") if asynchronous else ("pymysql",)
    if client.dialect.driver not in drivers:
        raise Unsupported(
            f"interlock uses {' or '.join(drivers)}, and this engine uses {client.dialect.driver}: make it "
            f"from mysql+{drivers[0]}://, or give interlock a URL of its own"
        )
    refuse_shared(client)
    label = str(client.url.set(query={}, password=None).render_as_string())
    dialect = MysqlDialect(
        Address(label, {}, Schema(), 0),
        connect_timeout,
        (LoopEngine if asynchronous else PyMysqlEngine)(client),
    )
    return Assembly(dialect, runtime).store(asynchronous=asynchronous)
