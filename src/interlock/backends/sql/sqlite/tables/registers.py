"""The steps on registers and watchers, each inside one transaction: `interlock.backends.sql.steps` says
what they do.
"""

from __future__ import annotations

from typing import Any

from interlock.backends.sql.sqlite.tables.row import live
from interlock.backends.sql.sqlite.tables.statements import CLAIMS, REGISTERS
from interlock.backends.sql.sqlite.tables.transaction import Transaction
from interlock.backends.sql.steps import REMEMBERED_S, Rows


def read(tx: Transaction, name: str) -> Rows:
    row = _present(tx, name)
    return [] if row is None else [row[:2]]


def _present(tx: Transaction, name: str) -> Any:
    """Its value, its version and the id that wrote it; None if it does not exist, or was deleted too long
    ago.
    """
    row = tx.execute(REGISTERS["read"], (name,)).fetchone()
    return None if row is None or (row[3] is not None and not live(tx.now, row[3], REMEMBERED_S)) else row


def write(
    tx: Transaction,
    floor: int,
    name: str,
    version: int,
    value: str | None,
    id: str,
    _bell: str,
    remembered: float,
) -> Rows:
    """`floor` is the lowest version that it may be given, by the clock."""
    row = _present(tx, name)
    if row is not None and row[2] == id:
        return [row[:2]]
    if version != (0 if row is None else row[1]):
        return []
    (last,) = tx.execute(CLAIMS["last"]).fetchone()
    number = max(floor, last + 1)
    tx.execute(REGISTERS["write"], (name, value, number, id, tx.now + remembered if value is None else None))
    ring_watchers(tx, "r" + name)
    return [(value, number)]


def watch(tx: Transaction, kind: str, name: str, bell: str, seconds: float) -> Rows:
    tx.execute(REGISTERS["hang"], (kind + name, bell, tx.now + seconds))
    return []


def ring_watchers(tx: Transaction, topic: str) -> None:
    """Ring all that watch this topic as observers: see `Store.watch`."""
    for (address,) in tx.execute(REGISTERS["bells"], (topic, tx.now)).fetchall():
        tx.ring(address, topic)
