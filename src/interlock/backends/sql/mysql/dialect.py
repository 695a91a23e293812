"""MariaDB or MySQL as one client reaches it: see `interlock.backends.sql.dialect.Dialect`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlock._core.drive import drive
from interlock.backends.kit.examining import Examiner
from interlock.backends.sql.dialect import NotInstalled, Source, Subscription
from interlock.backends.sql.mysql import checks, engines
from interlock.backends.sql.mysql.address import Address
from interlock.backends.sql.mysql.connection import MysqlConnection
from interlock.backends.sql.mysql.driver import BlockingDriver, library
from interlock.backends.sql.mysql.galera import ClusterCheck
from interlock.backends.sql.mysql.subscription import MysqlSubscription
from interlock.backends.sql.mysql.transactional import EngineCheck
from interlock.backends.sql.pool import ConnectionPool
from interlock.backends.sql.user_connections import NewLogin
from interlock.errors import StoreUnfit
from interlock.model import Traits

TRAITS = Traits(
    backend="mysql",
    fair=True,
    shares="any",
    lapses="claim",
    wakes="server",
    reach="network",
    survives="restart",
    two_holders=(
        "an operator evicts the holder or deletes its row",
        "failover to a replica that missed the write",
        (
            "a replica is promoted and the old primary goes on running, for clients that still reach it, "
            "until it stops or is read-only"
        ),
        "the server loses commits in a crash (innodb_flush_log_at_trx_commit other than 1)",
        "the server's clock jumps forward",
        (
            "the tables are altered to an engine without transactions while clients run, or where clients "
            "may not see it"
        ),
    ),
    min_ttl=0.01,
    max_ttl=365 * 86400.0,
    blocks=True,
    renewals_wake=True,
)


class MysqlDialect:
    """A server, as one client reaches it: by connections of our own, or by those that a user's engine
    lends.
    """

    def __init__(
        self, address: Address, connect_timeout: float, lender: engines.MysqlLender | None = None
    ) -> None:
        self.traits = TRAITS
        self.label = address.label
        self.connect_timeout = connect_timeout
        self._address = address
        self._lender = lender
        self._new_login = None
        if lender is not None:
            self._new_login = NewLogin(lender, lambda made: engines.learn_login(lender, address, made))
        self._check = ClusterCheck(address.label)
        self._checks = (self._check, EngineCheck(address.label, address.schema.prefix))
        library("pymysql")  # now, not at the first claim: what is missing is said where the store is named

    questions = checks.QUESTIONS

    def check(self, facts: Mapping[str, str], examiner: Examiner) -> None:
        checks.check(facts, examiner)

    @property
    def listener_key(self) -> None:
        return None

    @property
    def claim_table(self) -> str:
        names = (self._address.settings.get("database"), f"{self._address.schema.prefix}claim")
        return ".".join(f"`{name.replace('`', '``')}`" for name in names if name)

    def source(self, runtime: Any, *, blocking: bool) -> Source:
        if self._lender is not None:
            return engines.source(self._lender, self._address, runtime, self.connect_timeout)
        return self._pool(runtime, blocking, self._address.connections)

    def own_source(self, runtime: Any, *, blocking: bool) -> Source:
        return self._pool(runtime, blocking, 1, self._new_login)

    def _pool(self, runtime: Any, blocking: bool, most: int, new_login: NewLogin | None = None) -> Source:
        return ConnectionPool(
            self._blocking_connection if blocking else self._loop_connection,
            runtime,
            label=self.label,
            most=most,
            connect_timeout=self.connect_timeout,
            loop=(lambda: None) if blocking else _running_loop,
            new_login=new_login,
        )

    def _blocking_connection(self) -> MysqlConnection:
        address = self._address
        return MysqlConnection(
            BlockingDriver(self.label), address.schema, self.label, address.settings, self._checks
        )

    def _loop_connection(self) -> MysqlConnection:
        from interlock.backends.sql.mysql.loop_driver import LoopDriver  # here, not above: it needs asyncio

        address = self._address
        return MysqlConnection(
            LoopDriver(self.label), address.schema, self.label, address.settings, self._checks
        )

    def subscribe(self) -> Subscription | None:
        """Never None: where rings cannot arrive, it looks for its mail instead."""
        address = self._address
        driver, helper = BlockingDriver(self.label), BlockingDriver(self.label)
        subscription = MysqlSubscription(driver, address.schema, self.label)
        try:
            try:
                drive(driver.connect(address.settings, self.connect_timeout), nested=True)
            except StoreUnfit:
                if self._new_login is None or not self._new_login.look_here(self.connect_timeout):
                    raise
                drive(driver.connect(address.settings, self.connect_timeout), nested=True)
            drive(helper.connect(address.settings, self.connect_timeout), nested=True)
            drive(self._check.ask(helper, self.connect_timeout), nested=True)
            try:
                subscription.open(lambda sql: drive(helper.query(sql, self.connect_timeout), nested=True))
            except NotInstalled:
                connection = MysqlConnection(helper, address.schema, self.label, address.settings)
                drive(connection.install(self.connect_timeout), nested=True)
                subscription.open(lambda sql: drive(helper.query(sql, self.connect_timeout), nested=True))
            if self._check.galera:
                subscription.look_often()
        except BaseException:
            driver.discard()
            raise
        finally:
            helper.discard()
        return subscription


def _running_loop() -> Any:
    from asyncio import get_running_loop  # here, not above: most programs do without

    return get_running_loop()
