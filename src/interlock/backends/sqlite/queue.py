"""How the queue of one resource moves inside a transaction. The rule itself is `_core.admission`'s.

`state` remembers who was told that it is in. Whatever lets somebody in (a release, an eviction, a
lapse that is noticed, a claim that shrinks) ends in `advance`, which finds exactly those who are in and
have not been told, and rings them: no herd, and none is missed.

Those who stay outside were told when what they watch lapses. When that leaves before its time they are
rung as well: what they must watch now may lapse sooner.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from interlock._core.admission import admitted
from interlock.backends.sqlite.clock import live
from interlock.backends.sqlite.database import Transaction
from interlock.backends.sqlite.row import EVICTED, WAITS, Row
from interlock.backends.sqlite.statements import CLAIMS, REGISTERS
from interlock.model import Standing


class Place:
    """Where a claim stands: live claims ahead of it, itself if it is there, and what lapsed on the way."""

    __slots__ = ("capacity", "evicted", "lapsed", "lapses_at", "mine", "permits")

    def __init__(self) -> None:
        self.permits: list[int] = []  # of those ahead, in their order
        self.lapses_at: list[float] = []
        self.capacity: int | None = None  # under which they stand; None when nobody does
        self.mine: Row | None = None
        self.evicted = False
        self.lapsed: list[int] = []


def find(tx: Transaction, resource: str, id: str) -> Place:
    """Look along the queue as far as the claim; a waiter at the front costs the same in any queue."""
    place = Place()
    now = tx.now
    cursor = tx.execute(CLAIMS["queue"], (resource,))
    for raw in cursor:  # not Row(*raw): whoever joins a long queue walks along all of it
        token, its, state, permits, capacity, ttl, lapses_at, _rung, _bell = raw
        if not live(now, lapses_at, ttl):
            place.lapsed.append(token)
        elif state == EVICTED:
            place.evicted |= its == id
        else:
            place.capacity = capacity
            if its == id:
                place.mine = Row(*raw)
                break
            place.permits.append(permits)
            place.lapses_at.append(lapses_at)
    cursor.close()  # half read: it would keep its snapshot, and the log could not be emptied
    return place


def drop(tx: Transaction, resource: str, tokens: Iterable[int]) -> None:
    for token in tokens:
        tx.execute(CLAIMS["drop"], (resource, token))


def advance(tx: Transaction, resource: str, asking: str = "") -> None:
    """Let in, and ring, whoever fits now and has not been told; what lapsed at the front is removed.

    The first who does not fit is rung too when it waits for all holders alike (a semaphore): others may
    have come in ahead of it, and it was told nothing of their lapses. Not the one who is `asking`.
    """
    taken, widest = 0, 0
    lapsed: list[int] = []
    came: list[Row] = []
    outside: Row | None = None
    cursor = tx.execute(CLAIMS["queue"], (resource,))
    for raw in cursor:
        row = Row(*raw)
        if not row.live(tx.now):
            lapsed.append(row.token)
        elif row.state != EVICTED:
            taken += row.permits
            if taken > row.capacity:
                outside = row
                break
            widest = max(widest, row.permits)
            if row.state == WAITS:
                came.append(row)
    cursor.close()
    drop(tx, resource, lapsed)
    for row in came:
        tx.execute(CLAIMS["admit"], (resource, row.token, tx.now))
        tx.call(row.bell, "c" + row.id)
    if outside is not None and outside.id != asking and widest + outside.permits <= outside.capacity:
        nudge(tx, resource, outside)


def nudge(tx: Transaction, resource: str, row: Row) -> None:
    """Make a waiter look again."""
    if not row.rung:  # otherwise it has been rung and has not looked yet
        tx.execute(CLAIMS["nudge"], (resource, row.token))
        tx.call(row.bell, "c" + row.id)


def nudge_watchers(tx: Transaction, resource: str, leaving: Row) -> None:
    """Make those look again who stay outside and watched `leaving`.

    That is `to_watch` seen from the other end: those who cannot share with it and have nobody nearer in their
    way, and the one just behind another waiter. Beyond a claim at least as wide as `leaving` nobody can have
    watched it, so a mutex looks at one row.
    """
    widest = 0
    watchers: list[Row] = []
    cursor = tx.execute(CLAIMS["behind"], (resource, leaving.token))
    for raw in cursor:
        row = Row(*raw)
        if row.state == EVICTED or not row.live(tx.now):
            continue
        just_behind = not widest and leaving.state == WAITS
        if row.state == WAITS:
            if just_behind or leaving.permits + row.permits > row.capacity >= widest + row.permits:
                watchers.append(row)
        widest = max(widest, row.permits)
        if widest >= leaving.permits:
            break
    cursor.close()
    for row in watchers:
        nudge(tx, resource, row)


def tell(tx: Transaction, resource: str) -> None:
    """Ring whoever watches the queue."""
    topic = "q" + resource
    for (address,) in tx.execute(REGISTERS["bells"], (topic, tx.now)).fetchall():
        tx.call(address, topic)


def live_rows(raw: Iterable[Any], now: float) -> list[Row]:
    """The rows that stand: neither lapsed nor evicted."""
    rows = [Row(*values) for values in raw]
    return [row for row in rows if row.state != EVICTED and row.live(now)]


def standings(rows: list[Row], now: float) -> list[Standing]:
    """The live rows of a resource as an operator sees them: who is in follows from the rule alone."""
    inside = admitted([row.permits for row in rows], rows[0].capacity) if rows else 0
    return [row.standing(now, place < inside) for place, row in enumerate(rows)]
