"""The operations on claims, each inside one transaction: `ports.Store` says what they promise."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.backends.sql.sqlite.tables.lapse import SLACK
from interlock.backends.sql.sqlite.tables.queue import (
    HIGHEST,
    Position,
    advance,
    drop,
    live_rows,
    locate,
    notify_queue_watchers,
    nudge,
    nudge_waiters_watching,
    remove_dead,
    standing,
    standings,
)
from interlock.backends.sql.sqlite.tables.row import EVICTED, IN, WAITS, Row
from interlock.backends.sql.sqlite.tables.statements import CLAIMS
from interlock.backends.sql.sqlite.tables.transaction import Transaction
from interlock.errors import SettingsMismatch
from interlock.model import Busy, Claim, ClaimAnswer, Gone, Granted, Renewal, RenewAnswer, Renewed, Standing

REMEMBERED = 60.0  # seconds an eviction is remembered at least
LOWEST = 0  # token
FEW = 4  # renewals on one resource: for more of them its queue is read once, not once each


def claim(tx: Transaction, claim: Claim, token: int, bell: str) -> ClaimAnswer:
    """Enter a claim, or answer one that stands. `token` is its lowest possible token, `bell` the address to ring if it must wait."""
    position = locate(tx, claim.resource, claim.id)
    while not position.fits(claim.permits, claim.capacity) and remove_dead(
        tx, claim.resource, position.lives(tx)
    ):
        position.count(tx)
        position.left = True
    if position.evicted:
        return _gone(tx, claim.resource, claim.id)
    if position.capacity is not None and position.capacity != claim.capacity:
        raise SettingsMismatch(claim.resource, claim.capacity, position.capacity)
    if position.mine is None:
        moved, answer = _enter(tx, claim, position, token, bell)
        let_in = False
    else:
        moved, answer = _repeat(tx, claim, position, position.mine, bell)
        let_in = moved  # by a lapse that nobody noticed; others behind may be in as well
    if position.left or let_in:
        advance(tx, claim.resource, claim.id)
    if position.left or moved:
        notify_queue_watchers(tx, claim.resource)
    return answer


def _enter(
    tx: Transaction, claim: Claim, position: Position, token: int, bell: str
) -> tuple[bool, ClaimAnswer]:
    """Whether the queue has changed, and the answer."""
    fits = position.fits(claim.permits, claim.capacity)
    if fits or claim.queued:
        (last,) = tx.execute(CLAIMS["last"]).fetchone()
        position.token = token = max(token, last + 1)
        state, ttl, bell = (IN, claim.ttl, "") if fits else (WAITS, claim.place_ttl, bell)
        row = {"resource": claim.resource, "token": token, "id": claim.id, "state": state}
        row |= {"permits": claim.permits, "capacity": claim.capacity, "ttl": ttl, "now": tx.now}
        row |= {"bell": bell, "life": tx.life, "note": claim.note, "who": claim.who}
        tx.execute(CLAIMS["enter"], row)
    if fits:
        return True, Granted(token, claim.ttl)
    return claim.queued, _busy(tx, claim, position, claim.permits)


def _repeat(
    tx: Transaction, claim: Claim, position: Position, mine: Row, bell: str
) -> tuple[bool, ClaimAnswer]:
    """Whether it came in just now, and the answer."""
    fits = position.fits(mine.permits, claim.capacity)
    state, ttl, bell = (IN, claim.ttl, "") if fits else (WAITS, claim.place_ttl, bell)
    row = {"resource": claim.resource, "token": mine.token, "state": state, "ttl": ttl, "now": tx.now}
    tx.execute(CLAIMS["repeat"], {**row, "bell": bell, "life": tx.life})
    if fits:
        return mine.state != IN, Granted(mine.token, claim.ttl)
    return False, _busy(tx, claim, position, mine.permits)


def _busy(tx: Transaction, claim: Claim, position: Position, permits: int) -> Busy:
    holder: Standing | None = None
    if position.ahead:
        first = tx.execute(CLAIMS["standing"], (claim.resource, position.first)).fetchone()
        holder = Row(*first).standing(tx.now, True)
    lapse = position.next_lapse(tx, permits, claim.capacity)
    return Busy(position.ahead, max(0.0, lapse - tx.now), holder)


def _gone(tx: Transaction, resource: str, id: str) -> Gone:
    """Why a claim does not stand: the operator's words if there are any."""
    for state, _rung, _bell, _ttl, _lapses_at, note in tx.execute(CLAIMS["find"], (resource, id)):
        if state == EVICTED:
            return Gone(True, note)
    return Gone()


def release(tx: Transaction, resource: str, id: str, linger: float) -> bool:
    mine = standing(tx, resource, id)
    if mine is None:
        return False
    tx.ring(mine.bell, "c" + id)  # somebody may wait for it to go: so a condition's waiter is notified
    if linger > 0 and _is_in(tx, mine, resource):
        row = {"resource": resource, "token": mine.token, "seconds": linger, "now": tx.now}
        tx.execute(CLAIMS["linger"], row)
    else:
        drop(tx, resource, [mine.token])
    advance(tx, resource)
    notify_queue_watchers(tx, resource)
    nudge_waiters_watching(tx, resource, mine)
    return True


def _is_in(tx: Transaction, mine: Row, resource: str) -> bool:
    position = Position(resource, mine)
    position.count(tx)
    return position.fits(mine.permits, mine.capacity)


def evict(tx: Transaction, resource: str, id: str | None, reason: str) -> list[Standing]:
    rows = list(live_rows(tx.execute(CLAIMS["standings"], (resource,)), tx.now))
    met: list[tuple[Row, Standing]] = []
    for row, seen in zip(rows, standings(rows, tx.now), strict=True):
        if seen.admitted if id is None else row.id == id:
            met.append((row, seen))
            mark = {"resource": resource, "token": row.token, "reason": reason, "now": tx.now}
            tx.execute(CLAIMS["mark"], {**mark, "seconds": max(REMEMBERED, row.ttl)})
            tx.ring(row.bell, "c" + row.id)
    if met:
        advance(tx, resource)
        notify_queue_watchers(tx, resource)
    for row, _ in met:
        nudge_waiters_watching(tx, resource, row)
    return [seen for _, seen in met]


def renew(tx: Transaction, renewals: Sequence[Renewal]) -> list[RenewAnswer]:
    asked: dict[str, int] = {}
    for renewal in renewals:
        asked[renewal.resource] = asked.get(renewal.resource, 0) + 1
    known = {
        resource: dict[str, int](tx.execute(CLAIMS["tokens"], (resource,)))
        for resource, times in asked.items()
        if times > FEW
    }
    answers: list[RenewAnswer] = []
    for renewal in renewals:
        tokens = known.get(renewal.resource)
        low, high = LOWEST, HIGHEST
        if tokens is not None:
            low = high = tokens.get(renewal.id, LOWEST)
        answers.append(_renew(tx, renewal, low, high))
    return answers


def _renew(tx: Transaction, renewal: Renewal, low: int, high: int) -> RenewAnswer:
    resource, id = renewal.resource, renewal.id
    asked = {"resource": resource, "low": low, "high": high, "id": id, "ttl": renewal.ttl}
    asked |= {"now": tx.now, "slack": SLACK, "note": renewal.note, "life": tx.life}
    if tx.execute(CLAIMS["renew"], asked).rowcount == 0:
        return _gone(tx, resource, id)
    shrunk = renewal.permits is not None and _shrink(tx, resource, id, renewal.permits)
    if shrunk or renewal.note is not None:
        notify_queue_watchers(tx, resource)
    return Renewed(renewal.ttl)


def _shrink(tx: Transaction, resource: str, id: str, permits: int) -> bool:
    """Let a claim take fewer permits, and ring the claims that this lets in or that watched it; whether it took more before."""
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
