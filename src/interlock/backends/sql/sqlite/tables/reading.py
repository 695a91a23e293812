"""Questions to the tables that change nothing, each answered from one snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from interlock.backends.sql.sqlite.tables.lapse import SLACK, live
from interlock.backends.sql.sqlite.tables.queue import live_rows, living, standings
from interlock.backends.sql.sqlite.tables.row import IN
from interlock.backends.sql.sqlite.tables.statements import CLAIMS
from interlock.backends.sql.sqlite.tables.transaction import Connection
from interlock.model import Queue


class Found(NamedTuple):
    """A claim that was found by its id, in the order of the statement `find`."""

    state: int
    rung: int
    bell: str
    ttl: float
    lapses_at: float
    note: str

    def changed(self, now: float, waits: bool) -> bool:
        """Whether something has happened to the claim since it was answered; `waits` if it was told to wait."""
        return bool(self.rung) or (waits and self.state == IN) or not live(now, self.lapses_at, self.ttl)


def queue(
    connection: Connection, resource: str, limit: int | None, now: float, alive: Callable[[int], bool]
) -> Queue:
    """The claims that stand on a resource, without those of dead processes that are in somebody's way."""
    found = connection.execute(CLAIMS["standings"], (resource,))
    rows = living(live_rows(found, now), alive, limit)
    found.close()  # half read: it would keep its snapshot
    return Queue(resource, rows[0].capacity if rows else 0, tuple(standings(rows, now)))


def names(connection: Connection, prefix: str, after: str, limit: int, now: float) -> list[str]:
    """The resources with live claims that begin with `prefix` and come after `after`, in code point order."""
    asked: dict[str, Any] = {"after": after, "first": prefix, "end": _beyond(prefix), "now": now}
    found = connection.execute(CLAIMS["names"], {**asked, "slack": SLACK, "limit": limit})
    return [name for (name,) in found]


def find(connection: Connection, resource: str, id: str) -> Found | None:
    """A claim that holds or waits, lapsed or not; None if it is gone or was evicted."""
    found = connection.execute(CLAIMS["find"], (resource, id)).fetchall()
    return Found(*found[0]) if found and found[0][0] <= IN else None


def outlived(connection: Connection, life: int, now: float) -> bool:
    """Whether any claim of a process stands, on whatever resource."""
    (stands,) = connection.execute(CLAIMS["outlived"], (life, now)).fetchone()
    return bool(stands)


def _beyond(prefix: str) -> str | bytes:
    """The least value above every name with this prefix; a blob, which is above all text, if there is none."""
    for index in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[index]) + 1
        if code <= 0x10FFFF:
            return prefix[:index] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
    return b""
