"""The operations on registers, each inside one transaction: `ports.Register` says what they promise."""

from __future__ import annotations

from interlock.backends.sql.sqlite.tables.lapse import live
from interlock.backends.sql.sqlite.tables.statements import CLAIMS, REGISTERS
from interlock.backends.sql.sqlite.tables.transaction import Connection, Transaction
from interlock.model import Versioned

REMEMBERED = 60.0  # seconds a deleted register keeps its version
NOTHING = Versioned(None, 0)


def read(connection: Connection, name: str, now: float) -> Versioned:
    return _written(connection.execute(REGISTERS["read"], (name,)).fetchone(), now)


def _written(row: tuple[str | None, int, str, float | None] | None, now: float) -> Versioned:
    if row is None or (row[3] is not None and not live(now, row[3], REMEMBERED)):
        return NOTHING
    return Versioned(row[0], row[1])


def compare_and_set(
    tx: Transaction, name: str, version: int, value: str | None, id: str, number: int
) -> Versioned | None:
    """`number` is the lowest version it may be given: the floor that the clock sets."""
    row = tx.execute(REGISTERS["read"], (name,)).fetchone()
    old = _written(row, tx.now)
    if old is not NOTHING and row[2] == id:
        return old
    if old.version != version:
        return None
    (last,) = tx.execute(CLAIMS["last"]).fetchone()
    number = max(number, last + 1)
    tx.execute(REGISTERS["write"], (name, value, number, id, tx.now + REMEMBERED if value is None else None))
    topic = "r" + name
    for (address,) in tx.execute(REGISTERS["bells"], (topic, tx.now)).fetchall():
        tx.ring(address, topic)
    return Versioned(value, number)


def hang(tx: Transaction, topic: str, address: str, seconds: float) -> None:
    """For so many seconds this bell is rung when something about the topic changes."""
    tx.execute(REGISTERS["hang"], (topic, address, tx.now + seconds))
