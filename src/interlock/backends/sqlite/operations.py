"""What one store knows of its file: each call is one transaction, then the rings it caused.

Where nobody stands in the way, claim and release are each a single statement, which SQLite runs as a
transaction of its own. It changes one row or none; none means that the long way, the transactions of
`claims`, must decide.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from interlock.backends.sqlite.file.database import Database
from interlock.backends.sqlite.notifier import Notifier
from interlock.backends.sqlite.tables import claims, registers
from interlock.backends.sqlite.tables.lapse import SLACK, live
from interlock.backends.sqlite.tables.queue import live_rows, living, standings
from interlock.backends.sqlite.tables.row import IN
from interlock.backends.sqlite.tables.statements import CLAIMS, REGISTERS
from interlock.backends.sqlite.tables.sweep import SweepCursor
from interlock.backends.sqlite.tables.transaction import Transaction
from interlock.errors import InterlockError
from interlock.model import Claim, ClaimAnswer, Granted, Queue, Renewal, RenewAnswer, Standing, Versioned
from interlock.ports import IO_TIMEOUT

T = TypeVar("T")

CLAIM_IDLE = CLAIMS["claim_idle"]
RELEASE_ALONE = CLAIMS["release_alone"]
BATCH = 100  # renewals in one transaction: more would keep the file from others for too long
HUNG = 60.0  # seconds a watcher's bell hangs
CLOSING = 1.0  # seconds for the last question to the file
HANG_AGAIN = 30.0  # a bell that will hang for less is hung again


class Operations:
    """Callable from any thread. `until` bounds the patience of every call: see `Database.run`."""

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self.path = database.path
        self.now = database.clock.now
        self._database = database
        self._clock = database.clock
        self._notifier = notifier
        self._sweep = SweepCursor()
        self._last = 0  # the highest token seen here: a proposal below it would be refused
        self._bells: dict[str, float] = {}  # topic: until when our bell hangs there

    def open(self) -> None:
        """Open the file if it is not open; `StoreUnfit` if it cannot be used."""
        self._database.run(self.now() + IO_TIMEOUT, sqlite3.Connection.cursor)

    # ---- claims -------------------------------------------------------------------

    def claim(self, until: float, claim: Claim) -> ClaimAnswer:
        answer: ClaimAnswer
        now, token = self._clock.now(), max(self._clock.micros(), self._last + 1)
        row = (
            claim.resource,
            token,
            claim.id,
            claim.permits,
            claim.capacity,
            claim.ttl,
            now,
            claim.note,
            claim.who,
        )
        if claim.permits <= claim.capacity and self._database.single(until, now, CLAIM_IDLE, row):
            self._last = token
            answer = Granted(token, claim.ttl)
        else:
            answer = self._write(until, claims.claim, claim, token, self._notifier.hang())
            if isinstance(answer, Granted):
                self._last = max(self._last, answer.token)
        if self._sweep.due(now):
            self._tidy()
        return answer

    def release(self, until: float, resource: str, id: str, linger: float) -> bool:
        now = self._clock.now()
        if linger <= 0 and self._database.single(until, now, RELEASE_ALONE, (resource, id, now)):
            return True
        return self._write(until, claims.release, resource, id, linger)

    def renew(self, until: float, renewals: Sequence[Renewal]) -> list[RenewAnswer]:
        answers: list[RenewAnswer] = []
        for start in range(0, len(renewals), BATCH):
            renewed, rings = self._database.write_first(until, claims.renew, renewals[start : start + BATCH])
            answers += renewed
            self._notifier.ring(rings)
        if self._sweep.due(self._clock.now()):
            self._tidy()
        return answers

    def evict(self, until: float, resource: str, id: str | None, reason: str) -> list[Standing]:
        return self._write(until, claims.evict, resource, id, reason)

    def _write(self, until: float, work: Callable[..., T], *args: Any) -> T:
        result, rings = self._database.write(until, work, *args)
        if rings:
            self._notifier.ring(rings)
        return result

    def _tidy(self) -> None:
        """Now and then remove what lapsed; never to the harm of who happens to be the one to do it."""
        now = self._clock.now()
        self._sweep.put_off(now)
        with suppress(InterlockError):
            self._database.write(now, self._sweep.sweep)

    # ---- looking --------------------------------------------------------------------

    def inspect(self, until: float, resource: str, limit: int | None = None) -> Queue:
        return self._database.run(until, self.read_queue, resource, limit)

    def read_queue(self, connection: sqlite3.Connection, resource: str, limit: int | None = None) -> Queue:
        found = connection.execute(CLAIMS["standings"], (resource,))
        now = self._clock.now()
        rows = living(live_rows(found, now), self._database.liveness.alive, limit)
        found.close()  # half read: it would keep its snapshot
        return Queue(resource, rows[0].capacity if rows else 0, tuple(standings(rows, now)))

    def scan(self, until: float, prefix: str, after: str, limit: int) -> list[str]:
        return self._database.run(until, self._scan, prefix, after, limit)

    def _scan(self, connection: sqlite3.Connection, prefix: str, after: str, limit: int) -> list[str]:
        asked = (after, prefix, _beyond(prefix), self._clock.now(), SLACK, limit)
        return [name for (name,) in connection.execute(CLAIMS["names"], asked)]

    def read(self, until: float, name: str) -> Versioned:
        return self._database.run(until, registers.read, name, self._clock.now())

    def version(self, connection: sqlite3.Connection, name: str) -> int:
        return registers.read(connection, name, self._clock.now()).version

    def compare_and_set(
        self, until: float, name: str, version: int, value: str | None, id: str
    ) -> Versioned | None:
        number = max(self._clock.micros(), self._last + 1)
        written = self._write(until, registers.compare_and_set, name, version, value, id, number)
        if self._sweep.due(self._clock.now()):
            self._tidy()
        return written

    # ---- waiting: called after the notifier has been told, so that no ring is missed -----

    def unchanged(self, until: float, claim: Claim, waits: bool) -> bool:
        """Whether nothing has happened to the claim since it was answered; our bell hangs there then."""
        found = self._database.run(until, self._find, claim)
        if found is None:
            return False
        state, rung, bell, ttl, lapses_at, _note = found
        if rung or (waits and state == IN) or not live(self._clock.now(), lapses_at, ttl):
            return False
        ours = self._notifier.hang()
        return bell == ours or self._write(until, _listen, claim.resource, claim.id, ours)

    def _find(
        self, connection: sqlite3.Connection, claim: Claim
    ) -> tuple[int, int, str, float, float, str] | None:
        found: list[Any] = connection.execute(CLAIMS["find"], (claim.resource, claim.id)).fetchall()
        return found[0] if found and found[0][0] <= IN else None

    def watch(self, until: float, topic: str, changed: Callable[[sqlite3.Connection], bool]) -> bool:
        """Whether nothing has changed; whoever changes something about the topic rings our bell then."""
        now, address = self._clock.now(), self._notifier.hang()
        if address and self._bells.get(topic, 0.0) < now + HANG_AGAIN:
            self._write(until, _hang, topic, address)
            if len(self._bells) > 1000:
                self._bells = {topic: till for topic, till in self._bells.items() if till > now}
            self._bells[topic] = now + HUNG
        return not self._database.run(until, changed)

    def after_fork(self) -> None:
        self._bells = {}

    def close(self) -> None:
        """Close the file. This process stays present there if claims of its own stand: it lives, and so do they."""
        stands, life = True, self._database.liveness.life
        if life:
            with suppress(InterlockError):
                stands = self._database.run(self.now() + CLOSING, self._outlived, life)
        self._database.close()
        if not stands:
            self._database.retire()

    def _outlived(self, connection: sqlite3.Connection, life: int) -> bool:
        (stands,) = connection.execute(CLAIMS["outlived"], (life, self._clock.now())).fetchone()
        return bool(stands)

    def life(self) -> int:
        """The byte that this process keeps locked while it lives; 0 if nobody can tell."""
        return self._database.liveness.life

    def inside(self) -> bool:
        """Whether the calling thread is in the middle of a call to this file."""
        return self._database.surrounded()


def _listen(tx: Transaction, resource: str, id: str, bell: str) -> bool:
    return tx.execute(CLAIMS["listen"], (resource, id, bell)).rowcount == 1


def _hang(tx: Transaction, topic: str, address: str) -> None:
    tx.execute(REGISTERS["hang"], (topic, address, tx.now + HUNG))


def _beyond(prefix: str) -> str | bytes:
    """The least value above every name with this prefix; a blob, which is above all text, if there is none."""
    for place in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[place]) + 1
        if code <= 0x10FFFF:
            return prefix[:place] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
    return b""
