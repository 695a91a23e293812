"""Reentry: a count per owner, kept locally; the same lease and token again, and no round trip.

An rlock counts writes only. A read-write lock counts both on one lease, which makes the rules few:
a writer may read (the lease stays a writer's until the last write is given back, then shrinks to a
reader's: that is the downgrade), a reader may read again, and a reader may not write: two readers
that both want to would wait for each other for ever.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Literal

from interlock._core import timing
from interlock._core.attempt import Attempt
from interlock._core.holding import Holding
from interlock._core.lease import Lease
from interlock._core.removal import FOR_EVER
from interlock._core.runtime import Owner
from interlock._core.states import FINAL, State
from interlock.errors import InterlockError, NotHeld, WouldDeadlock

Mode = Literal["read", "write"]


class Entry:
    """The lease that one owner holds on one resource, and how often the owner has entered."""

    __slots__ = ("away", "lease", "over", "reads", "writes")

    def __init__(self, lease: Lease, reads: int = 0, writes: int = 0) -> None:
        self.lease = lease
        self.over = False  # nobody enters it again: the lease is being given back, by the keeper perhaps
        self.away = False  # given back for the time of a condition's wait
        self.reads = reads
        self.writes = writes

    def count(self, mode: Mode) -> int:
        return self.reads if mode == "read" else self.writes

    def add(self, mode: Mode, step: int) -> None:
        if mode == "read":
            self.reads += step
        else:
            self.writes += step

    @property
    def total(self) -> int:
        return self.reads + self.writes


class Reentrant:
    """One way into a resource, read or write, that its owner may enter again."""

    def __init__(self, holding: Holding, mode: Mode = "write") -> None:
        self.holding = holding
        self.client = holding.client
        self.resource = holding.resource
        self.mode: Mode = mode
        self._key = f"{holding.terms.capacity}:{holding.resource}"
        if holding.terms.capacity == 1:
            holding.word = "rlock"

    def renamed(self, resource: str) -> Reentrant:
        """As `Holding.renamed`."""
        return Reentrant(self.holding.renamed(resource), self.mode)

    # An owner is given where a task that asyncio made asks on behalf of its maker; None stands for the
    # caller.

    def entry(self, owner: Owner | None = None) -> Entry | None:
        """The owner's entry, or None. A lease that it released by hand is forgotten here."""
        owner = owner or self.client.runtime.owner()
        entry = self.client.entries.get(owner, {}).get(self._key)
        if entry is not None and (entry.over or entry.lease._state is State.RELEASED):
            self.forget(owner)
            return None
        return entry

    def remember(self, entry: Entry, owner: Owner) -> None:
        self.client.entries.setdefault(owner, {})[self._key] = entry

    def forget(self, owner: Owner, entry: Entry | None = None) -> None:
        """Forget the owner's entry; given one, only if it is that."""
        entries = self.client.entries.get(owner, {})
        if entry is None or entries.get(self._key) is entry:
            entries.pop(self._key, None)
        if not entries:
            self.client.entries.pop(owner, None)

    def attempt(
        self, blocking: bool = True, timeout: float | None = None, owner: Owner | None = None
    ) -> ReentrantAttempt:
        attempt = self.holding.attempt(blocking, timeout, owner=owner)  # checks the arguments on re-entry too
        owner = attempt.owner
        entry = self.entry(owner)
        if entry is not None and entry.lease.state is State.LOST:
            if entry.lease._loss_raised:  # its owner knows that it holds nothing, and begins anew
                self.forget(owner)
                entry = None
        elif entry is not None and self.mode == "write" and not entry.writes:
            raise WouldDeadlock(
                f"{self.resource}: a reader cannot become a writer while it reads; "
                "release the read lock first, or take the write lock from the start"
            )
        return ReentrantAttempt(self, attempt, entry, owner)

    def depth(self) -> int:
        entry = self.entry()
        return 0 if entry is None else entry.count(self.mode)

    def owned(self, owner: Owner | None = None) -> bool:
        entry = self.entry(owner)
        return (
            entry is not None
            and entry.count(self.mode) > 0
            and entry.lease.state in (State.HELD, State.DOUBTFUL)
        )

    def held(self) -> bool:
        return self.holding.held()

    async def locked(self) -> bool:
        return await self.holding.locked()

    def release(self) -> Coroutine[Any, Any, None]:
        """Go out once, for the caller, whoever awaits it; the outermost exit gives the lease back."""
        return self._release_of(self.client.runtime.owner())

    async def _release_of(self, owner: Owner) -> None:
        entry = self.entry(owner)
        if entry is None or not entry.count(self.mode):
            raise NotHeld(f"{self.resource}: cannot release a lock that the caller does not hold")
        await self._exit_once(entry, owner)

    async def _exit_once(
        self, entry: Entry, owner: Owner, attempt: ReentrantAttempt | None = None, left: float = FOR_EVER
    ) -> None:
        """Count one less; `attempt` is that of a `with` statement. The last one out gives the lease back."""
        last = False
        try:
            # A generator's body may end on another thread, while the owner enters again.
            with self.client.mutex:
                last = entry.total <= 1
                if last:
                    entry.over = True
                else:
                    if self.mode == "read":
                        entry.reads -= 1
                    else:
                        entry.writes -= 1
                    # No call since the count: an interrupt strikes before both or after.
                    if attempt is not None:
                        attempt.counted = False
            if last:
                await entry.lease._give_back(strict=attempt is None, left=left)
            # One that is pinned stays exclusive: see `Lease._pin`.
            elif self.mode == "write" and not entry.writes and not entry.lease._pinned:
                await entry.lease._shrink(1, timing.patience(left))
        except RecursionError:  # it may strike below as well: whoever asks again must find the entry
            entry.over = entry.away = False
            raise
        finally:
            if last:
                self._forget_if_over(entry, owner)

    def _forget_if_over(self, entry: Entry, owner: Owner) -> None:
        """Forget an entry that was given back; if an interrupt prevented that, keep it: nobody could
        release it again.
        """
        if entry.lease._state in FINAL or self.client.inside():  # or the keeper gives it back
            self.forget(owner, entry)
        else:
            entry.over = entry.away = False

    def enter(self, attempt: ReentrantAttempt) -> None:
        """A `with` body begins; the count has it already."""

    def exit(self) -> ReentrantAttempt | None:
        """The attempt of the caller's `with` body that is ended by hand."""
        owner = self.client.runtime.owner()
        entry = self.entry(owner)
        return None if entry is None else ReentrantAttempt(self, None, entry, owner)

    async def leave(self, attempt: ReentrantAttempt, error: BaseException | None) -> None:
        """The end of a `with`: go out once, and never mask the body's own exception.

        Out of what this statement entered, whoever ends it: the body of a generator may end on any thread.
        """
        entry = attempt.entry
        if entry is not None and entry.away:
            attempt.uncount()
        if entry is None:
            return
        try:
            if entry.over or entry.lease._state is State.RELEASED:
                entry.lease._check_taker()
                return
            if not entry.count(self.mode):
                raise NotHeld(f"{self.resource}: cannot release a lock that the caller does not hold")
            await self._exit_once(entry, attempt.owner, attempt, timing.time_for(error))
        except Exception as failure:  # a loss; or a store that became unfit
            if error is None:
                raise
            error.add_note(f"and meanwhile: {failure}")

    # ---- for conditions: out altogether, and back in as deep as before ------------

    async def release_save(self, owner: Owner | None = None) -> Entry:
        owner = owner or self.client.runtime.owner()
        entry = self.entry(owner)
        if entry is None:
            raise NotHeld(f"{self.resource}: cannot release a lock that the caller does not hold")
        try:
            entry.over = entry.away = True
            await entry.lease._give_back()
        finally:
            self._forget_if_over(entry, owner)
        return entry

    async def acquire_restore(self, saved: Entry, owner: Owner | None = None) -> None:
        attempt = self.holding.attempt(owner=owner)
        owner = attempt.owner
        try:
            lease = await attempt.acquire_or_raise()
            saved.lease = lease  # the same entry: `with` statements over it count on it
            saved.over = saved.away = False
            if saved.total > 0:
                self.remember(saved, owner)
            else:  # the statements are over: the waiter was called away for good, and nobody would release it
                await attempt.undo()
        except BaseException:  # held but not remembered, the next try would wait for it for ever
            await attempt.undo()
            raise

    def surely_owned(self, owner: Owner | None = None) -> bool:
        return self.owned(owner)


class ReentrantAttempt:
    """As `Attempt`; where the caller is already inside, it only counts."""

    __slots__ = ("_attempt", "_first", "_reentrant", "counted", "entry", "owner")

    def __init__(
        self, reentrant: Reentrant, attempt: Attempt | None, entry: Entry | None, owner: Owner
    ) -> None:
        self._reentrant = reentrant
        self._attempt = attempt  # None for an attempt that ends by hand the statement that another began
        self.entry = entry
        self.owner = owner
        self._first = entry is None
        self.counted = False  # this attempt is one of those the entry counts

    @property
    def lease(self) -> Lease | None:
        return None if self.entry is None else self.entry.lease

    @property
    def runner(self) -> Owner | None:
        """The thread or task that waits for the lease."""
        return None if self._attempt is None else self._attempt.runner

    def at_once(self) -> Lease | None:
        """None: `run` sees to it."""
        return None

    async def run(self) -> Lease | None:
        mode = self._reentrant.mode
        if self.entry is None:
            assert self._attempt is not None
            lease = await self._attempt.run()
            if lease is None:
                return None
            self.entry = Entry(lease, int(mode == "read"), int(mode == "write"))
            self.counted = True
            self._reentrant.remember(self.entry, self.owner)
            return lease
        return self._enter_again(self.entry) or await self._begin_anew()

    def _enter_again(self, entry: Entry) -> Lease | None:
        """Count once more; None if the lease was given back since, by a body that ended on another thread, or
        was adopted by another.
        """
        if entry.lease.state is State.LOST:
            entry.lease.check()  # a lease that was lost meanwhile is not entered again
        with self._reentrant.client.mutex:
            if entry.over or entry.lease._state is State.RELEASED or entry.lease._owner is not self.owner:
                return None
            if self._reentrant.mode == "read":
                entry.reads += 1
            else:
                entry.writes += 1
            self.counted = True  # no call since the count: an interrupt strikes before both or after both
        return entry.lease

    async def _begin_anew(self) -> Lease | None:
        self.entry, self._first = None, True
        return await self.run()

    async def undo(self) -> None:
        if not self._first:
            self.uncount()
        else:
            self.counted = False
            assert self._attempt is not None
            await self._attempt.undo()
            if self.entry is not None:
                self._reentrant.forget(self.owner, self.entry)

    def uncount(self) -> None:
        entry = self.entry
        with self._reentrant.client.mutex:
            if self.counted and entry is not None:
                if self._reentrant.mode == "read":
                    entry.reads -= 1
                else:
                    entry.writes -= 1
                self.counted = False

    def _abandon(self) -> None:
        """As `Attempt._abandon`: go out once, if that was not done."""
        entry = self.entry
        if entry is None:
            if self._attempt is not None:
                self._attempt._abandon()
        elif self.counted:
            self.uncount()
            if entry.total <= 0:
                entry.over = True
                entry.lease._abandon()

    async def timed_out(self) -> InterlockError:
        assert self._attempt is not None
        return await self._attempt.timed_out()
