"""One connection that runs steps: see `interlock.backends.sql.dialect.Connection`.

Written once, for both drivers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from interlock.backends.sql.dialect import NotInstalled
from interlock.backends.sql.mysql import calls
from interlock.backends.sql.mysql.driver import Driver
from interlock.backends.sql.mysql.galera import ClusterCheck
from interlock.backends.sql.mysql.schema import NO_LIMIT, Schema
from interlock.backends.sql.mysql.transactional import EngineCheck
from interlock.backends.sql.steps import Rows
from interlock.errors import StoreUnfit

# Seconds that a statement waits for a lock before the server gives up; the base repeats it within its
# deadline.
LOCK_WAIT_S = 2
# The second and the third may have been set for the whole server: a commit would begin a transaction or
# disconnect, and answers would be cut.
SESSION = (
    f"set session innodb_lock_wait_timeout = {LOCK_WAIT_S}, completion_type = 0, "
    f"sql_select_limit = {NO_LIMIT}"
)
MAX_ADDED_ROUND_TRIP_S = 2.0  # seconds that the way to a distant server may add to a step
UNCHECKED_S = 0.5  # seconds of idleness after which a connection is looked at before it is used


class MysqlConnection:
    """A connection to MariaDB or MySQL.

    `settings` are those of the driver's connect; None where the connection is a user's.
    """

    def __init__(
        self,
        driver: Driver,
        schema: Schema,
        label: str,
        settings: Mapping[str, Any] | None,
        checks: Sequence[ClusterCheck | EngineCheck] = (),
    ) -> None:
        self._driver = driver
        self._schema = schema
        self._label = label
        self._settings = settings
        self._checks = checks
        self._used = 0.0
        self._least = 0.0  # seconds that a step has at least: a distant server cannot answer sooner
        self._opened = settings is None

    async def open(self, timeout: float) -> None:
        assert self._settings is not None
        began = time.monotonic()
        await self._driver.connect(self._settings, timeout)
        self._opened = True
        self._used = time.monotonic()
        self._least = min(
            MAX_ADDED_ROUND_TRIP_S, (self._used - began) / 2
        )  # of the four round trips or more that connecting takes
        for check in self._checks:
            await check.ask(self._driver, max(self._least, began + timeout - self._used))

    async def run(self, step: str, args: Sequence[Any], timeout: float) -> Rows:
        asked = time.monotonic()
        results = await self._driver.query(calls.call(self._schema, step, args), max(timeout, self._least))
        self._used = time.monotonic()
        self._least = min(
            self._least, 2 * (self._used - asked)
        )  # it was slow to connect, and is not far away
        return calls.rows(step, results)

    async def install(self, timeout: float) -> None:
        async def execute(sql: str) -> Rows:
            try:
                results = await self._driver.query(sql, timeout)
            except NotInstalled as error:
                raise StoreUnfit(str(error)) from None
            return results[0] if results else ()

        await self._schema.install(execute, self._label, timeout)

    def stale(self) -> bool:
        return time.monotonic() - self._used > UNCHECKED_S and self._driver.stale()

    def discard(self) -> None:
        self._opened = False
        self._driver.discard()

    def abandon(self) -> None:
        # Or our end would close it for the parent, too: parent and child share what an event loop watches.
        self._opened = False
        self._driver.abandon()

    def __del__(self) -> None:
        if self._opened:
            self._driver.discard()
