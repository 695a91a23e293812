"""The steps that change nothing, each answered from one snapshot: `interlock.backends.sql.steps` says what
they return.
"""

from __future__ import annotations

from typing import Any

from interlock.backends.sql.sqlite.tables.queue import live_rows, living
from interlock.backends.sql.sqlite.tables.row import SLACK_S, live
from interlock.backends.sql.sqlite.tables.statements import CLAIMS
from interlock.backends.sql.sqlite.tables.transaction import Transaction
from interlock.backends.sql.steps import IN, Rows


def queue(tx: Transaction, resource: str, limit: int | None) -> Rows:
    """The claims that stand on a resource, without those of dead processes that are in somebody's way."""
    found = tx.execute(CLAIMS["standings"], (resource,))
    rows = living(live_rows(found, tx.now), tx.alive, limit)
    found.close()  # half read: it would keep its snapshot
    return [row.described(tx.now) for row in rows]


def names(tx: Transaction, prefix: str, after: str, limit: int) -> Rows:
    asked: dict[str, Any] = {"after": after, "first": prefix, "end": _beyond(prefix), "now": tx.now}
    return tx.execute(CLAIMS["names"], {**asked, "slack": SLACK_S, "limit": limit}).fetchall()


def find(tx: Transaction, resource: str, id: str) -> Rows:
    """As `steps.FIND`, with the bell that stands in the row as a last column."""
    for state, rung, token, bell, ttl, lapses_at, _note in tx.execute(
        CLAIMS["find"], (resource, id)
    ).fetchall():
        if state <= IN and live(tx.now, lapses_at, ttl):
            return [(state, rung, token, lapses_at - tx.now, bell)]
        break
    return []


def admitted(tx: Transaction, resource: str, id: str) -> Rows:
    """The claim as a holder, lapsed or not: its token, ttl and lapse."""
    return tx.execute(CLAIMS["admitted"], (resource, id)).fetchall()


def outlived(tx: Transaction, life: int) -> bool:
    """Whether any claim of a process stands, on whatever resource."""
    (stands,) = tx.execute(CLAIMS["outlived"], (life, tx.now)).fetchone()
    return bool(stands)


def _beyond(prefix: str) -> str | bytes:
    """The least value above every name with this prefix; a blob, which is above all text, if there is
    none.
    """
    for index in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[index]) + 1
        if code <= 0x10FFFF:
            return prefix[:index] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
    return b""
