"""The keeper: renews everything a client holds or queues for, in batches, and keeps its deadlines.

Each client has one keeper, on one thread (or one task). It does its work in this order:

    renewals          of leases, and of places in queues: nothing else may delay them
    verdicts          a lease whose deadline has passed is lost, whether or not the store has answered
    clean-up          for callers that cannot clean up after themselves: what they left becomes pending
                      releases
    pending releases  claims that could not be taken back in time are taken back, until the next
                      renewal is due

A renewal takes no longer than half the time to the earliest deadline, so a hung server cannot delay a
verdict; but it is given the time that the server has lately needed, or a lease shorter than two round trips
would cut short the renewals of all others. Whatever is raised, the keeper goes on: nobody else would notice
that renewals have stopped.

A lease that lives for a moment costs one entry in a dictionary, `newly_kept`. The keeper looks there whenever
it wakes, and from then on the lease stands in two heaps: one by the instant it is due, one by its deadline.
Entries are not removed from the middle of a heap: one that is over, or whose time has changed, is dealt with
when it comes up.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection
from itertools import count
from typing import Protocol

from interlock import events
from interlock._core.removal import PendingRelease
from interlock._core.runtime import Job, Mutex, Owner, Runtime, Signal
from interlock._core.session import Session
from interlock.errors import InterlockError, StoreUnavailable
from interlock.model import Renewal, RenewAnswer
from interlock.store import IO_TIMEOUT, Store

RENEWALS_PER_REQUEST = 100  # renewals in one request: more would block the server for everyone else
# Seconds after which a keeper that was busy looks again by itself, so that locks which come and go need not
# wake its thread: that costs more than a lock. Less than SIGN_AFTER_S.
HALF_AWAKE_S = 0.9
MAX_NAP_S = 1.0  # a suspended machine's sleep does not count; after waking we must look soon
LAST_TRY_S = 0.5  # seconds for a claim that is still to be released when its client closes
PENDING_TRY_S = 1.0  # seconds for which one pending release may wait for the store
MAX_TRIP_S = 0.5  # seconds that a renewal gets, if the store has needed them, however near a deadline is
REPORTED_LAG_S = 0.5  # being this late, seconds, is worth a report
ERROR_REPORT_PERIOD_S = 60.0  # seconds until the same unexpected error is reported again
LAG_REPORT_PERIOD_S = 10.0  # seconds until it is reported again, unless it has doubled
NEVER = float("inf")


class Renewable(Protocol):
    """Something that must be renewed in time: a lease, or a place in a queue."""

    @property
    def _due(self) -> float:
        """The next instant at which the keeper must look at it."""
        ...

    @property
    def resource(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def deadline(self) -> float: ...
    @property
    def _leeway(self) -> float:
        """How many seconds too early it may be renewed if it has no deadline."""
        ...

    @property
    def _ended(self) -> bool:
        """Whether nobody needs it any more, though it was not dropped: its holder was interrupted, or is
        gone.
        """
        ...

    def _renewal(self, now: float) -> Renewal | None: ...
    def _on_reply(self, asked: float, answer: RenewAnswer) -> None: ...
    def _on_no_reply(self, why: str = "") -> None:
        """`why` is given if the store did answer, but with an error: that it is full, for example."""
        ...

    def _poll(self, now: float) -> None:
        """Conclude that it is lost if its deadline has passed."""
        ...

    def _on_session_lost(self) -> None:
        """Conclude that it is lost: the session that carried its claim has ended. See `Session`."""
        ...

    def _left_behind(self) -> bool:
        """Whether its claim may still stand though it is over, and nobody will release it. See `Session`."""
        ...


class Abandoned(Protocol):
    """A lease or an attempt whose caller cannot clean up after itself."""

    def _clean_up(self) -> None:
        """Let go of it, on the keeper's thread; a claim that may stand in the store becomes a pending
        release.
        """
        ...


class Keeper:
    """Keeps leases and places until it is told to drop them, or until they have ended by themselves."""

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        mutex: Mutex,
        report: Callable[[events.Event], None],
        stalled: Callable[[], float],
        session: Session | None = None,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._mutex = mutex
        self._report = report
        self._stalled = stalled  # how long the holders' event loop has been stuck
        self._session = session  # None where each claim lapses by itself
        self._stall_reported = False
        self._order = count()
        self.newly_kept: dict[Renewable, None] = {}  # those that came since the keeper last looked
        self._live: dict[Renewable, None] = {}
        self._by_due: list[tuple[float, int, Renewable]] = []
        self._by_deadline: list[tuple[float, int, Renewable]] = []
        self._pending: dict[PendingRelease, None] = {}
        self._abandoned: deque[Abandoned] = deque()
        self._alarm: Signal | None = None  # made where the keeper runs: that loop may not be there yet
        self._wakes_at = NEVER
        self._busy = False  # something was kept since the last nap
        self._job: Job | None = None
        self._owner: Owner | None = None  # the thread or task that runs the keeper
        self._stopping = False
        self._trip = 0.0  # seconds that a renewal has lately taken
        self._waited_until = float("-inf")  # for the store, when it was last asked
        self._failure_reported = (float("-inf"), "")  # when, and which
        self._lag_reported = (float("-inf"), 0.0)  # when, and how late it was
        self.doubted = float("-inf")  # when the store was last found to be another
        self._verified = float("-inf")  # and up to when everything was asked for since

    # ---- for everyone ---------------------------------------------------------

    def keep(self, kept: Renewable, due: float | None = None) -> None:
        """Look after `kept` from now on. Takes no mutex, and no system call unless it is the most urgent of
        all.

        `due` is when the keeper must look at it, if the caller knows that already.
        """
        when = kept._due if due is None else due
        # Before the look at `_wakes_at`: a keeper that falls asleep looks the other way round.
        self.newly_kept[kept] = None
        self._busy = True
        if when < self._wakes_at or self._job is None or not self._job.alive():
            self._wake(when)

    def release_later(self, pending: PendingRelease) -> None:
        """Repeat a release until the store has answered it, or the claim has lapsed."""
        with self._mutex:
            self._pending[pending] = None
        self._wake(pending.due)

    def hand_over(self, abandoned: Abandoned) -> None:
        """Have the keeper clean up for a caller that cannot. Takes no mutex: the caller may stand inside one.

        A garbage collector or a signal handler can call a release in the midst of any line of ours. If that
        line stands inside a mutex, the release would wait for its own thread for ever.
        """
        self._abandoned.append(abandoned)
        # A keeper that falls asleep meanwhile looks for the abandoned after this.
        self._wakes_at = float("-inf")
        self._ring()

    def _wake(self, when: float) -> None:
        with self._mutex:
            urgent = when < self._wakes_at
            if urgent:
                self._wakes_at = when
            if (self._job is None or not self._job.alive()) and not self._stopping:
                # The first; or the one before was a task of a loop that has ended.
                self._job = self._runtime.spawn("interlock-keeper", self._run)
        if urgent:
            self._ring()

    def _ring(self) -> None:
        if (alarm := self._alarm) is not None:
            alarm.set()

    def doubt(self) -> None:
        """Have all that is kept verified at once: another server took over.

        For any thread; returns at once.
        """
        with self._mutex:
            self.doubted = self._wakes_at = self._runtime.now()
        self._ring()

    def forget_releases(self, ids: Collection[str] | None) -> None:
        """Release these claims no more, or none at all: they are gone. For any thread."""
        for pending in list(self._pending):
            if ids is None or pending.id in ids:
                self._pending.pop(pending, None)

    def deadlines_moved(self) -> None:
        """Look at all deadlines anew, for some are sooner now, and have everything verified. For any
        thread.
        """
        with self._mutex:
            self._absorb()
            self._by_deadline = [
                (kept.deadline, next(self._order), kept) for kept in self._live if kept.deadline != NEVER
            ]
            heapq.heapify(self._by_deadline)
        self.doubt()

    def drop(self, kept: Renewable) -> None:
        """Leave `kept` alone from now on: no renewal is begun after this returns."""
        if self.newly_kept.pop(kept, self) is None:
            return
        with self._mutex:
            self._live.pop(kept, None)
            if not self._live:  # nothing may keep a client from going that nobody has any more
                self._by_due.clear()
                self._by_deadline.clear()
            elif len(self._by_due) > 64 + 2 * len(self._live):
                self._by_due = [entry for entry in self._by_due if entry[2] in self._live]
                self._by_deadline = [entry for entry in self._by_deadline if entry[2] in self._live]
                heapq.heapify(self._by_due)
                heapq.heapify(self._by_deadline)

    def kept(self) -> list[Renewable]:
        with self._mutex:
            self._absorb()
            return list(self._live)

    def pending(self) -> list[PendingRelease]:
        """Releases that the store has not answered yet, including those that were handed over just now."""
        self._clean_up()
        return list(self._pending)

    def here(self) -> bool:
        """Whether the caller is the keeper itself, which must not be held up."""
        return self._owner is not None and self._runtime.owner() is self._owner

    async def stop(self, timeout: float) -> None:
        self.stop_soon()
        if self._job is not None:
            await self._runtime.join(self._job, timeout)

    def stop_soon(self) -> None:
        """End the keeper without waiting for it: its client is closed, or gone."""
        self._stopping = True
        self._ring()

    def after_fork(self, mutex: Mutex) -> None:
        """In a forked child: nothing is held, and no thread runs."""
        self.__init__(  # type: ignore[misc]
            self._store, self._runtime, mutex, self._report, self._stalled, self._session
        )

    # ---- the loop -----------------------------------------------------------

    async def _run(self) -> None:
        self._owner = self._runtime.owner()
        while not self._stopping:
            try:
                await self._nap()
                await self._round()
            except Exception as error:  # a keeper that dies loses every lock of its client
                self._report_failure(error)
                await self._runtime.sleep(0.05)
        await self._settle()

    async def _nap(self) -> None:
        """Sleep until something is due; if there has been nothing to keep for long, until called."""
        with self._mutex:
            self._absorb()
            self._alarm = alarm = self._runtime.signal()
            now = self._runtime.now()
            self._wakes_at = self._next(now)
            self._busy = False
        # Whatever came since is seen here, or its caller has seen `_wakes_at` and rings.
        if self._stopping or self.newly_kept or self._abandoned:
            return
        left = self._wakes_at - now
        if left > 0:
            nap = MAX_NAP_S if self._live else left
            await self._runtime.wait(alarm, None if left == NEVER else min(left, nap))

    def _next(self, now: float) -> float:
        """The instant at which something is due next."""
        due = min((pending.due for pending in self._pending), default=NEVER)
        if self._by_due:
            due = min(due, self._by_due[0][0])
        if self._busy:  # locks that come and go would each have to wake us
            due = min(due, now + HALF_AWAKE_S)
        return due

    def _absorb(self) -> None:
        """Enter the newcomers into the heaps. Under the mutex."""
        for kept in list(self.newly_kept):
            if self.newly_kept.pop(kept, self) is None:  # or it was dropped this very moment
                self._live[kept] = None
                self._push(kept)
                if kept.deadline != NEVER:
                    heapq.heappush(self._by_deadline, (kept.deadline, next(self._order), kept))

    def _push(self, kept: Renewable) -> None:
        heapq.heappush(self._by_due, (kept._due, next(self._order), kept))

    async def _round(self) -> None:
        self._watch_loop()
        now = self._runtime.now()
        due = self._take_due(now)
        try:
            for start in range(0, len(due), RENEWALS_PER_REQUEST):
                await self._renew(due[start : start + RENEWALS_PER_REQUEST])
        finally:  # whatever was raised: a lease that is not looked at again would silently lapse
            with self._mutex:
                for kept in due:
                    if kept in self._live:
                        self._push(kept)
        self._pass_verdicts()
        try:
            self._clean_up()
        finally:  # what cannot be cleaned up must not keep claims standing that can be released
            await self._release_pending()

    def _watch_loop(self) -> None:
        stalled = self._stalled()
        if stalled > REPORTED_LAG_S and not self._stall_reported:
            self._report(events.LoopStalled(stalled))
        self._stall_reported = stalled > REPORTED_LAG_S

    def _clean_up(self) -> None:
        """Clean up for callers that cannot; the next round tries again what fails, behind all others."""
        failure: Exception | None = None
        try:
            self._runtime.sweep_statements()
        except Exception as error:
            failure = error
        for _ in range(len(self._abandoned)):
            abandoned = self._abandoned.popleft()
            try:
                abandoned._clean_up()
            except BaseException as error:  # or nobody would ever give it back
                self._abandoned.append(abandoned)
                if not isinstance(error, Exception):
                    raise
                failure = error
        if failure is not None:
            raise failure

    # ---- renewals ---------------------------------------------------------------

    def _take_due(self, now: float) -> list[Renewable]:
        """Take out those that are due now or soon: one request renews all of them."""
        due: list[Renewable] = []
        if self.doubted > self._verified:
            return self._all_doubtful(now)
        with self._mutex:
            heap = self._by_due
            if heap and heap[0][0] > now:
                return due  # woken to look at the clock: that is no reason to renew anything early
            # The time of a request that was under way is the store's: a server that hangs is no overloaded
            # machine.
            due_since = max(heap[0][0], self._waited_until) if heap and heap[0][2] in self._live else now
            while heap and heap[0][0] <= now + self._slack(heap[0][2], now):
                kept = heapq.heappop(heap)[2]
                if kept in self._live:
                    due.append(kept)
        if now - due_since > REPORTED_LAG_S:
            self._report_lag(now, now - due_since)
        return due

    def _report_lag(self, now: float, late: float) -> None:
        """Tell that renewals began late: not at each of them, if the keeper stays behind."""
        when, before = self._lag_reported
        if now - when >= LAG_REPORT_PERIOD_S or late > 2 * before:
            self._lag_reported = now, late
            self._report(events.KeeperLagged(late))

    def _report_failure(self, error: Exception) -> None:
        """Tell of an error that nobody expected: the same one not at each try, for it may come for hours."""
        when, before = self._failure_reported
        now, said = self._runtime.now(), repr(error)
        if now - when >= ERROR_REPORT_PERIOD_S or said != before:
            self._failure_reported = now, said
            self._report(events.KeeperFailed(said, error))

    def _all_doubtful(self, now: float) -> list[Renewable]:
        """Everything is due: the server that took over may not know what the one before it knew."""
        with self._mutex:
            self._absorb()
            self._verified = now
            self._by_due.clear()
            due = list(self._live)
        for kept in due:
            kept._on_no_reply()
        return due

    @staticmethod
    def _slack(kept: Renewable, now: float) -> float:
        """How much too early a renewal may be, so that many go in one request."""
        left = kept.deadline - now
        return max(0.0, left / 8) if left < NEVER else kept._leeway

    async def _renew(self, batch: list[Renewable]) -> None:
        asked = self._runtime.now()  # before the question: see Lease
        asking: list[tuple[Renewable, Renewal]] = []
        for kept in batch:
            kept._poll(asked)
            if kept._ended:
                self.drop(kept)  # or it would be due for ever, and we would never sleep again
                if self._session is not None and (left := self._session.left_behind(kept, asked)):
                    self.release_later(left)
            elif kept in self._live:
                if renewal := kept._renewal(asked):
                    asking.append((kept, renewal))
        if not asking:
            return
        patience = self._patience(asked, max(kept.deadline for kept, _ in asking))
        try:
            answers = await self._store.renew([renewal for _, renewal in asking], patience)
        except Exception as error:
            self._trip = max(self._trip, self._runtime.now() - asked)  # it takes longer than that
            known = isinstance(error, InterlockError)
            for kept, _ in asking:
                kept._on_no_reply(str(error) if known and not isinstance(error, StoreUnavailable) else "")
            if not known:
                self._report_failure(error)
        else:
            self._trip += ((self._runtime.now() - asked) - self._trip) / 4
            for (kept, _), answer in zip(asking, answers, strict=True):
                # The answer may come from the server before: another has taken over since.
                if asked < self.doubted:
                    kept._on_no_reply()
                else:
                    kept._on_reply(asked, answer)
        self._note_wait(asked + patience)
        self._pass_verdicts()

    def _note_wait(self, until: float) -> None:
        """Note up to when the keeper has waited for the store, but not beyond the time that it had for
        that.
        """
        self._waited_until = min(self._runtime.now(), until)

    def _patience(self, now: float, last: float) -> float:
        """How long a renewal may take: half the time to the first deadline, so that another try fits in.

        But not less than the store has lately needed: a lease shorter than that is lost anyway, and must not
        take the others with it. An answer after `last`, the last deadline of what is renewed, would save
        nothing, and the holders would be told late of what they have lost.
        """
        needed = min(MAX_TRIP_S, max(0.01, 2 * self._trip), last - now)
        with self._mutex:
            first = self._first_deadline()
        return max(needed, min(IO_TIMEOUT, (first - now) / 2))

    def _first_deadline(self) -> float:
        """The earliest deadline of all that is kept, under the mutex.

        One that has moved since is entered anew.
        """
        heap = self._by_deadline
        while heap:
            entered, _, kept = heap[0]
            if kept in self._live and kept.deadline == entered:
                return entered
            heapq.heappop(heap)
            if kept in self._live:
                heapq.heappush(heap, (kept.deadline, next(self._order), kept))
        return NEVER

    def _pass_verdicts(self) -> None:
        """Tell the holders of leases that have lapsed; a lease that is told drops itself."""
        now = self._runtime.now()
        while True:
            with self._mutex:
                # Both steps under one mutex: a drop between them would leave another entry at the front, or
                # none.
                if self._first_deadline() > now:
                    return
                kept = heapq.heappop(self._by_deadline)[2]
            kept._poll(now)

    # ---- pending releases ---------------------------------------------------------

    async def _release_pending(self) -> None:
        """Try the releases that are due, the least tried first, until a renewal is due.

        A part of the store that does not answer is asked once in a round, not once for each claim that stands
        there.
        """
        began = self._runtime.now()
        with self._mutex:  # others add to it
            due = [pending for pending in self._pending if pending.due <= began]
        due.sort(key=lambda pending: pending.tries)
        silent: dict[str, str] = {}
        for pending in due:
            now = self._runtime.now()
            with self._mutex:  # a holder that drops the last lease empties it
                left = (self._by_due[0][0] if self._by_due else NEVER) - now
            if left <= 0:
                return
            part = self._store.part(pending.resource)
            if part not in silent:
                patience = max(0.01, min(PENDING_TRY_S, left))
                try:
                    await self._store.release(pending.resource, pending.id, pending.linger(now), patience)
                # Also a store that became unfit: nothing may be in the way of the next.
                except Exception as error:
                    silent[part] = str(error)
                self._note_wait(now + patience)
                if part not in silent:
                    self._pending.pop(pending, None)
                    continue
            if not pending.put_off(self._runtime.now()):
                self._pending.pop(pending, None)
                self._report(events.CleanupFailed(pending.resource, silent[part]))

    async def _settle(self) -> None:
        """The client closes: try each pending release once more, or others would wait until its claim
        lapses.
        """
        try:
            self._clean_up()
        except Exception as error:
            self._report(events.KeeperFailed(repr(error), error))
        pending, self._pending = list(self._pending), {}
        silent: set[str] = set()
        for last in pending:
            part = self._store.part(last.resource)
            if part in silent:
                continue
            try:
                linger = last.linger(self._runtime.now())
                await self._store.release(last.resource, last.id, linger, LAST_TRY_S)
            except Exception as error:
                self._report(events.CleanupFailed(last.resource, str(error)))
                silent.add(part)  # it is away, and nobody has the time to ask it for each
