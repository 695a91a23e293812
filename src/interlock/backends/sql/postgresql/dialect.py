"""PostgreSQL as a dialect of the SQL base: where connections come from, and who listens."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from typing import Any

from interlock.backends.kit.examining import Examiner
from interlock.backends.sql.dialect import Source, Subscription
from interlock.backends.sql.pool import ConnectionPool
from interlock.backends.sql.postgresql import checks, user_pools
from interlock.backends.sql.postgresql.address import Address
from interlock.backends.sql.postgresql.connection import BlockingWaits, PostgresConnection, Waits
from interlock.backends.sql.postgresql.statements import statements
from interlock.backends.sql.postgresql.subscription import NoNotifications, PostgresSubscription
from interlock.backends.sql.user_connections import Lender, NewLogin
from interlock.errors import StoreUnfit
from interlock.model import Traits

TRAITS = Traits(
    backend="postgresql",
    fair=True,
    shares="any",
    lapses="claim",
    wakes="server",
    reach="network",
    survives="restart",
    two_holders=(
        "an operator evicts the holder or deletes its row",
        "an asynchronous standby that missed the grant is promoted",
        (
            "a standby is promoted and the old primary goes on running, for clients that still reach it, "
            "until it stops (with synchronous_standby_names not at all)"
        ),
        "the server's clock jumps forward",
        "durability=relaxed: the server crashes within a second of the grant",
        "while clients run, somebody gives the tables a trigger or a rule that drops writes",
    ),
    min_ttl=0.05,
    max_ttl=365 * 86400.0,
    blocks=True,
    renewals_wake=True,
)

CONNECTIONS = 4  # of one client for its calls; the keeper and the listener have one each

_said: set[str] = set()  # places behind a pooler that were reported


class PostgresDialect:
    """One server, as one client reaches it: by connections of our own, or by those of the user's pool."""

    traits = TRAITS

    def __init__(
        self,
        address: Address,
        *,
        durability: str = "durable",
        connections: int = CONNECTIONS,
        pool: Lender | None = None,
    ) -> None:
        self.address = address
        self.connect_timeout = address.connect_timeout
        self._durability = durability
        self._statements = statements(address.schema, durability)
        self._connections = connections
        self._pool = pool
        self._new_login = (
            None if pool is None else NewLogin(pool, lambda made: address.learn_from(made.pgconn))
        )

    @property
    def label(self) -> str:
        return self.address.label

    questions = (checks.SETTINGS,)

    def check(self, facts: Mapping[str, str], examiner: Examiner) -> None:
        checks.check(facts, self._durability, examiner)

    @property
    def claim_table(self) -> str:
        return self.address.schema.name("claim")

    @property
    def listener_key(self) -> Hashable | None:
        if self._pool is not None:  # how it connects is known only later
            return None
        address = self.address
        return frozenset(address.settings.items()), address.schema, address.connect_timeout

    def source(self, runtime: Any, *, blocking: bool) -> Source:
        if self._pool is not None:
            return user_pools.source(self._pool, self.address, self._statements, runtime, _waits(blocking))
        return self._own_pool(runtime, self._connections, blocking)

    def own_source(self, runtime: Any, *, blocking: bool) -> Source:
        return self._own_pool(runtime, 1, blocking, self._new_login)

    def _own_pool(self, runtime: Any, most: int, blocking: bool, new_login: NewLogin | None = None) -> Source:
        waits = _waits(blocking)
        loop = (lambda: None) if blocking else _running_loop
        return ConnectionPool(
            lambda: PostgresConnection(self.address, self._statements, waits),
            runtime,
            label=self.label,
            most=most,
            connect_timeout=self.connect_timeout,
            loop=loop,
            new_login=new_login,
        )

    def subscribe(self) -> Subscription | None:
        def connection() -> PostgresConnection:
            return PostgresConnection(self.address, self._statements, BlockingWaits())

        try:
            try:
                return PostgresSubscription(connection, self.connect_timeout)
            except StoreUnfit:
                if self._new_login is None or not self._new_login.look_here(self.connect_timeout):
                    raise
                return PostgresSubscription(connection, self.connect_timeout)
        except NoNotifications:
            if self.label not in _said:
                _said.add(self.label)
                logging.getLogger("interlock").warning(
                    "%s: notifications do not arrive through this connection (a pooler in transaction "
                    "mode?); waiters look at the table every 20 to 250 ms instead",
                    self.label,
                )
            return None


def _waits(blocking: bool) -> Waits:
    if blocking:
        return BlockingWaits()
    from interlock.backends.sql.postgresql.loop_waits import LoopWaits  # here, not above: it needs asyncio

    return LoopWaits()


def _running_loop() -> Any:
    from asyncio import get_running_loop

    return get_running_loop()
