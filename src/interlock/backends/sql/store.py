"""The `Store` interface over the steps of a database: what all dialects share.

Two things differ: how a step is run, and how those who wait are woken. `server_store` asks a server through
connections, and `sqlite.store` a file on this machine. Each of them has its own claim, release and wait,
where every microsecond or every lost answer counts; the rest is here.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from interlock._core.outline import outline
from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql import rows, steps
from interlock.backends.sql.steps import Rows
from interlock.backends.sql.sweep import SweepCursor
from interlock.backends.sql.waking import ChangeRead, Waiter, Waking
from interlock.errors import InterlockError, StoreUnavailable
from interlock.model import Busy, Claim, Queue, Renewal, RenewAnswer, Renewed, Standing, Versioned
from interlock.store import IO_TIMEOUT, StoreDefaults

RENEWALS_PER_STEP = 100  # renewals in one step: more would keep locks from others for too long
WATCHED_S = 60.0  # seconds for which changes ring the bell of a watcher
WATCH_RENEWAL_S = 30.0  # a watch that will end sooner is renewed
SWEEP_TIMEOUT_S = 1.0  # seconds that a caller waits at most for the sweep that it happens to do


class SharedState:
    """What all sides of one client know: the callers', the keeper's, and the blocking side of an asyncio
    store.
    """

    def __init__(self, sweep: SweepCursor) -> None:
        self.sweep = sweep
        # By topic: the bell that its changes ring, and until when.
        self.bells: dict[str, tuple[str, float]] = {}
        self.closed = False  # set before the waiters are woken: whoever listens later must not wait

    def clear(self) -> None:
        """In a forked child."""
        self.bells.clear()


class SqlStore(StoreDefaults, ABC):
    """Claims and registers in the tables of a database."""

    _reads = False  # whether a thread that waits may read wake-ups itself: see `Waiter.reads`

    def __init__(
        self,
        label: str,
        now: Callable[[], float],
        runtime: WaitRuntime,
        waking: Waking,
        state: SharedState,
    ) -> None:
        self.now = now
        self._label = label
        self._runtime = runtime
        self._waking = waking
        self._shared_state, self._sweep, self._bells = state, state.sweep, state.bells

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._label}>"

    @abstractmethod
    async def _run(self, step: str, args: Sequence[object], until: float) -> Rows:
        """Run one of `steps` and deliver the messages that it causes; `StoreUnavailable` if there is no
        answer by then.
        """

    # ---- claims ------------------------------------------------------------------------

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        until = self.now() + timeout
        answers: list[RenewAnswer] = []
        for start in range(0, len(renewals), RENEWALS_PER_STEP):
            batch = renewals[start : start + RENEWALS_PER_STEP]
            items = [
                (r.resource, r.id, r.ttl, r.note, r.permits, self._token(r.id), r.waiting) for r in batch
            ]
            found = await self._run(steps.RENEW, (items, self._waking.bell), until)
            for renewal, row in zip(batch, found, strict=True):
                if row[0] == "r":
                    answers.append(Renewed(renewal.ttl))
                else:
                    answers.append(rows.not_renewed(row))
                    self._on_not_renewed(renewal.id, answers[-1])
                    self._waking.wake("c" + renewal.id)
        if self._sweep.due(now := self.now()):
            await self._sweep_slice(now, until)
        return answers

    def _token(self, id: str) -> int:
        """The token of a claim, by which a step finds its row without a search; 0 if it is not known."""
        return 0

    def _on_not_renewed(self, id: str, answer: RenewAnswer) -> None:
        """Note that a claim was not renewed."""

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        args = (resource, id, reason, steps.REMEMBERED_S, f"eviction-{os.urandom(16).hex()}")
        found = await self._run(steps.EVICT, args, self.now() + IO_TIMEOUT)
        removed = rows.evicted(found)
        for standing in removed:
            self._waking.wake("c" + standing.id)
        return removed

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        return rows.queue(resource, await self._run(steps.QUEUE, (resource, limit), self.now() + timeout))

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        return [
            name for (name,) in await self._run(steps.NAMES, (prefix, after, limit), self.now() + IO_TIMEOUT)
        ]

    async def _sweep_slice(self, now: float, until: float) -> None:
        """Remove a slice of what has lapsed; if that fails, the caller that happened to do it does not
        notice.
        """
        with suppress(InterlockError):
            for row in await self._run(
                steps.SWEEP, self._sweep.begin(now), min(until, now + SWEEP_TIMEOUT_S)
            ):
                self._sweep.swept(row)

    # ---- registers ---------------------------------------------------------------------

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        return rows.register(await self._run(steps.READ, (name,), self.now() + timeout))

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        until = self.now() + timeout
        args = (name, version, value, id, self._waking.bell, steps.REMEMBERED_S)
        try:
            found = await self._run(steps.WRITE, args, until)
        finally:
            self._waking.wake("r" + name)
        if self._sweep.due(now := self.now()):
            await self._sweep_slice(now, until)
        return rows.register(found) if found else None

    # ---- waiting -----------------------------------------------------------------------

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        before = outline(seen)
        first_lapse = min((standing.lapses_in for standing in seen.standings), default=timeout)

        def changed(found: Rows) -> bool:
            return outline(rows.queue(resource, found)) != before

        change_read = ChangeRead(steps.QUEUE, (resource, None), changed)
        await self._watch("q", resource, change_read, min(timeout, first_lapse))

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        def changed(found: Rows) -> bool:
            return rows.register(found).version != version

        await self._watch("r", name, ChangeRead(steps.READ, (name,), changed), timeout)

    async def _watch(self, kind: str, name: str, change_read: ChangeRead, timeout: float) -> None:
        """Wait until a look finds a change, or for `timeout` seconds."""
        deadline = Deadline(self.now, timeout)

        async def unchanged() -> bool:
            await self._ring_at_changes(kind, name, deadline)
            return not change_read.changed(
                await self._run(change_read.step, change_read.args, deadline.of_request())
            )

        waiter = Waiter(self._runtime.signal(), kind + name, change_read=change_read, reads=self._reads)
        await self._listen(waiter, unchanged, deadline, WATCH_RENEWAL_S)

    async def _ring_at_changes(self, kind: str, name: str, deadline: Deadline) -> None:
        """See to it that our bell is rung at changes, for long enough."""
        bell, now, bells = self._waking.bell, self.now(), self._bells
        known, until = bells.get(kind + name, ("", 0.0))
        if bell and (known != bell or until < now + WATCH_RENEWAL_S):
            await self._run(steps.WATCH, (kind, name, bell, WATCHED_S), deadline.of_request())
            if len(bells) > 1000:
                for topic in [topic for topic, (_, till) in bells.items() if till <= now]:
                    bells.pop(topic, None)
            bells[kind + name] = (bell, now + WATCHED_S)

    async def _listen(
        self,
        waiter: Waiter,
        unchanged: Callable[[], Awaitable[bool]],
        deadline: Deadline,
        longest: float = float("inf"),
    ) -> None:
        """Wait for a ring.

        The question whether anything has changed comes after listening has begun: no ring is missed.
        """
        self._waking.listen(waiter)
        try:
            if self._shared_state.closed:
                return  # those who listened by then were woken, and nobody is from here on
            if not self._waking.subscribed(waiter):
                await self._runtime.wait(waiter.signal, deadline.left())
                return  # what was rung before the subscription listened is lost: the caller asks again
            if await unchanged():
                await self._wait_for(waiter, min(deadline.left(), longest))
        except StoreUnavailable:
            if not deadline.passed():
                raise  # otherwise the time is up, which is an answer too
        finally:
            self._waking.forget(waiter)

    async def _wait_for(self, waiter: Waiter, timeout: float) -> None:
        """Return when the waiter is set, or after so many seconds."""
        await self._runtime.wait(waiter.signal, timeout)

    async def _unchanged(self, claim: Claim, busy: Busy | None, until: float) -> bool:
        """Whether nothing has happened to a claim since it was answered; our bell is in its row then."""
        args = (claim.resource, claim.id, self._waking.bell, self._token(claim.id))
        for state, rung, _, _ in await self._run(steps.FIND, args, until):
            return not rows.changed(busy, state, rung)
        return False
