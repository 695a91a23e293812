"""Reentry: a count per owner, kept locally; the same lease and token again, and no round trip.

An rlock counts writes only. A read-write lock counts both on one lease, which makes the rules few:
a writer may read (the lease stays a writer's until the last write is given back, then shrinks to a
reader's: that is the downgrade), a reader may read again, and a reader may not write: two readers
that both want to would wait for each other for ever.
"""

from __future__ import annotations

from typing import Literal

from interlock._core.attempt import Attempt
from interlock._core.holding import Holding
from interlock._core.lease import Lease
from interlock._core.states import FINAL, State
from interlock.errors import NotHeld, WouldDeadlock

Mode = Literal["read", "write"]


class Entry:
    """What one owner holds of one resource, however often it entered."""

    __slots__ = ("lease", "reads", "writes")

    def __init__(self, lease: Lease, reads: int = 0, writes: int = 0) -> None:
        self.lease = lease
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
        self._key = f"{holding.capacity}:{holding.resource}"

    def entry(self) -> Entry | None:
        """What the caller holds. A lease it released by hand is forgotten here."""
        owner = self.client.runtime.owner()
        entry = self.client.entries.get(owner, {}).get(self._key)
        if entry is not None and entry.lease._state is State.RELEASED:
            self.forget()
            return None
        return entry

    def remember(self, entry: Entry) -> None:
        self.client.entries.setdefault(self.client.runtime.owner(), {})[self._key] = entry

    def forget(self) -> None:
        owner = self.client.runtime.owner()
        entries = self.client.entries.get(owner, {})
        entries.pop(self._key, None)
        if not entries:
            self.client.entries.pop(owner, None)

    def attempt(self, blocking: bool = True, timeout: float | None = None) -> ReentrantAttempt:
        attempt = self.holding.attempt(blocking, timeout)  # checks the arguments on re-entry too
        entry = self.entry()
        if entry is not None and self.mode == "write" and not entry.writes:
            raise WouldDeadlock(
                f"{self.resource}: a reader cannot become a writer while it reads; "
                "release the read lock first, or take the write lock from the start"
            )
        return ReentrantAttempt(self, attempt, entry)

    def depth(self) -> int:
        entry = self.entry()
        return 0 if entry is None else entry.count(self.mode)

    def owned(self) -> bool:
        entry = self.entry()
        return (
            entry is not None
            and entry.count(self.mode) > 0
            and entry.lease.state in (State.HELD, State.DOUBTFUL)
        )

    def held(self) -> bool:
        return self.holding.held()

    async def locked(self) -> bool:
        return await self.holding.locked()

    async def release(self, *, strict: bool = True) -> None:
        """Go out once; the outermost exit gives the lease back."""
        entry = self.entry()
        if entry is None or not entry.count(self.mode):
            raise NotHeld(f"{self.resource}: cannot release a lock that the caller does not hold")
        holding = entry.lease._holding
        if entry.total == 1:
            try:
                await holding.give_back(entry.lease, strict=strict)
            finally:
                self._forget_if_over(entry)
            return
        entry.add(self.mode, -1)
        if self.mode == "write" and not entry.writes:
            await holding.shrink(entry.lease, 1)

    def _forget_if_over(self, entry: Entry) -> None:
        """Forget what was given back; not what an interrupt kept from it: nobody could release it again."""
        if entry.lease._state in FINAL:
            self.forget()

    def enter(self, lease: Lease) -> None:
        """A `with` body begins; the count has it already."""

    def exit(self) -> Lease | None:
        """What the caller's `with` body ran under."""
        entry = self.entry()
        return None if entry is None else entry.lease

    async def leave(self, lease: Lease, error: BaseException | None) -> None:
        """The end of a `with`: go out once, and never mask the body's own exception."""
        if lease._state is State.RELEASED:
            return
        try:
            await self.release(strict=False)
        except Exception as failure:  # a loss; or a store that became unfit
            if error is None:
                raise
            error.add_note(f"and meanwhile: {failure}")

    # ---- for conditions: out altogether, and back in as deep as before ------------

    def depth_of_all(self) -> Entry:
        entry = self.entry()
        if entry is None:
            raise NotHeld(f"{self.resource}: cannot release a lock that the caller does not hold")
        return entry

    async def release_save(self) -> tuple[int, int]:
        entry = self.depth_of_all()
        try:
            await entry.lease._holding.give_back(entry.lease)
        finally:
            self._forget_if_over(entry)
        return entry.reads, entry.writes

    async def acquire_restore(self, saved: tuple[int, int]) -> None:
        attempt = self.holding.attempt()
        try:
            lease = await attempt.demand()
            self.remember(Entry(lease, *saved))
        except BaseException:  # held but not remembered, the next try would wait for it for ever
            await attempt.undo()
            raise

    def surely_owned(self) -> bool:
        return self.owned()


class ReentrantAttempt:
    """As `holding.Attempt`; where the caller is already inside, it only counts."""

    __slots__ = ("_again", "_attempt", "_entry", "_first", "_reentrant")

    def __init__(self, reentrant: Reentrant, attempt: Attempt, entry: Entry | None) -> None:
        self._reentrant = reentrant
        self._attempt = attempt
        self._entry = entry
        self._first = entry is None
        self._again = False  # counted once more

    async def run(self) -> Lease | None:
        if self._entry is None:
            lease = await self._attempt.run()
            if lease is None:
                return None
            mode = self._reentrant.mode
            self._entry = Entry(lease, int(mode == "read"), int(mode == "write"))
            self._reentrant.remember(self._entry)
            return lease
        self._entry.lease.check()  # nobody enters again what was lost meanwhile
        self._entry.add(self._reentrant.mode, 1)
        self._again = True
        return self._entry.lease

    async def undo(self) -> None:
        if self._again:
            self._again = False
            assert self._entry is not None
            self._entry.add(self._reentrant.mode, -1)
        elif self._first:
            await self._attempt.undo()
            self._reentrant.forget()

    async def demand(self) -> Lease:
        lease = await self.run()
        if lease is None:
            raise await self._attempt.timed_out()
        return lease
