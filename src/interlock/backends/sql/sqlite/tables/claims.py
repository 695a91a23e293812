"""The steps on claims, each inside one transaction: `interlock.backends.sql.steps` says what they do and what
they return.

`_bell`, `_late` and `_token` are for servers. Here all rings are collected in the transaction, and no request
of a process overtakes another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from interlock._core.admission import admitted
from interlock.backends.sql.sqlite.tables.queue import (
    MAX_TOKEN,
    Position,
    advance,
    drop,
    live_rows,
    locate,
    nudge,
    nudge_waiters_watching,
    remove_dead,
    standing,
)
from interlock.backends.sql.sqlite.tables.registers import ring_watchers
from interlock.backends.sql.sqlite.tables.row import EVICTED, SLACK_S, Row
from interlock.backends.sql.sqlite.tables.statements import CLAIMS
from interlock.backends.sql.sqlite.tables.transaction import Transaction
from interlock.backends.sql.steps import IN, WAITS, Rows

MIN_TOKEN = 0  # token
FEW_RENEWALS = 4  # renewals on one resource: for more of them its queue is read once, not once each
NOBODY = (None,) * 7  # ahead of a claim
RENEWED = ("r", None, None)
RELEASED: Rows = [(True, None)]
FRONT, DROP, ADMIT = CLAIMS["front"], CLAIMS["drop"], CLAIMS["admit"]


class Wish(NamedTuple):
    """The arguments of `steps.CLAIM`."""

    resource: str
    id: str
    ttl: float
    permits: int
    capacity: int
    queued: bool
    place_ttl: float
    block: int
    bell: str
    note: str
    who: str


def claim(tx: Transaction, floor: int, *asked: Any) -> Rows:
    """Enter a claim, or answer one that stands.

    `floor` is the lowest token that it may be given, by the clock.
    """
    wish = Wish(*asked)
    position = locate(tx, wish.resource, wish.id)
    while not position.fits(wish.permits, wish.capacity) and remove_dead(
        tx, wish.resource, position.lives(tx)
    ):
        position.count(tx)
        position.left = True
    let_in = False
    if position.evicted:
        return [("e", None, None, None, _reason(tx, wish.resource, wish.id), None, *NOBODY)]
    if position.capacity is not None and position.capacity != wish.capacity:
        moved, row = False, ("m", None, position.capacity, None, None, None, *NOBODY)
    elif position.mine is None:
        moved, row = _enter(tx, wish, position, floor)
    else:
        moved, row = _repeat(tx, wish, position, position.mine)
        let_in = moved  # by a lapse that nobody noticed; others behind may be in as well
    if position.left or let_in:
        advance(tx, wish.resource, wish.id)
    if position.left or moved:
        ring_watchers(tx, "q" + wish.resource)
    return [row]


def _enter(tx: Transaction, wish: Wish, position: Position, token: int) -> tuple[bool, tuple[Any, ...]]:
    """Whether the queue has changed, and the answer."""
    fits = position.fits(wish.permits, wish.capacity)
    if fits or wish.queued:
        (last,) = tx.execute(CLAIMS["last"]).fetchone()
        position.token = token = max(token, last + 1)
        state, ttl, bell = (IN, wish.ttl, "") if fits else (WAITS, wish.place_ttl, wish.bell)
        row = {"resource": wish.resource, "token": token, "id": wish.id, "state": state}
        row |= {"permits": wish.permits, "capacity": wish.capacity, "ttl": ttl, "now": tx.now}
        row |= {"bell": bell, "life": tx.life, "note": wish.note, "who": wish.who}
        tx.execute(CLAIMS["enter"], row)
    if fits:
        return True, _granted(token)
    return wish.queued, _busy(tx, wish, position, wish.permits, token if wish.queued else None)


def _repeat(tx: Transaction, wish: Wish, position: Position, mine: Row) -> tuple[bool, tuple[Any, ...]]:
    """Whether it came in just now, and the answer."""
    fits = position.fits(mine.permits, wish.capacity)
    state, ttl, bell = (IN, wish.ttl, "") if fits else (WAITS, wish.place_ttl, wish.bell)
    row = {"resource": wish.resource, "token": mine.token, "state": state, "ttl": ttl, "now": tx.now}
    tx.execute(CLAIMS["repeat"], {**row, "bell": bell, "life": tx.life})
    if fits:
        return mine.state != IN, _granted(mine.token)
    return False, _busy(tx, wish, position, mine.permits, mine.token)


def _granted(token: int) -> tuple[Any, ...]:
    return ("g", token, None, None, None, None, *NOBODY)


def _busy(
    tx: Transaction, wish: Wish, position: Position, permits: int, token: int | None
) -> tuple[Any, ...]:
    holder: tuple[Any, ...] = NOBODY
    if position.ahead:
        first = Row(*tx.execute(CLAIMS["standing"], (wish.resource, position.first)).fetchone())
        holder = (first.id, first.token, first.permits, tx.now - first.since, first.lapses_at - tx.now)
        holder += (first.note, first.who)
    retry = position.next_lapse(tx, permits, wish.capacity) - tx.now
    return ("b", token, position.ahead, retry, None, None, *holder)


def _reason(tx: Transaction, resource: str, id: str) -> str | None:
    """The operator's words to the owner of a claim that was evicted; None if it was not."""
    for state, *_, note in tx.execute(CLAIMS["find"], (resource, id)).fetchall():
        if state == EVICTED:
            return str(note)
    return None


def release(
    tx: Transaction,
    resource: str,
    id: str,
    linger: float,
    _bell: str = "",
    _late: bool = False,
    _token: int = 0,
) -> Rows:
    if linger <= 0 and _hand_over(tx, resource, id):
        return RELEASED
    mine = standing(tx, resource, id)
    if mine is None:
        return [(False, None)]
    if linger > 0 and _is_in(tx, mine, resource):
        row = {"resource": resource, "token": mine.token, "seconds": linger, "now": tx.now}
        tx.execute(CLAIMS["linger"], row)
    else:
        drop(tx, resource, [mine.token])
    advance(tx, resource)
    tx.ring(mine.bell, "c" + id)  # somebody may wait for it to go: so a condition's waiter is notified
    ring_watchers(tx, "q" + resource)
    nudge_waiters_watching(tx, resource, mine)
    return RELEASED


def _hand_over(tx: Transaction, resource: str, id: str) -> bool:
    """Remove a holder and admit the claim behind it, if there is one and each takes all; False if it is not
    so simple.

    Does what the rest of `release` would do, with one look at the queue: nobody else can be let in, or has
    watched the holder.
    """
    front = tx.execute(FRONT, (tx.now, tx.now + SLACK_S, "q" + resource, resource)).fetchall()
    if not front or front[-1][3] is None:
        return False
    token, holder, bell, state, watched = front[0]
    if holder != id or state != IN or (len(front) > 1 and front[1][3] != WAITS):
        return False
    tx.change(DROP, (resource, token))
    if len(front) > 1:
        next_token, next_id, next_bell, _, _ = front[1]
        tx.change(ADMIT, (tx.now, resource, next_token))
        tx.ring(next_bell, "c" + next_id)
    tx.ring(bell, "c" + id)  # not before that of the next, which waits for the lock
    if watched:
        ring_watchers(tx, "q" + resource)
    return True


def _is_in(tx: Transaction, mine: Row, resource: str) -> bool:
    position = Position(resource, mine)
    position.count(tx)
    return position.fits(mine.permits, mine.capacity)


def evict(
    tx: Transaction, resource: str, id: str | None, reason: str, remembered: float, _call: str = ""
) -> Rows:
    """`_call` is for servers: no reply is lost on the way from a file of this machine, so nothing is sent
    again.
    """
    rows = list(live_rows(tx.execute(CLAIMS["standings"], (resource,)), tx.now))
    inside = admitted([row.permits for row in rows], rows[0].capacity) if rows else 0
    removed: list[tuple[Row, bool]] = []
    for index, row in enumerate(rows):
        if index < inside if id is None else row.id == id:
            removed.append((row, index < inside))
            mark = {"resource": resource, "token": row.token, "reason": reason, "now": tx.now}
            tx.execute(CLAIMS["mark"], {**mark, "seconds": max(remembered, row.ttl)})
            tx.ring(row.bell, "c" + row.id)
    if removed:
        advance(tx, resource)
        ring_watchers(tx, "q" + resource)
    for row, _ in removed:
        nudge_waiters_watching(tx, resource, row)
    return [(*row.described(tx.now), was_in) for row, was_in in removed]


def renew(tx: Transaction, items: Sequence[tuple[Any, ...]], _bell: str = "") -> Rows:
    asked: dict[str, int] = {}
    for resource, *_ in items:
        asked[resource] = asked.get(resource, 0) + 1
    known = {
        resource: dict[str, int](tx.execute(CLAIMS["tokens"], (resource,)))
        for resource, times in asked.items()
        if times > FEW_RENEWALS
    }
    answers: list[tuple[Any, ...]] = []
    for resource, id, ttl, note, permits, _, waiting in items:
        tokens = known.get(resource)
        low, high = MIN_TOKEN, MAX_TOKEN
        if tokens is not None:
            low = high = tokens.get(id, MIN_TOKEN)
        # fmt: off
        row = {
            "resource": resource, "low": low, "high": high, "id": id, "ttl": ttl, "note": note,
            "now": tx.now, "slack": SLACK_S, "life": tx.life, "least": WAITS if waiting else IN,
        }
        # fmt: on
        if tx.execute(CLAIMS["renew"], row).rowcount == 0:
            reason = _reason(tx, resource, id)
            answers.append(("x" if reason is None else "e", reason, None))
            continue
        shrunk = permits is not None and _shrink(tx, resource, id, permits)
        if shrunk or note is not None:
            ring_watchers(tx, "q" + resource)
        answers.append(RENEWED)
    return answers


def _shrink(tx: Transaction, resource: str, id: str, permits: int) -> bool:
    """Let a claim take fewer permits, and ring the claims that this lets in or that watched it; whether it
    took more before.
    """
    mine = standing(tx, resource, id)
    if mine is None or mine.permits <= permits:
        return False
    tx.execute(CLAIMS["shrink"], {"resource": resource, "token": mine.token, "permits": permits})
    advance(tx, resource)
    nudge_waiters_watching(tx, resource, mine)
    if mine.state == WAITS:
        nudge(tx, resource, mine)  # a narrower claim watches other claims
    return True


def listen(tx: Transaction, resource: str, id: str, bell: str) -> bool:
    """From now on the bell is rung when the claim's standing changes; whether the claim stands."""
    return tx.execute(CLAIMS["listen"], {"resource": resource, "id": id, "bell": bell}).rowcount == 1
