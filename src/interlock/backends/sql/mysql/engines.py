"""Connections that an engine of SQLAlchemy lends for one call each. See `user_connections`."""

from __future__ import annotations

from typing import Any, Protocol
from weakref import WeakSet

from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql.mysql.address import Address, session
from interlock.backends.sql.mysql.connection import MysqlConnection
from interlock.backends.sql.mysql.driver import ROLE, BlockingDriver, Driver
from interlock.backends.sql.user_connections import (
    AsyncEngine,
    Engine,
    Lender,
    OneDatabase,
    UserSource,
)
from interlock.errors import StoreUnfit

# Seconds between two clocks that are one: that of a statement stands still while it runs.
MAX_CLOCK_STEP_S = 1.0


class MysqlLender(Lender, Protocol):
    """An engine whose connections we know."""

    def driver(self, label: str, connection: Any) -> Driver: ...
    def settings(self, connection: Any) -> dict[str, Any]:
        """How this connection was made, as our own connections take it."""
        ...


class PyMysqlEngine(Engine):
    """An engine over PyMySQL."""

    def driver(self, label: str, connection: Any) -> Driver:
        return BlockingDriver(label, connection)

    def settings(self, connection: Any) -> dict[str, Any]:
        named = {name: getattr(connection, name) for name in ("host", "port", "user", "unix_socket")}
        # By default PyMySQL uses TLS if the server has it, and so do our own connections. This is for an
        # engine that demands TLS.
        demanded = getattr(connection, "_ssl_required", connection.ssl)
        return _plain(named, connection.password, connection.db, connection.ctx if demanded else None)


class LoopEngine(AsyncEngine):
    """An engine over aiomysql or asyncmy."""

    def driver(self, label: str, connection: Any) -> Driver:
        from interlock.backends.sql.mysql.loop_driver import LoopDriver  # here, not above: it needs asyncio

        return LoopDriver(label, connection)

    def settings(self, connection: Any) -> dict[str, Any]:
        named = {name: getattr(connection, f"_{name}") for name in ("host", "port", "user", "unix_socket")}
        return _plain(named, connection._password, connection._db, getattr(connection, "_ssl_context", None))


def _plain(named: dict[str, Any], password: Any, database: Any, tls: Any) -> dict[str, Any]:
    def text(value: Any) -> Any:
        return value.decode("latin1") if isinstance(value, bytes) else value

    found = {name: text(value) for name, value in named.items() if value is not None}
    found |= {"password": text(password) or "", "database": text(database)}
    return found | ({} if tls is None else {"ssl": tls}) | session()


class _Lent(MysqlConnection):
    """A lent connection, which remembers what to give back, and which timeouts the connection
    was.
    """

    def __init__(self, driver: Driver, address: Address, lent: Any, connection: Any) -> None:
        super().__init__(driver, address.schema, address.label, None)
        self.lent = lent
        self._address = address
        self._connection = connection
        self._timeouts = {
            name: getattr(connection, name)
            for name in ("_read_timeout", "_write_timeout")
            if hasattr(connection, name)
        }

    async def learn(self, timeout: float) -> None:
        # With a limit of its own, which counts more than the `sql_select_limit` of the session.
        asked = (
            "select current_role(), version(), database(), @@completion_type, "
            "timestampdiff(microsecond, now(6), sysdate(6)) / 1e6 limit 1"
        )
        (((role, version, database, completion, behind),),) = await self._driver.query(asked, timeout)
        # The procedures count by the session's clock, which `set timestamp` stops.
        if abs(float(behind)) > MAX_CLOCK_STEP_S:
            raise StoreUnfit(
                f"{self._address.label}: the sessions of this engine have a clock of their own, by which "
                "leases "
                "would lapse at the wrong time; have them run `set timestamp = default`"
            )
        role, version, database, completion = (
            said.decode() if isinstance(said, bytes) else said
            for said in (role, version, database, completion)
        )
        if completion != "NO_CHAIN":
            raise StoreUnfit(
                f"{self._address.label}: the sessions of this engine have completion_type={completion}, with "
                "which a commit of ours would begin another transaction or end the connection; leave it at "
                "NO_CHAIN"
            )
        # A listener of the engine may have chosen another one since the connection was made.
        self._address.settings["database"] = database
        if "MariaDB" in version:  # which says the bare name of one role, and MySQL a list of quoted ones
            role = role and "`{}`".format(role.replace("`", "``"))
        self._address.settings[ROLE] = "" if role in (None, "NONE") else role

    def leave(self) -> None:
        """Leave the connection to its engine as it was."""
        self._opened = False
        for name, value in self._timeouts.items():
            setattr(self._connection, name, value)


def learn_login(lender: MysqlLender, address: Address, connection: Any) -> None:
    """Take over how this connection was made; but not for which database, once a session has told its own."""
    found = lender.settings(connection)
    found["database"] = address.settings.get("database") or found["database"]
    address.settings.update(found)


def source(lender: MysqlLender, address: Address, runtime: WaitRuntime, connect_timeout: float) -> UserSource:
    """Steps run on connections of this engine."""

    known: WeakSet[Any] = WeakSet()
    database = OneDatabase()

    def adopt(lent: Any, connection: Any) -> _Lent:
        database.check(address.label, lender.settings(connection)["database"] or "")
        if connection not in known:  # or an old connection would bring back an old password
            known.add(connection)
            learn_login(lender, address, connection)
        return _Lent(lender.driver(address.label, connection), address, lent, connection)

    return UserSource(lender, adopt, runtime, lambda: address.label, connect_timeout)
