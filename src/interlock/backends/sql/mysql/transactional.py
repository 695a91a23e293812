"""Refuses tables that somebody has altered to an engine without transactions.

There the row of a slot is locked for one statement only, and two clients that claim at the same time are both
let in.
"""

from __future__ import annotations

from interlock.backends.sql.mysql.driver import Driver
from interlock.errors import StoreUnfit

TABLES = ("slot", "claim", "register", "pending", "mail")


class EngineCheck:
    """Asks once for each client, over the first connection that it makes.

    The server tells only of tables that the user may use itself, and a program needs no right to them.
    """

    def __init__(self, label: str, prefix: str) -> None:
        self._asked = False
        self._label = label
        names = ", ".join(f"'{prefix}{table}'" for table in TABLES)
        self._question = (
            "select table_name, coalesce(engine, 'view') from information_schema.tables "
            f"where table_schema = database() and table_name in ({names}) "
            "and coalesce(engine, '') <> 'InnoDB'"
        )

    async def ask(self, driver: Driver, timeout: float) -> None:
        if self._asked:
            return
        for rows in await driver.query(self._question, timeout):
            for name, engine in rows:
                raise StoreUnfit(
                    f"{self._label}: the table {name} has the engine {engine}, without the transactions of "
                    f"InnoDB, so two could hold one lock: alter table {name} engine = InnoDB"
                )
        self._asked = True
