"""From a URL or an engine of SQLAlchemy to a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.backends.sql.assembly import Assembly
from interlock.backends.sql.mysql.address import from_url
from interlock.backends.sql.mysql.dialect import MysqlDialect
from interlock.backends.sql.store import SqlStore
from interlock.ports import Runtime

if TYPE_CHECKING:
    from urllib.parse import SplitResult


def open_url(
    parts: SplitResult, runtime: Runtime, *, asynchronous: bool, connect_timeout: float
) -> SqlStore:
    """The store in the database that a URL names. With `asynchronous` its calls suspend, and never block the event loop."""
    dialect = MysqlDialect(from_url(parts), connect_timeout)
    return Assembly(dialect, runtime).store(asynchronous=asynchronous)
