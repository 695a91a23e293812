"""What callers ask of a claim, each inside one transaction: see `ports.Store` for what is promised."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.backends.sqlite.clock import SLACK
from interlock.backends.sqlite.database import Transaction
from interlock.backends.sqlite.queue import (
    HIGHEST,
    Place,
    advance,
    bury,
    drop,
    live_rows,
    locate,
    nudge,
    nudge_watchers,
    standing,
    standings,
    tell,
)
from interlock.backends.sqlite.row import EVICTED, IN, WAITS, Row
from interlock.backends.sqlite.statements import CLAIMS
from interlock.errors import SettingsMismatch
from interlock.model import Busy, Claim, ClaimAnswer, Gone, Granted, Renewal, RenewAnswer, Renewed, Standing

REMEMBERED = 60.0  # seconds an eviction is remembered at least
LOWEST = 0  # token
FEW = 4  # renewals on one resource: for more of them its queue is read once, not once each


def claim(tx: Transaction, claim: Claim, token: int, bell: str) -> ClaimAnswer:
    """`token` is the lowest it may be given, `bell` where to ring if it must wait."""
    place = locate(tx, claim.resource, claim.id)
    while not place.fits(claim.permits, claim.capacity) and bury(tx, claim.resource, place.lives(tx)):
        place.count(tx)
        place.left = True
    if place.evicted:
        return _gone(tx, claim.resource, claim.id)
    if place.capacity is not None and place.capacity != claim.capacity:
        raise SettingsMismatch(claim.resource, claim.capacity, place.capacity)
    if place.mine is None:
        moved, answer = _enter(tx, claim, place, token, bell)
        let_in = False
    else:
        moved, answer = _repeat(tx, claim, place, place.mine, bell)
        let_in = moved  # by a lapse that nobody noticed; others behind may be in as well
    if place.left or let_in:
        advance(tx, claim.resource, claim.id)
    if place.left or moved:
        tell(tx, claim.resource)
    return answer


def _enter(tx: Transaction, claim: Claim, place: Place, token: int, bell: str) -> tuple[bool, ClaimAnswer]:
    """Whether the queue has changed, and the answer."""
    fits = place.fits(claim.permits, claim.capacity)
    if fits or claim.queued:
        (last,) = tx.execute(CLAIMS["last"]).fetchone()
        place.token = token = max(token, last + 1)
        state, ttl, bell = (IN, claim.ttl, "") if fits else (WAITS, claim.place_ttl, bell)
        row = (claim.resource, token, claim.id, state, claim.permits, claim.capacity, ttl, tx.now)
        tx.execute(CLAIMS["enter"], (*row, bell, tx.life, claim.note, claim.who))
    if fits:
        return True, Granted(token, claim.ttl)
    return claim.queued, _busy(tx, claim, place, claim.permits)


def _repeat(tx: Transaction, claim: Claim, place: Place, mine: Row, bell: str) -> tuple[bool, ClaimAnswer]:
    """Whether it came in just now, and the answer."""
    fits = place.fits(mine.permits, claim.capacity)
    state, ttl, bell = (IN, claim.ttl, "") if fits else (WAITS, claim.place_ttl, bell)
    tx.execute(CLAIMS["repeat"], (claim.resource, mine.token, state, ttl, tx.now, bell, tx.life))
    if fits:
        return mine.state != IN, Granted(mine.token, claim.ttl)
    return False, _busy(tx, claim, place, mine.permits)


def _busy(tx: Transaction, claim: Claim, place: Place, permits: int) -> Busy:
    holder: Standing | None = None
    if place.ahead:
        first = tx.execute(CLAIMS["standing"], (claim.resource, place.first)).fetchone()
        holder = Row(*first).standing(tx.now, True)
    lapse = place.next_lapse(tx, permits, claim.capacity)
    return Busy(place.ahead, max(0.0, lapse - tx.now), holder)


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
    tx.call(mine.bell, "c" + id)  # whoever waits for it to go: so a condition's waiter is notified
    if linger > 0 and _is_in(tx, mine, resource):
        tx.execute(CLAIMS["linger"], (resource, mine.token, linger, tx.now))
    else:
        drop(tx, resource, [mine.token])
    advance(tx, resource)
    tell(tx, resource)
    nudge_watchers(tx, resource, mine)
    return True


def _is_in(tx: Transaction, mine: Row, resource: str) -> bool:
    place = Place(resource, mine)
    place.count(tx)
    return place.fits(mine.permits, mine.capacity)


def evict(tx: Transaction, resource: str, id: str | None, reason: str) -> list[Standing]:
    rows = list(live_rows(tx.execute(CLAIMS["standings"], (resource,)), tx.now))
    met: list[tuple[Row, Standing]] = []
    for row, seen in zip(rows, standings(rows, tx.now), strict=True):
        if seen.admitted if id is None else row.id == id:
            met.append((row, seen))
            remembered = max(REMEMBERED, row.ttl)
            tx.execute(CLAIMS["mark"], (resource, row.token, reason, tx.now, remembered))
            tx.call(row.bell, "c" + row.id)
    if met:
        advance(tx, resource)
        tell(tx, resource)
    for row, _ in met:
        nudge_watchers(tx, resource, row)
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
    asked = (resource, low, high, id, renewal.ttl, tx.now, SLACK, renewal.note, tx.life)
    if tx.execute(CLAIMS["renew"], asked).rowcount == 0:
        return _gone(tx, resource, id)
    shrunk = renewal.permits is not None and _shrink(tx, resource, id, renewal.permits)
    if shrunk or renewal.note is not None:
        tell(tx, resource)
    return Renewed(renewal.ttl)


def _shrink(tx: Transaction, resource: str, id: str, permits: int) -> bool:
    """Whether the claim takes less now; whom that lets in, and who watched it, is rung."""
    mine = standing(tx, resource, id)
    if mine is None or mine.permits <= permits:
        return False
    tx.execute(CLAIMS["shrink"], (resource, mine.token, permits))
    advance(tx, resource)
    nudge_watchers(tx, resource, mine)
    if mine.state == WAITS:
        nudge(tx, resource, mine)  # a narrower claim watches other claims
    return True
