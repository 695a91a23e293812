"""A random sequence of steps, taken on a store of servers and on the rule of the embedded store, with a clock that the test moves."""

from __future__ import annotations

import random
import sqlite3
from typing import Any, Protocol

from interlock._core.admission import asks_at_renewal
from interlock._core.drive import drive
from interlock.backends.sql import rows
from interlock.backends.sql.server_store import ServerStore
from interlock.backends.sql.sqlite.tables import claims
from interlock.backends.sql.sqlite.tables.queue import advance, drop
from interlock.backends.sql.sqlite.tables.statements import sections
from interlock.backends.sql.sqlite.tables.transaction import Transaction
from interlock.backends.sql.steps import REMEMBERED_S
from interlock.errors import SettingsMismatch
from interlock.model import EVERYTHING, Busy, Claim, Granted, Renewal, Renewed

BEGAN = 1_700_000_000.0
CAPACITIES = (1, 3, 7, EVERYTHING)
STEPS = 50
COLUMNS = "select token, id, state, permits, capacity, ttl, lapses_at, rung"
STANDING = "where state < 2 and token > 0 order by token"


class Reference:
    """The embedded store's transactions on a database in memory."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        for statement in sections("schema").values():
            self.connection.execute(statement)

    def run(self, now: float, work: Any, *args: Any) -> Any:
        return work(Transaction(self.connection, self.connection, now, 0, lambda life: True), *args)

    def rows(self, now: float) -> list[tuple[Any, ...]]:
        return self.connection.execute(
            "select id, state, permits, rung, round(lapses_at - ?, 3) from claim where state < 2 and lapses_at > ? order by token",
            (BEGAN, now),
        ).fetchall()


class Subject(Protocol):
    """The store under test, which reads the time from a table."""

    store: ServerStore

    def set(self, now: float) -> None: ...

    def rows(self, now: float) -> list[tuple[Any, ...]]: ...

    def everything(self) -> list[tuple[Any, ...]]: ...


class Walk:
    """One random sequence of steps on both."""

    def __init__(self, seed: int, store: Subject) -> None:
        self.chance = random.Random(seed)
        self.capacity = self.chance.choice(CAPACITIES)
        self.now = BEGAN
        self.ids = [f"c{n}" for n in range(8)]
        self.reference = Reference()
        self.store = store
        self.wants: dict[str, int] = {}

    def step(self) -> tuple[str, Any, Any]:
        chance = self.chance
        if chance.random() < 0.3:
            self.now += chance.choice((0.25, 1.0, 3.0, 5.0, 8.0))
            self.store.set(self.now)
        kind = chance.choices(("claim", "release", "renew", "place", "shrink", "evict"), (10, 4, 2, 3, 2, 1))[
            0
        ]
        return kind, *getattr(self, "_" + kind)(chance.choice(self.ids))

    def _claim(self, id: str) -> tuple[Any, Any]:
        few = (1, 2, 3, 7) if self.capacity != EVERYTHING else (1, 1, EVERYTHING)
        wants = self.wants.setdefault(id, min(self.capacity, self.chance.choice(few)))
        ttl, place = self.chance.choice((2.0, 5.0, 10.0)), self.chance.choice((2.0, 4.0))
        queued = self.chance.random() < 0.8
        capacity = self.capacity if self.chance.random() < 0.97 else self.capacity - 1 or 2
        claim = Claim(
            "r",
            id,
            ttl,
            permits=min(wants, capacity),
            capacity=capacity,
            queued=queued,
            place_ttl=place,
            note=id,
        )
        return self._answer(self.store.store.claim(claim)), self._compare(claim)

    def _compare(self, claim: Claim) -> Any:
        try:
            return _plain(self.reference.run(self.now, _claim_after_lapses, claim))
        except SettingsMismatch as error:
            return error.args

    def _answer(self, call: Any) -> Any:
        try:
            return _plain(drive(call))
        except SettingsMismatch as error:
            return error.args

    def _release(self, id: str) -> tuple[Any, Any]:
        linger = self.chance.choice((0.0, 0.0, 0.0, 1.5))
        self.wants.pop(id, None)
        ((stood, _),) = self.reference.run(self.now, claims.release, "r", id, linger)
        return drive(self.store.store.release("r", id, linger)), stood

    def _renew(self, id: str) -> tuple[Any, Any]:
        return self._renewed([Renewal("r", id, self.chance.choice((1.0, 6.0)))])

    def _place(self, id: str) -> tuple[Any, Any]:
        """A renewal with which the waiter is told if it must ask: compared with the rule, on the rows of this store."""
        waiting = self.store.store._token(id) > 0  # as a place has
        renewal = Renewal("r", id, self.chance.choice((1.0, 6.0)), waiting=waiting)
        store, told = self.store.store, self._told(renewal)
        answer, expected = self._renewed([renewal])
        return (answer, store._listener.take_token(id)), (expected, told)

    def _told(self, renewal: Renewal) -> int | None:
        hint = self.store.store._token(renewal.id)
        rows = self.store.everything() if hint else []  # the first step makes the tables
        for place, (token, id, state, *_, lapses_at, rung) in enumerate(rows):
            if (id, token) == (renewal.id, hint) and lapses_at > self.now:
                return token if state else 0 if rung or self._asks(rows, place, renewal.ttl) else None
        return None

    def _asks(self, rows: list[tuple[Any, ...]], place: int, ttl: float) -> bool:
        permits, ttls = [row[3] for row in rows], [row[5] for row in rows]
        lapses_in = [row[6] - self.now for row in rows]
        first = place == 0 or rows[place - 1][2] == 1
        return asks_at_renewal(
            permits, lapses_in, ttls, place, rows[place][4], ttl, place if first else place - 1
        )

    def _shrink(self, id: str) -> tuple[Any, Any]:
        return self._renewed([Renewal("r", id, 3.0, permits=1)])

    def _renewed(self, renewals: list[Renewal]) -> tuple[Any, Any]:
        items = [(one.resource, one.id, one.ttl, one.note, one.permits, 0, one.waiting) for one in renewals]
        found = self.reference.run(self.now, claims.renew, items)
        expected = [
            Renewed(one.ttl) if row[0] == "r" else rows.not_renewed(row)
            for one, row in zip(renewals, found, strict=True)
        ]
        return drive(self.store.store.renew(renewals)), expected

    def _evict(self, id: str) -> tuple[Any, Any]:
        whom = self.chance.choice((id, None))
        found = drive(self.store.store.evict("r", whom, "why"))
        met = rows.evicted(self.reference.run(self.now, claims.evict, "r", whom, "why", REMEMBERED_S))
        return [_standing(one) for one in found], [_standing(one) for one in met]


def _claim_after_lapses(tx: Transaction, claim: Claim) -> Any:
    """As the specification says, all lapsed claims go first; the embedded store removes those behind the caller later."""
    lapsed = tx.execute("select token, state, id from claim where lapses_at <= ?", (tx.now,)).fetchall()
    answered = tx.execute(
        "select 1 from claim where id = ? and state = 2 and lapses_at > ?", (claim.id, tx.now)
    ).fetchone()
    if not answered:  # an evicted claim is answered before anything else
        drop(tx, claim.resource, [row[0] for row in lapsed])
    (row,) = claims.claim(tx, int(tx.now * 1e6), *rows.claim_arguments(claim, ""))
    if lapsed and not answered:
        advance(tx, claim.resource, claim.id)
    return rows.claim_answer(claim, row)[0]


def _standing(one: Any) -> tuple[Any, ...]:
    return one.id, one.permits, one.admitted, round(one.age, 3), round(one.lapses_in, 3), one.note


def _plain(answer: Any) -> Any:
    """An answer without its token, which the two stores draw differently."""
    if isinstance(answer, Granted):
        return "granted", answer.ttl
    if isinstance(answer, Busy):
        return (
            "busy",
            answer.ahead,
            round(answer.retry_after, 3),
            None if answer.holder is None else answer.holder.id,
        )
    return answer
