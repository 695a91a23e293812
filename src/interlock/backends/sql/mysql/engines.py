"""Connections that an engine of SQLAlchemy lends for one call each. See `user_connections`."""

from __future__ import annotations

from typing import Any, Protocol

from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql.mysql.address import Address, session
from interlock.backends.sql.mysql.driver import BlockingDriver, Driver
from interlock.backends.sql.mysql.link import MysqlLink
from interlock.backends.sql.user_connections import AsyncEngine, Engine, Lender, UserSource


class MysqlLender(Lender, Protocol):
    """An engine whose connections we know."""

    def driver(self, place: str, connection: Any) -> Driver: ...
    def settings(self, connection: Any) -> dict[str, Any]:
        """How this connection was made, as our own connections take it."""
        ...


class PyMysqlEngine(Engine):
    """An engine over PyMySQL."""

    def driver(self, place: str, connection: Any) -> Driver:
        return BlockingDriver(place, connection)

    def settings(self, connection: Any) -> dict[str, Any]:
        named = {name: getattr(connection, name) for name in ("host", "port", "user", "unix_socket")}
        # By default PyMySQL uses TLS where the server has it, and then so do we; this is about an engine that demands it.
        demanded = getattr(connection, "_ssl_required", connection.ssl)
        return _plain(named, connection.password, connection.db, connection.ctx if demanded else None)


class LoopEngine(AsyncEngine):
    """An engine over aiomysql or asyncmy."""

    def driver(self, place: str, connection: Any) -> Driver:
        from interlock.backends.sql.mysql.loop_driver import LoopDriver  # here, not above: it needs asyncio

        return LoopDriver(place, connection)

    def settings(self, connection: Any) -> dict[str, Any]:
        named = {name: getattr(connection, f"_{name}") for name in ("host", "port", "user", "unix_socket")}
        return _plain(named, connection._password, connection._db, getattr(connection, "_ssl_context", None))


def _plain(named: dict[str, Any], password: Any, database: Any, tls: Any) -> dict[str, Any]:
    def text(value: Any) -> Any:
        return value.decode("latin1") if isinstance(value, bytes) else value

    found = {name: text(value) for name, value in named.items() if value is not None}
    found |= {"password": text(password) or "", "database": text(database)}
    return found | ({} if tls is None else {"ssl": tls}) | session()


class _Lent(MysqlLink):
    """A link over a lent connection, which remembers what to give back, and how patient the connection was."""

    def __init__(self, driver: Driver, address: Address, lent: Any, connection: Any) -> None:
        super().__init__(driver, address.schema, address.place, None)
        self.lent = lent
        self._connection = connection
        self._patience = {
            name: getattr(connection, name)
            for name in ("_read_timeout", "_write_timeout")
            if hasattr(connection, name)
        }

    def leave(self) -> None:
        """Leave the connection to its engine as it was."""
        self._opened = False
        for name, value in self._patience.items():
            setattr(self._connection, name, value)


def source(lender: MysqlLender, address: Address, runtime: WaitRuntime, connect_timeout: float) -> UserSource:
    """Steps run on connections of this engine."""

    def adopt(lent: Any, connection: Any) -> _Lent:
        if not address.settings:
            address.settings.update(lender.settings(connection))
        return _Lent(lender.driver(address.place, connection), address, lent, connection)

    return UserSource(lender, adopt, runtime, lambda: address.place, connect_timeout)
