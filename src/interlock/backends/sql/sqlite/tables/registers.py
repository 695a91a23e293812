"""The steps on registers and watchers, each inside one transaction: `interlock.backends.sql.steps` says what they do."""

from __future__ import annotations

from interlock.backends.sql.sqlite.tables.lapse import live
from interlock.backends.sql.sqlite.tables.statements import CLAIMS, REGISTERS
from interlock.backends.sql.sqlite.tables.transaction import Transaction
from interlock.backends.sql.steps import REMEMBERED, Rows


def read(tx: Transaction, name: str) -> Rows:
    return [row[:2] for row in _written(tx, name)]


def _written(tx: Transaction, name: str) -> Rows:
    """The row of a register, with the id that wrote it, unless it was deleted too long ago."""
    rows = tx.execute(REGISTERS["read"], (name,)).fetchall()
    return [row for row in rows if row[3] is None or live(tx.now, row[3], REMEMBERED)]


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
    present = 0
    for written, present, writer, _ in _written(tx, name):
        if writer == id:
            return [(written, present)]
    if present != version:
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
