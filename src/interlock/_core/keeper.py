"""The keeper: renews everything a client holds or queues for, in batches, and keeps its deadlines.

One keeper a client, on one thread (or one task). It knows nothing of leases but five questions
(`Kept`). A request to the store never takes longer than the earliest deadline in its care, so a hung
server cannot delay a verdict. Whatever is raised, it goes on: nobody else would notice that renewals
have stopped.

Not done: a timer per lease (a thousand leases would be a thousand wake-ups), and removing entries from
the middle of the heap (a dropped entry is skipped when met, and swept out when they are too many).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Protocol

from interlock import events
from interlock._core.debt import Debt
from interlock.errors import StoreUnavailable
from interlock.model import Renewal, RenewAnswer
from interlock.ports import IO_TIMEOUT, Job, Runtime, Signal, Store

BATCH = 100  # renewals in one request: more would block the server for everyone else
IDLE = (
    2.0  # seconds a keeper that was busy just now stays half awake: waking its thread costs more than a lock
)
LONGEST_NAP = 1.0  # a suspended machine's sleep does not count; after waking we must look soon
LAST_TRY = 0.5  # seconds for a claim that is still owed when its client closes
LAG = 0.5  # being this late, seconds, is worth a report


class Kept(Protocol):
    """Something that must be renewed in time: a lease, or a place in a queue."""

    @property
    def _when(self) -> float:
        """The next instant somebody must look."""
        ...

    @property
    def deadline(self) -> float: ...
    @property
    def _over(self) -> bool:
        """Whether nobody needs it any more, though it was not dropped: its holder was interrupted, or is gone."""
        ...

    def _renewal(self, now: float) -> Renewal | None: ...
    def _answered(self, asked: float, answer: RenewAnswer) -> None: ...
    def _unanswered(self) -> None: ...
    def _look(self, now: float) -> None:
        """Draw the conclusion if the deadline has passed."""
        ...


class Keeper:
    """Keeps what it is given until told to drop it, or until it has ended by itself."""

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        report: Callable[[events.Event], None],
        stalled: Callable[[], float],
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._report = report
        self._stalled = stalled  # how long the holders' event loop has been stuck
        self._stall_reported = False
        self._guard = runtime.guard()
        self._order = count()
        self._heap: list[tuple[float, int, Kept]] = []
        self._live: dict[Kept, None] = {}
        self._alarm: Signal | None = None  # made where the keeper runs: that loop may not be there yet
        self._wakes_at = float("inf")
        self._busy = False  # something was kept since the last nap
        self._job: Job | None = None
        self._stopping = False
        self._doubted = float("-inf")  # when the store was last found to be another
        self._verified = float("-inf")  # and up to when everything was asked for since

    def keep(self, kept: Kept) -> None:
        """Look after `kept` from now on. Costs no system call unless it is the most urgent of all."""
        when = kept._when
        with self._guard:
            self._live[kept] = None
            self._busy = True
            heapq.heappush(self._heap, (when, next(self._order), kept))
            urgent = when < self._wakes_at
            if urgent:
                self._wakes_at = when
            if (self._job is None or not self._job.alive()) and not self._stopping:
                # The first; or the one before was a task of a loop that has ended.
                self._job = self._runtime.spawn("interlock-keeper", self._run())
        if urgent:
            self._ring()

    def _ring(self) -> None:
        if (alarm := self._alarm) is not None:
            alarm.set()

    def doubt(self) -> None:
        """Have all that is kept verified at once: another server took over. For any thread; returns at once."""
        with self._guard:
            self._doubted = self._wakes_at = self._runtime.now()
        self._ring()

    def drop(self, kept: Kept) -> None:
        """Leave `kept` alone from now on: no renewal is begun after this returns."""
        with self._guard:
            self._live.pop(kept, None)
            if not self._live:  # nothing may keep a client from going that nobody has any more
                self._heap.clear()
            elif len(self._heap) > 64 + 2 * len(self._live):
                self._heap = [entry for entry in self._heap if entry[2] in self._live]
                heapq.heapify(self._heap)

    def kept(self) -> list[Kept]:
        with self._guard:
            return list(self._live)

    async def stop(self, timeout: float) -> None:
        self._stopping = True
        self._ring()
        if self._job is not None:
            await self._runtime.join(self._job, timeout)

    def stop_soon(self) -> None:
        """End the keeper's thread without waiting for it (its client is gone)."""
        self._stopping = True
        self._ring()

    def after_fork(self) -> None:
        """In a forked child: nothing is held, and no thread runs."""
        self.__init__(self._store, self._runtime, self._report, self._stalled)  # type: ignore[misc]

    # ---- the loop -----------------------------------------------------------

    async def _run(self) -> None:
        while not self._stopping:
            try:
                await self._nap()
                await self._round()
            except Exception as error:  # a keeper that dies loses every lock of its client
                self._report(events.KeeperFailed(repr(error)))
                await self._runtime.sleep(0.05)
        await self._settle()

    async def _settle(self) -> None:
        """The client closes: a last try at what is owed, or others would wait until it lapses."""
        debts = [kept for kept in self.kept() if isinstance(kept, Debt)]
        for debt in debts:
            self.drop(debt)
        for debt in debts:
            try:
                await self._store.release(debt.resource, debt.id, debt.linger, LAST_TRY)
            except Exception as error:
                self._report(events.CleanupFailed(debt.resource, str(error)))
                return  # the store is away, and nobody has the time to ask it for each

    async def _nap(self) -> None:
        """Sleep until the next entry is due; a keeper that has long had nothing to keep, until called."""
        with self._guard:
            self._alarm = alarm = self._runtime.signal()
            now = self._runtime.now()
            if self._heap:
                self._wakes_at = self._heap[0][0]
            else:  # locks that come and go would each have to wake us
                self._wakes_at = now + IDLE if self._busy else float("inf")
            self._busy = False
            left = self._wakes_at - now
        if not self._stopping and left > 0:
            nap = LONGEST_NAP if self._heap else left
            await self._runtime.wait(alarm, None if left == float("inf") else min(left, nap))

    async def _round(self) -> None:
        now = self._runtime.now()
        self._watch_loop()
        due = self._due(now)
        try:
            for start in range(0, len(due), BATCH):
                await self._renew(due[start : start + BATCH])
            for kept in due:
                if isinstance(kept, Debt):
                    await self._pay(kept)
        finally:  # whatever was raised: what is not looked at again would silently lapse
            with self._guard:
                for kept in due:
                    if kept in self._live:
                        heapq.heappush(self._heap, (kept._when, next(self._order), kept))

    def _watch_loop(self) -> None:
        stalled = self._stalled()
        if stalled > LAG and not self._stall_reported:
            self._report(events.LoopStalled(stalled))
        self._stall_reported = stalled > LAG

    def _due(self, now: float) -> list[Kept]:
        """Take out what is due, and what will be soon: one request for all of it."""
        due: list[Kept] = []
        if self._doubted > self._verified:
            return self._all_doubtful(now)
        with self._guard:
            if self._heap and self._heap[0][0] > now:
                return due  # woken to look at the clock: what would be early is not begun for that
            late = now - self._heap[0][0] if self._heap and self._heap[0][2] in self._live else 0.0
            while self._heap and self._heap[0][0] <= now + self._slack(self._heap[0][2], now):
                kept = heapq.heappop(self._heap)[2]
                if kept in self._live:
                    due.append(kept)
        if late > LAG:
            self._report(events.KeeperLagged(late))
        return due

    def _all_doubtful(self, now: float) -> list[Kept]:
        """Everything is due: what the server before knew, the one that took over may not know."""
        with self._guard:
            self._verified = now
            self._heap.clear()
            due = list(self._live)
        for kept in due:
            kept._unanswered()
        return due

    @staticmethod
    def _slack(kept: Kept, now: float) -> float:
        """How much too early a renewal may be, so that many go in one request."""
        left = kept.deadline - now
        return max(0.0, left / 8) if left < float("inf") else 0.0

    async def _renew(self, batch: list[Kept]) -> None:
        asked = self._runtime.now()  # before the question: see Lease
        asking: list[tuple[Kept, Renewal]] = []
        for kept in batch:
            kept._look(asked)
            if kept._over:
                self.drop(kept)  # or it would be due for ever, and we would never sleep again
            elif kept in self._live:
                if renewal := kept._renewal(asked):
                    asking.append((kept, renewal))
        if not asking:
            return
        try:
            answers = await self._store.renew([renewal for _, renewal in asking], self._patience(asked))
        except Exception as error:
            for kept, _ in asking:
                kept._unanswered()
            if not isinstance(error, StoreUnavailable):
                self._report(events.KeeperFailed(repr(error)))
        else:
            for (kept, _), answer in zip(asking, answers, strict=True):
                if asked < self._doubted:  # by whom? the server may be another since
                    kept._unanswered()
                else:
                    kept._answered(asked, answer)
        self._look_at_all()

    async def _pay(self, debt: Debt) -> None:
        """Take a claim back; try again later if the store is still away, until the claim has lapsed."""
        now = self._runtime.now()
        try:
            await self._store.release(debt.resource, debt.id, debt.linger, self._patience(now))
        except Exception as error:  # also a store that became unfit: no debt may be in the way of the next
            debt._when = self._runtime.now() + 0.5
            if debt._when < debt.until:
                return
            self._report(events.CleanupFailed(debt.resource, str(error)))
        self.drop(debt)

    def _patience(self, now: float) -> float:
        """How long a request may take: half the time to the first deadline, so that another try fits in."""
        first = min((kept.deadline for kept in self.kept()), default=now)
        return max(0.01, min(IO_TIMEOUT, (first - now) / 2))

    def _look_at_all(self) -> None:
        now = self._runtime.now()
        for kept in self.kept():
            if kept.deadline <= now:
                kept._look(now)
