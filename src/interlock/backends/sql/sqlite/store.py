"""The store over a lock file: each step is one transaction, then the rings that it caused.

Where nobody stands in the way, claim and release are each a single statement, which SQLite runs as a
transaction of its own. It changes one row or none; none means that the steps of `tables.claims` must decide.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.examining import Examiner
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql import rows, steps
from interlock.backends.sql.sqlite import checks
from interlock.backends.sql.sqlite.doorbell import available
from interlock.backends.sql.sqlite.file import errors
from interlock.backends.sql.sqlite.file.database import Database
from interlock.backends.sql.sqlite.file.liveness import COMMANDS
from interlock.backends.sql.sqlite.file.location import make_beside
from interlock.backends.sql.sqlite.notifier import Notifier
from interlock.backends.sql.sqlite.steps import NUMBERED, READS, WRITES
from interlock.backends.sql.sqlite.tables import claims, reading
from interlock.backends.sql.sqlite.tables.row import live
from interlock.backends.sql.sqlite.tables.statements import CLAIMS
from interlock.backends.sql.steps import Rows
from interlock.backends.sql.store import SharedState, SqlStore
from interlock.backends.sql.sweep import SweepCursor
from interlock.backends.sql.waking import Waiter
from interlock.errors import InterlockError
from interlock.model import Busy, Claim, ClaimAnswer, Examination, Granted, Traits
from interlock.store import IO_TIMEOUT

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
        "an operator evicts the holder or deletes its row",
        "the lock file, or its log (-wal), is deleted or replaced while leases are held",
        (
            "its shared memory (-shm) is removed in the instant in which a process is stopped in the "
            "middle of "
            "a write"
        ),
    ),
    min_ttl=0.01,
    max_ttl=365 * 86400.0,
)

CLAIM_IDLE = CLAIMS["claim_idle"]
RELEASE_ALONE = CLAIMS["release_alone"]
WRITES_PER_SWEEP = 64  # between two slices of the sweep, which costs no round trip here
SWEEP_PERIOD_S = 2.0
CLOSE_TIMEOUT_S = 1.0  # seconds for the last question to the file
CROWDED_S = 0.25  # seconds for which the quick path is not tried again where it has met somebody
MAX_CROWDED_RESOURCES = 1000  # resources of which that is remembered


class SqliteStore(SqlStore):
    """Claims and registers in one file, for the processes of one machine.

    Every call blocks its thread and never suspends; any thread may call. `async_store` calls it beside an
    event loop.
    """

    traits = TRAITS
    decides_here = True
    _reads = True

    def __init__(
        self, database: Database, notifier: Notifier, runtime: WaitRuntime, *, of: SqliteStore | None = None
    ) -> None:
        """`of` is another store with the same database and notifier, which closes them."""
        self._state: SharedState = (
            of._state if of else SharedState(SweepCursor(WRITES_PER_SWEEP, SWEEP_PERIOD_S))
        )
        super().__init__(database.path, database.clock.now, runtime, notifier, self._state)
        self.path = database.path
        self._wall_ns = database.clock.wall_ns
        self._database = database
        self._notifier = notifier
        self._shared = of is not None
        self._last = 0  # the highest token seen here: a proposal below it would be refused
        self._missed = ""  # the claim for which the quick path was last in vain: it is not tried twice
        self._crowded: dict[str, float] = {}  # resource: until when the quick path would be in vain
        self.inside = database.surrounded  # type: ignore[method-assign]  # itself: every release asks

    # ---- claims -------------------------------------------------------------------

    def claim_idle(self, claim: Claim, until: float = 0.0) -> Granted | None:
        """See `Store.claim_idle`. A busy file is tried again until `until`: `claim` begins with this."""
        resource, now, token = claim.resource, self.now(), self._wall_ns() // 1000
        if claim.permits > claim.capacity or (self._crowded and self._crowded.get(resource, 0.0) > now):
            self._missed = claim.id
            return None
        if token <= self._last:
            token = self._last + 1
        ttl = claim.ttl
        # fmt: off
        changed = self._database.single(until, now, CLAIM_IDLE, (
            resource, token, claim.id, claim.permits, claim.capacity, ttl, now + ttl, now, claim.note, claim.who,  # noqa: E501
            token, resource, "q" + resource,
        ))
        # fmt: on
        if changed:
            self._last = token
            if self._sweep.due(now):
                self._sweep_now(now)
            return Granted(token, ttl)
        if changed is False:
            self._missed = claim.id
        return None

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        now = self.now()
        if claim.id != self._missed and (granted := self.claim_idle(claim, now + timeout)) is not None:
            return granted
        floor = max(self._wall_ns() // 1000, self._last + 1)
        args = rows.claim_arguments(claim, self._notifier.hang())
        (row,) = self._write(now + timeout, claims.claim, floor, *args)
        answer, _ = rows.claim_answer(claim, row)
        if isinstance(answer, Granted):
            self._last = max(self._last, answer.token)
        else:
            self._met_others(claim.resource, now)
        if self._sweep.due(now):
            self._sweep_now(now)
        return answer

    def release_alone(self, resource: str, id: str, until: float = 0.0) -> bool:
        """See `Store.release_alone`. A busy file is tried again until `until`: `release` begins with this."""
        now = self.now()
        if self._crowded and self._crowded.get(resource, 0.0) > now:
            return False
        values = (resource, id, now, resource, id, "q" + resource)
        changed = self._database.single(until, now, RELEASE_ALONE, values)
        if changed is False:
            self._met_others(resource, now)
        return bool(changed)

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        now = self.now()
        until = now + timeout
        if linger <= 0 and self.release_alone(resource, id, until):
            return True
        ((stood, _),), rings = self._database.write(until, claims.release, resource, id, linger)
        if rings:
            self._notifier.ring(rings)
        return bool(stood)

    def _sweep_now(self, now: float) -> None:
        """As `_sweep_slice`, which has nothing to wait for here."""
        with suppress(InterlockError):
            for row in self._do(0.0, steps.SWEEP, self._sweep.begin(now)):
                self._sweep.swept(row)

    def _met_others(self, resource: str, now: float) -> None:
        """For a while, take the long way at once on this resource: a hand-off must not pay for a quick
        path in vain.
        """
        if len(self._crowded) >= MAX_CROWDED_RESOURCES:
            self._crowded.clear()
        self._crowded[resource] = now + CROWDED_S

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        deadline = Deadline(self.now, timeout)
        waiter = Waiter(
            self._runtime.signal(),
            "c" + claim.id,
            resource=claim.resource,
            holds=busy is None,
            reads=self._reads,
        )
        await self._listen(waiter, lambda: self._unchanged(claim, busy, deadline.of_request()), deadline)
        return None if busy is None else await self._look_for_grant(claim, deadline.at)

    async def _wait_for(self, waiter: Waiter, timeout: float) -> None:
        if not waiter.reads or (timeout := self._notifier.wait(waiter, timeout)) > 0:
            await self._runtime.wait(waiter.signal, timeout)

    async def _look_for_grant(self, claim: Claim, until: float) -> Granted | None:
        """The grant, if another process has admitted the claim. A look is enough: what it wrote into the row
        decides.

        None if the next claim must tell, also where the place is about to lapse: that claim gives it a whole
        ttl.
        """
        asked = self._runtime.now()  # first: whatever is slow from here on must shorten the lease
        if (now := self.now()) >= until:
            return None
        try:
            found = await self._find_claim(min(until, now + IO_TIMEOUT), now, claim.resource, claim.id)
        except InterlockError:
            return None
        for token, ttl, lapses_at in found:
            if live(now, lapses_at, ttl) and (lapses_in := lapses_at - now) >= claim.place_ttl / 2:
                self._last = max(self._last, token)
                return Granted(token, min(lapses_in, claim.ttl), asked)
        return None

    async def _find_claim(self, until: float, now: float, resource: str, id: str) -> Rows:
        """The claim as a holder: token, ttl and lapse."""
        return self._database.read(until, reading.admitted, resource, id, verified=True)

    # ---- steps --------------------------------------------------------------------

    async def _run(self, step: str, args: Sequence[object], until: float) -> Rows:
        return self._do(until, step, args)

    def _do(self, until: float, step: str, args: Sequence[Any]) -> Rows:
        """Run a step, and retry it until `until` at the latest: see `Database.run`."""
        if step == steps.RENEW:
            found, rings = self._database.write(until, claims.renew, *args, urgent=True)
        elif step in READS:
            return self._database.read(until, READS[step], *args)
        elif step == steps.FIND:
            return self._find(until, *args)
        else:
            if step == steps.SWEEP:
                until = 0.0  # a file that is locked just now is left alone
            elif step in NUMBERED:
                args = (max(self._wall_ns() // 1000, self._last + 1), *args)
            found, rings = self._database.write(until, WRITES[step], *args)
        if rings:
            self._notifier.ring(rings)
        return found

    def _find(self, until: float, resource: str, id: str, bell: str, _token: int = 0) -> Rows:
        """`steps.FIND`, which only reads as a rule: the bell of a claim that waits stands in its row
        already.
        """
        found = self._database.read(until, reading.find, resource, id)
        for *_, rung_at in found:
            if bell not in ("", rung_at) and not self._write(until, claims.listen, resource, id, bell):
                return []
        return [row[:4] for row in found]

    def _write(self, until: float, work: Callable[..., T], *args: Any) -> T:
        result, rings = self._database.write(until, work, *args)
        if rings:
            self._notifier.ring(rings)
        return result

    # ---- housekeeping -------------------------------------------------------------

    def liveness_byte(self) -> tuple[str, int] | None:
        life = self._database.liveness.life
        if not life:
            return None
        path = os.path.realpath(self.path)
        try:
            make_beside(path, COMMANDS)
        except OSError as error:  # the lock file was removed
            raise errors.not_opened(path, error) from error
        return path + COMMANDS, life

    def after_fork(self) -> None:
        """The connections are new by themselves (see `Database`); so is everything else, from here."""
        self._state.clear()
        if not self._shared:
            self._notifier.after_fork()

    async def examine(self, timeout: float = IO_TIMEOUT) -> Examination:
        examiner = Examiner(self.now, timeout)
        checks.examine(self.path, TRAITS.wakes == "doorbell", examiner)
        return examiner.result()

    async def close(self) -> None:
        if not self._shared:
            self._state.closed = True
            self._close(self.now() + IO_TIMEOUT)

    def _close(self, until: float) -> None:
        """Close the file.

        This process stays present there if claims of its own stand: it lives, and so do they.
        """
        self._notifier.close()
        stands, life = True, self._database.liveness.life
        if life:
            with suppress(InterlockError):
                stands = self._database.read(min(until, self.now() + CLOSE_TIMEOUT_S), reading.outlived, life)
        self._database.close()
        if not stands:
            self._database.retire()
