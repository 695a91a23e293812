"""Notices that a server is a node of a Galera cluster, and says what is promised there.

Every grant is a write of its resource's slot row. Of two nodes that grant at the same time, certification
refuses one with a deadlock error, and that call is repeated: two nodes exclude each other. But each node has
a clock of its own, and a wake-up never reaches another node.
"""

from __future__ import annotations

import logging

from interlock.backends.sql.mysql.driver import Driver

QUESTION = "show global variables like 'wsrep_on'"
NOTICE = (
    "%s is a node of a Galera cluster. Locks hold across its nodes as far as their clocks agree; wake-ups "
    "do not cross nodes, so waiters look for them; a transaction with a guard may fail when its claim is "
    "renewed at another node. Use one node for all locks if you can"
)


class ClusterCheck:
    """Asks once for each client, over the first connection that it makes."""

    def __init__(self, label: str) -> None:
        self.galera: bool | None = None  # None: not asked yet
        self._label = label
        self._said = False

    async def ask(self, driver: Driver, timeout: float) -> None:
        if self.galera is not None:
            return
        results = await driver.query(QUESTION, timeout)
        found = any(str(value).upper() in ("ON", "1") for rows in results for _, value in rows)
        self.galera = found
        if found and not self._said:  # another connection may have asked meanwhile
            self._said = True
            logging.getLogger("interlock").warning(NOTICE, self._label)
