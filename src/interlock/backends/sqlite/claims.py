"""What callers ask of a claim, each inside one transaction: see `ports.Store` for what is promised."""

from __future__ import annotations

from collections.abc import Sequence

from interlock._core.admission import retry_after
from interlock.backends.sqlite.clock import SLACK
from interlock.backends.sqlite.database import Transaction
from interlock.backends.sqlite.queue import (
    Place,
    advance,
    drop,
    find,
    live_rows,
    nudge,
    nudge_watchers,
    standings,
    tell,
)
from interlock.backends.sqlite.row import EVICTED, IN, WAITS, Row
from interlock.backends.sqlite.statements import CLAIMS
from interlock.errors import SettingsMismatch
from interlock.model import Busy, Claim, ClaimAnswer, Gone, Granted, Renewal, RenewAnswer, Renewed, Standing

REMEMBERED = 60.0  # seconds an eviction is remembered at least
LOWEST, HIGHEST = 0, 2**63 - 1  # tokens
FEW = 4  # renewals on one resource: for more of them its queue is read once, not once each


def claim(tx: Transaction, claim: Claim, token: int, bell: str) -> ClaimAnswer:
    """`token` is the lowest it may be given, `bell` where to ring if it must wait."""
    place = find(tx, claim.resource, claim.id)
    if place.evicted:
        return _gone(tx, claim.resource, claim.id)
    if place.capacity is not None and place.capacity != claim.capacity:
        raise SettingsMismatch(claim.resource, claim.capacity, place.capacity)
    drop(tx, claim.resource, place.lapsed)
    if place.mine is None:
        moved, answer = _enter(tx, claim, place, token, bell)
        let_in = False
    else:
        moved, answer = _repeat(tx, claim, place, place.mine, bell)
        let_in = moved  # by a lapse that nobody noticed; others behind may be in as well
    if place.lapsed or let_in:
        advance(tx, claim.resource, claim.id)
    if place.lapsed or moved:
        tell(tx, claim.resource)
    return answer


def _enter(tx: Transaction, claim: Claim, place: Place, token: int, bell: str) -> tuple[bool, ClaimAnswer]:
    """Whether the queue has changed, and the answer."""
    fits = sum(place.permits) + claim.permits <= claim.capacity
    if fits or claim.queued:
        (last,) = tx.execute(CLAIMS["last"]).fetchone()
        token = max(token, last + 1)
        state, ttl, bell = (IN, claim.ttl, "") if fits else (WAITS, claim.place_ttl, bell)
        row = (claim.resource, token, claim.id, state, claim.permits, claim.capacity, ttl, tx.now)
        tx.execute(CLAIMS["enter"], (*row, bell, claim.note, claim.who))
    if fits:
        return True, Granted(token, claim.ttl)
    return claim.queued, _busy(tx, place, claim.permits, claim.capacity)


def _repeat(tx: Transaction, claim: Claim, place: Place, mine: Row, bell: str) -> tuple[bool, ClaimAnswer]:
    """Whether it came in just now, and the answer."""
    fits = sum(place.permits) + mine.permits <= claim.capacity
    state, ttl, bell = (IN, claim.ttl, "") if fits else (WAITS, claim.place_ttl, bell)
    tx.execute(CLAIMS["repeat"], (claim.resource, mine.token, state, ttl, tx.now, bell))
    if fits:
        return mine.state != IN, Granted(mine.token, claim.ttl)
    return False, _busy(tx, place, mine.permits, claim.capacity)


def _busy(tx: Transaction, place: Place, permits: int, capacity: int) -> Busy:
    ahead = len(place.permits)
    first_lapse = retry_after([*place.permits, permits], place.lapses_at, ahead, capacity)
    return Busy(ahead, max(0.0, first_lapse - tx.now))


def _gone(tx: Transaction, resource: str, id: str) -> Gone:
    """Why a claim does not stand: the operator's words if there are any."""
    for state, _rung, _bell, _ttl, _lapses_at, note in tx.execute(CLAIMS["find"], (resource, id)):
        if state == EVICTED:
            return Gone(True, note)
    return Gone()


def release(tx: Transaction, resource: str, id: str, linger: float) -> bool:
    place = find(tx, resource, id)
    drop(tx, resource, place.lapsed)
    mine = place.mine
    if mine is not None:
        tx.call(mine.bell, "c" + id)  # whoever waits for it to go: so a condition's waiter is notified
        if linger > 0 and sum(place.permits) + mine.permits <= mine.capacity:
            tx.execute(CLAIMS["linger"], (resource, mine.token, linger, tx.now))
        else:
            drop(tx, resource, [mine.token])
    if mine is not None or place.lapsed:
        advance(tx, resource)
        tell(tx, resource)
    if mine is not None:
        nudge_watchers(tx, resource, mine)
    return mine is not None


def evict(tx: Transaction, resource: str, id: str | None, reason: str) -> list[Standing]:
    rows = live_rows(tx.execute(CLAIMS["standings"], (resource,)), tx.now)
    met: list[tuple[Row, Standing]] = []
    for row, standing in zip(rows, standings(rows, tx.now), strict=True):
        if standing.admitted if id is None else row.id == id:
            met.append((row, standing))
            remembered = max(REMEMBERED, row.ttl)
            tx.execute(CLAIMS["mark"], (resource, row.token, reason, tx.now, remembered))
            tx.call(row.bell, "c" + row.id)
    if met:
        advance(tx, resource)
        tell(tx, resource)
    for row, _ in met:
        nudge_watchers(tx, resource, row)
    return [standing for _, standing in met]


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
    asked = (resource, low, high, id, renewal.ttl, tx.now, SLACK, renewal.note)
    if tx.execute(CLAIMS["renew"], asked).rowcount == 0:
        return _gone(tx, resource, id)
    shrunk = renewal.permits is not None and _shrink(tx, resource, id, renewal.permits)
    if shrunk or renewal.note is not None:
        tell(tx, resource)
    return Renewed(renewal.ttl)


def _shrink(tx: Transaction, resource: str, id: str, permits: int) -> bool:
    """Whether the claim takes less now; whom that lets in, and who watched it, is rung."""
    mine = find(tx, resource, id).mine
    if mine is None or mine.permits <= permits:
        return False
    tx.execute(CLAIMS["shrink"], (resource, mine.token, permits))
    advance(tx, resource)
    nudge_watchers(tx, resource, mine)
    if mine.state == WAITS:
        nudge(tx, resource, mine)  # a narrower claim watches other claims
    return True
