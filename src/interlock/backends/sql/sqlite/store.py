"""The store port over a lock file: each call is one transaction, then the rings it caused.

Where nobody stands in the way, claim and release are each a single statement, which SQLite runs as a transaction of
its own. It changes one row or none; none means that the transactions of `tables.claims` must decide.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from interlock._core.outline import outline
from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.defaults import StoreDefaults
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql.sqlite.doorbell import available
from interlock.backends.sql.sqlite.file.database import Database
from interlock.backends.sql.sqlite.notifier import Notifier, Waiter
from interlock.backends.sql.sqlite.tables import claims, reading, registers
from interlock.backends.sql.sqlite.tables.statements import CLAIMS
from interlock.backends.sql.sqlite.tables.sweep import SweepCursor
from interlock.backends.sql.sqlite.tables.transaction import Connection
from interlock.errors import InterlockError, StoreUnavailable
from interlock.model import (
    Busy,
    Claim,
    ClaimAnswer,
    Granted,
    Queue,
    Renewal,
    RenewAnswer,
    Standing,
    Traits,
    Versioned,
)
from interlock.ports import IO_TIMEOUT

T = TypeVar("T")

TRAITS = Traits(
    backend="sqlite",
    fair=True,
    shares="any",
    lapses="claim",
    wakes="doorbell" if available() else "poll",
    reach="machine",
    survives="process",
    two_holders=(
        "the lock file, or its log (-wal), is deleted or replaced while leases are held",
        "its shared memory (-shm) is removed in the instant in which a process is stopped in the middle of a write",
    ),
    min_ttl=0.01,
    max_ttl=365 * 86400.0,
)

CLAIM_IDLE = CLAIMS["claim_idle"]
RELEASE_ALONE = CLAIMS["release_alone"]
BATCH = 100  # renewals in one transaction: more would keep the file from others for too long
HUNG = 60.0  # seconds a watcher's bell hangs
HANG_AGAIN = 30.0  # a bell that will hang for less is hung again
CLOSING = 1.0  # seconds for the last question to the file
CROWDED = 0.25  # seconds for which the quick path is not tried again where it has met somebody
MOST_CROWDED = 1000  # resources of which that is remembered


class SqliteStore(StoreDefaults):
    """Claims and registers in one file, for the processes of one machine.

    Every call blocks its thread and never suspends; any thread may call. `async_store` calls it beside an event loop.
    """

    traits = TRAITS

    def __init__(
        self, database: Database, notifier: Notifier, runtime: WaitRuntime, *, shared: bool = False
    ) -> None:
        self.path = database.path
        self.now = database.clock.now
        self._wall_ns = database.clock.wall_ns
        self._database = database
        self._notifier = notifier
        self._runtime = runtime
        self._shared = shared  # another store has the same database and notifier, and closes them
        self._sweep = SweepCursor()
        self._last = 0  # the highest token seen here: a proposal below it would be refused
        self._bells: dict[str, float] = {}  # topic: until when our bell hangs there
        self._crowded: dict[str, float] = {}  # resource: until when the quick path would be in vain
        self.inside = database.surrounded  # type: ignore[method-assign]  # itself: every release asks

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    # ---- claims -------------------------------------------------------------------

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        answer: ClaimAnswer
        resource, now, token = claim.resource, self.now(), self._wall_ns() // 1000
        if token <= self._last:
            token = self._last + 1
        permits, capacity, ttl = claim.permits, claim.capacity, claim.ttl
        # fmt: off
        values = (
            resource, token, claim.id, permits, capacity, ttl, now + ttl, now, claim.note, claim.who,
            token, resource, "q" + resource,
        )
        # fmt: on
        quick = permits <= capacity and (not self._crowded or self._crowded.get(resource, 0.0) <= now)
        if quick and self._database.single(now + timeout, now, CLAIM_IDLE, values):
            self._last = token
            answer = Granted(token, ttl)
        else:
            answer = self._write(now + timeout, claims.claim, claim, token, self._notifier.hang())
            if isinstance(answer, Granted):
                self._last = max(self._last, answer.token)
            else:
                self._met_others(resource, now)
        sweep = self._sweep
        sweep.writes += 1  # as `due`, but for a call that every claim would pay for
        if sweep.writes > sweep.most or now >= sweep.due_at:
            self._tidy()
        return answer

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        now = self.now()
        values = (resource, id, now, resource, id, "q" + resource)
        if linger <= 0 and (not self._crowded or self._crowded.get(resource, 0.0) <= now):
            if self._database.single(now + timeout, now, RELEASE_ALONE, values):
                return True
            self._met_others(resource, now)
        return self._write(now + timeout, claims.release, resource, id, linger)

    def _met_others(self, resource: str, now: float) -> None:
        """For a while, take the long way at once on this resource: a hand-off must not pay for a quick path in vain."""
        if len(self._crowded) >= MOST_CROWDED:
            self._crowded.clear()
        self._crowded[resource] = now + CROWDED

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        return await self._run(self._renew, renewals, timeout=timeout)

    def _renew(self, until: float, renewals: Sequence[Renewal]) -> list[RenewAnswer]:
        answers: list[RenewAnswer] = []
        for start in range(0, len(renewals), BATCH):
            batch = renewals[start : start + BATCH]
            renewed, rings = self._database.write_first(until, claims.renew, batch)
            answers += renewed
            self._notifier.ring(rings)
        if self._sweep.due(self.now()):
            self._tidy()
        return answers

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        return await self._run(self._write, claims.evict, resource, id, reason, timeout=IO_TIMEOUT)

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        return await self._run(self._database.run, self._queue, resource, limit, timeout=timeout)

    def _queue(self, connection: Connection, resource: str, limit: int | None = None) -> Queue:
        return reading.queue(connection, resource, limit, self.now(), self._database.liveness.alive)

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        return await self._run(self._database.run, self._names, prefix, after, limit, timeout=IO_TIMEOUT)

    def _names(self, connection: Connection, prefix: str, after: str, limit: int) -> list[str]:
        return reading.names(connection, prefix, after, limit, self.now())

    # ---- registers ----------------------------------------------------------------

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        return await self._run(self._database.run, registers.read, name, self.now(), timeout=timeout)

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        return await self._run(self._compare_and_set, name, version, value, id, timeout=timeout)

    def _compare_and_set(
        self, until: float, name: str, version: int, value: str | None, id: str
    ) -> Versioned | None:
        number = max(self._wall_ns() // 1000, self._last + 1)
        written = self._write(until, registers.compare_and_set, name, version, value, id, number)
        if self._sweep.due(self.now()):
            self._tidy()
        return written

    # ---- one transaction ----------------------------------------------------------

    async def _run(self, step: Callable[..., T], *args: Any, timeout: float) -> T:
        """What `step(until, *args)` returns, where `until` bounds its patience: see `Database.run`."""
        return step(self.now() + timeout, *args)

    def _write(self, until: float, work: Callable[..., T], *args: Any) -> T:
        result, rings = self._database.write(until, work, *args)
        if rings:
            self._notifier.ring(rings)
        return result

    def _tidy(self) -> None:
        """Remove a slice of what has lapsed; if that fails, the caller that happened to do it does not notice."""
        now = self.now()
        self._sweep.put_off(now)
        with suppress(InterlockError):
            self._database.write(now, self._sweep.sweep)

    # ---- waiting ------------------------------------------------------------------

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        waiter = Waiter("c" + claim.id, self._runtime.signal(), resource=claim.resource)
        await self._listen(waiter, timeout, self._unchanged, claim, busy is not None)
        return None  # the next claim tells: a grant is a few microseconds away, and always right

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        first_lapse = min((standing.lapses_in for standing in seen.standings), default=timeout)
        before = outline(seen)

        def changed(connection: Connection) -> bool:
            return outline(self._queue(connection, resource)) != before

        await self._watch("q" + resource, changed, min(timeout, first_lapse))

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        def changed(connection: Connection) -> bool:
            return registers.read(connection, name, self.now()).version != version

        await self._watch("r" + name, changed, timeout)

    async def _watch(self, topic: str, changed: Callable[[Connection], bool], timeout: float) -> None:
        waiter = Waiter(topic, self._runtime.signal(), changed=changed)
        await self._listen(waiter, timeout, self._unchanged_topic, topic, changed)

    async def _listen(
        self, waiter: Waiter, timeout: float, unchanged: Callable[..., bool], *args: object
    ) -> None:
        """Wait for a ring. The question whether anything has changed comes after listening has begun: no ring is missed."""
        deadline = Deadline(self.now, timeout)
        self._notifier.listen(waiter)
        try:
            if await self._run(unchanged, *args, timeout=min(timeout, IO_TIMEOUT)):
                await self._runtime.wait(waiter.signal, deadline.left())
        except StoreUnavailable:
            if not deadline.passed():
                raise  # otherwise the time is up, which is an answer too
        finally:
            self._notifier.forget(waiter)

    def _unchanged(self, until: float, claim: Claim, waits: bool) -> bool:
        """Whether nothing has happened to the claim since it was answered; our bell hangs there then."""
        found = self._database.run(until, reading.find, claim.resource, claim.id)
        if found is None or found.changed(self.now(), waits):
            return False
        bell = self._notifier.hang()
        return found.bell == bell or self._write(until, claims.listen, claim.resource, claim.id, bell)

    def _unchanged_topic(self, until: float, topic: str, changed: Callable[[Connection], bool]) -> bool:
        """Whether nothing has changed; whoever changes something about the topic rings our bell then."""
        now, address = self.now(), self._notifier.hang()
        if address and self._bells.get(topic, 0.0) < now + HANG_AGAIN:
            self._write(until, registers.hang, topic, address, HUNG)
            if len(self._bells) > 1000:
                self._bells = {topic: till for topic, till in self._bells.items() if till > now}
            self._bells[topic] = now + HUNG
        return not self._database.run(until, changed)

    # ---- housekeeping -------------------------------------------------------------

    def liveness_byte(self) -> tuple[str, int] | None:
        life = self._database.liveness.life
        return (os.path.realpath(self.path), life) if life else None

    def after_fork(self) -> None:
        """The connections are new by themselves (see `Database`); so is everything else, from here."""
        self._bells = {}
        if not self._shared:
            self._notifier.after_fork()

    async def close(self) -> None:
        if not self._shared:
            await self._run(self._close, timeout=IO_TIMEOUT)

    def _close(self, until: float) -> None:
        """Close the file. This process stays present there if claims of its own stand: it lives, and so do they."""
        self._notifier.close()
        stands, life = True, self._database.liveness.life
        if life:
            with suppress(InterlockError):
                stands = self._database.run(self.now() + CLOSING, reading.outlived, life, self.now())
        self._database.close()
        if not stands:
            self._database.retire()
