"""How the queue of one resource moves inside a transaction. The rule itself is `_core.admission`'s.

`state` records which claims have been notified that they are in. Everything that lets a claim in (a release,
an eviction, a lapse that is noticed, a claim that shrinks) ends in `advance`, which finds exactly the claims
that are in and have not been notified, and rings them: no herd wakes up, and no claim is missed.

Claims that stay outside know when the claim they watch lapses. If that one leaves before its time, they are
rung as well: the claim that they must watch now may lapse sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from interlock.backends.sql.sqlite.tables.row import EVICTED, SLACK_S, Row
from interlock.backends.sql.sqlite.tables.statements import CLAIMS
from interlock.backends.sql.sqlite.tables.transaction import Transaction
from interlock.backends.sql.steps import WAITS

MAX_TOKEN = 2**63 - 1  # token


class Position:
    """Where a claim stands: itself if it is there, and the live claims ahead of it, counted.

    The database counts them: a claim that joins a queue of a thousand must not read a thousand rows.
    """

    __slots__ = (
        "ahead",
        "capacity",
        "evicted",
        "first",
        "first_lapse",
        "left",
        "mine",
        "resource",
        "taken",
        "token",
        "waiting",
    )

    def __init__(self, resource: str, mine: Row | None) -> None:
        self.resource = resource
        self.mine = mine
        self.evicted = mine is not None and mine.state == EVICTED
        self.token = MAX_TOKEN if mine is None else mine.token  # those below it are ahead
        self.left = False  # somebody ahead was found to be gone, and removed
        self.ahead = self.taken = self.waiting = 0
        self.capacity: int | None = (
            None if mine is None else mine.capacity
        )  # under which all stand, if anybody does
        self.first = 0  # the token of the first of them, who has been in for longest
        self.first_lapse = 0.0

    def fits(self, permits: int, capacity: int) -> bool:
        """Whether so many permits fit beside those ahead, who stand under the same capacity."""
        return self.capacity in (None, capacity) and self.taken + permits <= capacity

    def count(self, tx: Transaction) -> None:
        """Count those ahead; remove what has lapsed among them."""
        counted = tx.execute(CLAIMS["ahead"], (self.resource, self.token)).fetchone()
        while counted[0] and not (counted[6] > tx.now >= counted[7] - SLACK_S):
            asked = {"resource": self.resource, "token": self.token, "now": tx.now, "slack": SLACK_S}
            drop(tx, self.resource, [token for (token,) in tx.execute(CLAIMS["lapsed"], asked).fetchall()])
            self.left = True
            counted = tx.execute(CLAIMS["ahead"], (self.resource, self.token)).fetchone()
        self.ahead, self.taken, capacity, self.first, inside, _, self.first_lapse, _ = counted
        self.waiting = self.ahead - inside
        if self.mine is None:
            self.capacity = capacity  # of nobody, if the last of them was removed just now

    def next_lapse(self, tx: Transaction, permits: int, capacity: int) -> float:
        """When something that a waiter here must watch lapses by itself: `_core.admission.to_watch`, asked
        of the database.
        """
        nearest = tx.execute(CLAIMS["nearest"], (self.resource, self.token, capacity - permits)).fetchone()
        if nearest is None and self.taken > capacity:
            nearest = tx.execute(CLAIMS["nearest"], (self.resource, self.token, 0)).fetchone()
        return self.first_lapse if nearest is None else float(nearest[0])

    def lives(self, tx: Transaction) -> list[int]:
        """Whose death would let it come nearer: the next waiter's ahead of it; if there is none, the
        holders'.
        """
        which = "life_ahead" if self.waiting else "lives_inside"
        return [life for (life,) in tx.execute(CLAIMS[which], (self.resource, self.token))]


def find(tx: Transaction, resource: str, id: str) -> Row | None:
    """The row of a claim that has not lapsed; also that of an evicted one, which tells its owner."""
    asked = {"resource": resource, "id": id, "now": tx.now, "slack": SLACK_S}
    found = tx.execute(CLAIMS["mine"], asked).fetchone()
    return None if found is None else Row(*found)


def standing(tx: Transaction, resource: str, id: str) -> Row | None:
    """The row of a claim that stands."""
    mine = find(tx, resource, id)
    return None if mine is None or mine.state == EVICTED else mine


def locate(tx: Transaction, resource: str, id: str) -> Position:
    position = Position(resource, find(tx, resource, id))
    if not position.evicted:
        position.count(tx)
    return position


def remove_dead(tx: Transaction, resource: str, lives: Iterable[int]) -> bool:
    """Remove the claims of those processes that are gone; whether there were any."""
    dead = [life for life in lives if not tx.alive(life)]
    for life in dead:
        tx.execute(CLAIMS["remove_dead"], (resource, life))
    return bool(dead)


def drop(tx: Transaction, resource: str, tokens: Iterable[int]) -> None:
    for token in tokens:
        tx.execute(CLAIMS["drop"], (resource, token))


def advance(tx: Transaction, resource: str, asking: str = "") -> None:
    """Let in and ring the claims that fit now and have not been notified; remove those at the front that have
    lapsed.

    The first claim that does not fit is rung too if it waits for all holders alike (a semaphore): others may
    have come in ahead of it, and it knows nothing of their lapses. The claim that is `asking` is not rung.
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
        tx.execute(CLAIMS["admit"], (tx.now, resource, row.token))
        tx.ring(row.bell, "c" + row.id)
    if outside is not None and outside.id != asking and widest + outside.permits <= outside.capacity:
        nudge(tx, resource, outside)


def nudge(tx: Transaction, resource: str, row: Row) -> None:
    """Ring a waiter, so that it asks again."""
    if not row.rung:  # otherwise it has been rung and has not looked yet
        tx.execute(CLAIMS["nudge"], (resource, row.token))
        tx.ring(row.bell, "c" + row.id)


def nudge_waiters_watching(tx: Transaction, resource: str, leaving: Row) -> None:
    """Ring the claims that stay outside and watched `leaving`, so that they ask again.

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


def live_rows(raw: Iterable[Any], now: float) -> Iterator[Row]:
    """The rows that stand: neither lapsed nor evicted."""
    for values in raw:
        row = Row(*values)
        if row.state != EVICTED and row.live(now):
            yield row


def living(rows: Iterator[Row], alive: Callable[[int], bool], limit: int | None) -> list[Row]:
    """The first rows, without those of dead processes whom the next claim would remove: holders who leave no
    room.

    A dead one that is in nobody's way is shown: what it stands for may still matter to others.
    """
    found: list[Row] = []
    taken = 0
    for row in rows:
        found.append(row)
        taken += row.permits
        if taken >= row.capacity:
            lives = {row.life for row in found}
            dead = {life for life in lives if not alive(life)}
            found = [row for row in found if row.life not in dead]
            taken = sum(row.permits for row in found)
            if not dead:
                break
        if len(found) == limit:
            return found
    return [*found, *islice(rows, None if limit is None else limit - len(found))]
