"""The reference store: the whole specification in a dictionary under a mutex.

A `Space` is what a server would keep. Any number of clients share it, each through a `MemoryStore` of its
own, sync or async. Every other store must behave as this one does, and the conformance suite compares them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interlock._core.admission import admitted, retry_after
from interlock._core.outline import outline
from interlock._core.runtime import Mutex, Runtime, Signal
from interlock.backends.kit.waiters import Waiters, notify
from interlock.errors import SettingsMismatch, Unreached
from interlock.model import (
    LINGERING,
    Busy,
    Claim,
    ClaimAnswer,
    Gone,
    Granted,
    Queue,
    Renewal,
    RenewAnswer,
    Renewed,
    Standing,
    Traits,
    Versioned,
)
from interlock.store import IO_TIMEOUT, Store, StoreDefaults

TRAITS = Traits(
    backend="memory",
    fair=True,
    shares="any",
    lapses="claim",
    wakes="signal",
    reach="process",
    survives="nothing",
    two_holders=("somebody evicts the holder",),
    min_ttl=0.01,
    max_ttl=365 * 86400.0,
    blocks=True,
)

SWEEP_PERIOD_S = 1.0  # seconds between looks at everything
REMEMBERED_S = 60.0  # seconds an eviction or a deleted register is remembered at least


@dataclass(slots=True, eq=False)
class _Row:
    """One claim as the store keeps it."""

    claim: Claim
    id: str  # of the claim; another one that nobody owns, once it only lingers
    token: int
    permits: int
    note: str
    came: float
    lapses: float
    admitted_at: float | None = None


@dataclass(slots=True)
class _Value:
    value: str | None
    version: int
    writer: str
    written: float


class Space:
    """What all clients share: queues, registers, evictions, and the signals of those who wait."""

    def __init__(
        self,
        now: Callable[[], float],
        mutex: Mutex,
        floor: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self.now = now
        self.mutex = mutex
        self.floor = (
            floor  # the least next token, from the wall clock: tokens go on rising after this memory is lost
        )
        self.last = 0
        self.swept = now()
        self.queues: dict[str, list[_Row]] = {}
        self.registers: dict[str, _Value] = {}
        self.evicted: dict[str, tuple[str, float]] = {}  # claim id: reason, until when it is remembered
        self.waiters: Waiters[str, Signal] = Waiters()  # for a claim by its id, a queue, or a register
        self.ring = self.waiters.wake

    def alone(self) -> Mutex:
        """The mutex, for a request. Its own thread may enter it again, but no request may.

        A finalizer or a signal handler can run between any two lines here. One that only looked would sweep
        away the claim that the interrupted request is entering just now, and another client would get in.
        """
        if self.mutex._is_owned():
            raise Unreached(
                "memory://: called from a finalizer or a signal handler that runs in the middle of another "
                "call to the same memory; nothing was done"
            )
        return self.mutex

    def next_number(self, block: int = 1) -> int:
        """Return the first of `block` numbers that nobody has had."""
        self.last = max(self.last + 1, self.floor())
        first = self.last
        self.last += block - 1
        return first

    # ---- queues: called under the mutex -------------------------------------

    def live(self, resource: str, now: float) -> list[_Row]:
        """Return the queue of a resource after removing lapsed claims. An empty queue is not kept."""
        queue = self.queues.get(resource)
        if queue is None:
            return []
        if any(row.lapses <= now for row in queue):
            queue[:] = [row for row in queue if row.lapses > now]
            self.settle(resource, queue, now)
        return queue

    def settle(self, resource: str, queue: list[_Row], now: float) -> None:
        """After a change, mark the claims that are admitted now, and wake them and all who watch the
        queue.
        """
        if not queue:
            self.queues.pop(resource, None)
        else:
            inside = admitted([row.permits for row in queue], queue[0].claim.capacity)
            for row in queue[:inside]:
                if row.admitted_at is None:
                    row.admitted_at = now
                    self.ring(row.id)
        self.ring(f"queue:{resource}")

    def remove(self, resource: str, queue: list[_Row], row: _Row, now: float) -> None:
        place = queue.index(row)
        del queue[place]
        self.ring(row.id)
        # Waiters behind it were told when it would lapse; the claim that they must watch now may lapse
        # sooner, so wake them. Nobody behind a claim with at least as many permits can have watched the
        # removed one.
        for behind in queue[place:]:
            self.ring(behind.id)
            if behind.permits >= row.permits:
                break
        self.settle(resource, queue, now)

    def after_fork(self, mutex: Mutex) -> None:
        self.mutex = mutex  # a new one: another thread of the parent may have been inside the old one
        self.queues.clear()
        self.waiters.topics.clear()

    def forget_old(self, now: float) -> None:
        """Drop old evictions, deleted registers, and lapsed claims on names that nobody uses any more."""
        if now < self.swept + SWEEP_PERIOD_S:
            return
        self.swept = now
        for id in [id for id, (_, until) in self.evicted.items() if until <= now]:
            del self.evicted[id]
        old = now - REMEMBERED_S
        for name in [n for n, v in self.registers.items() if v.value is None and v.written < old]:
            del self.registers[name]
        for resource in list(self.queues):
            self.live(resource, now)


class MemoryStore(StoreDefaults):
    """The `Store` of one client over a `Space`."""

    traits = TRAITS

    def __init__(self, space: Space, runtime: Runtime, blocking: Store | None = None) -> None:
        self._space = space
        self._runtime = runtime
        self._blocking = blocking
        self._listening: dict[Signal, None] = {}
        self._closed = False

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        space = self._space
        with space.alone():
            now = space.now()
            space.forget_old(now)
            if claim.id in space.evicted:
                return Gone(True, space.evicted[claim.id][0])
            queue = space.live(claim.resource, now)
            if queue and queue[0].claim.capacity != claim.capacity:
                raise SettingsMismatch(claim.resource, claim.capacity, queue[0].claim.capacity)
            place = next((i for i, row in enumerate(queue) if row.id == claim.id), len(queue))
            ahead = sum(row.permits for row in queue[:place])
            if place == len(queue):
                fits = ahead + claim.permits <= claim.capacity
                if not fits and not claim.queued:
                    return self._busy([*queue, self._row(claim, 0, now)], place, now)
                queue.append(self._row(claim, space.next_number(claim.block), now))
                space.queues[claim.resource] = queue
                space.ring(f"queue:{claim.resource}")
            row = queue[place]
            if ahead + row.permits <= claim.capacity:
                if row.admitted_at is None:
                    row.admitted_at = now
                row.lapses = max(row.lapses, now + claim.ttl)
                return Granted(row.token, claim.ttl)
            row.lapses = max(row.lapses, now + claim.place_ttl)
            return self._busy(queue, place, now)

    @staticmethod
    def _row(claim: Claim, token: int, now: float) -> _Row:
        return _Row(claim, claim.id, token, claim.permits, claim.note, now, now)

    @classmethod
    def _busy(cls, queue: list[_Row], place: int, now: float) -> Busy:
        permits = [row.permits for row in queue]
        lapses_in = [row.lapses - now for row in queue]
        holder = cls._standing(queue[0], now) if place else None
        return Busy(place, retry_after(permits, lapses_in, place, queue[place].claim.capacity), holder)

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        space = self._space

        def left() -> float:
            now = space.now()
            queue = space.live(claim.resource, now)
            place = next((i for i, row in enumerate(queue) if row.id == claim.id), None)
            if place is None or (busy is not None and queue[place].admitted_at is not None):
                return 0.0
            # The claim that it was told to watch may have left since, and another one lapses first: compute
            # it again.
            return timeout if busy is None else max(0.001, self._busy(queue, place, now).retry_after)

        await self._listen(claim.id, left, timeout)
        return None

    async def _listen(self, topic: str, left: Callable[[], float], timeout: float) -> None:
        """Wait until the topic rings. It looks once after it began to listen, so no change is missed.

        `left` returns the seconds for which nothing is expected to change; 0 if something has changed
        already.
        """
        space, signal = self._space, self._runtime.signal()
        with space.alone():
            space.waiters.add(signal, topic)
            self._listening[signal] = None
        try:
            with space.mutex:
                limit = 0.0 if self._closed else min(timeout, left())
            if limit > 0:
                await self._runtime.wait(signal, limit)
        finally:
            with space.mutex:
                space.waiters.remove(signal, topic)
                self._listening.pop(signal, None)

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        with self._space.alone():
            now = self._space.now()
            self._space.forget_old(now)
            return [self._renew(renewal, now) for renewal in renewals]

    def _renew(self, renewal: Renewal, now: float) -> RenewAnswer:
        space = self._space
        if renewal.id in space.evicted:
            return Gone(True, space.evicted[renewal.id][0])
        queue = space.live(renewal.resource, now)
        row = next((row for row in queue if row.id == renewal.id), None)
        if row is None or (row.admitted_at is None and not renewal.waiting):
            return Gone()
        row.lapses = max(row.lapses, now + renewal.ttl)
        if renewal.note is not None and renewal.note != row.note:
            row.note = renewal.note
            space.ring(f"queue:{renewal.resource}")
        if renewal.permits is not None and renewal.permits < row.permits:
            row.permits = renewal.permits
            space.settle(renewal.resource, queue, now)
        return Renewed(renewal.ttl)

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        space = self._space
        with space.alone():
            now = space.now()
            queue = space.live(resource, now)
            row = next((row for row in queue if row.id == id), None)
            if row is None:
                return False
            if linger > 0 and row.admitted_at is not None:
                row.id = f"{LINGERING}{row.token}"
                row.lapses = now + linger
                for other in queue:
                    space.ring(other.id)  # they were told a later lapse
                space.ring(id)  # its holder may wait for that, too
                space.ring(f"queue:{resource}")
            else:
                space.remove(resource, queue, row, now)
            return True

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        with self._space.alone():
            return self._queue(resource, limit)

    def _queue(self, resource: str, limit: int | None = None) -> Queue:
        now = self._space.now()
        queue = self._space.live(resource, now)
        capacity = queue[0].claim.capacity if queue else 0
        return Queue(resource, capacity, tuple(self._standing(row, now) for row in queue[:limit]))

    @staticmethod
    def _standing(row: _Row, now: float) -> Standing:
        since = row.came if row.admitted_at is None else row.admitted_at
        return Standing(
            id=row.id,
            token=row.token,
            permits=row.permits,
            admitted=row.admitted_at is not None,
            age=now - since,
            lapses_in=row.lapses - now,
            note=row.note,
            who=row.claim.who,
        )

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        with self._space.alone():
            now = self._space.now()
            names = sorted(n for n in self._space.queues if n.startswith(prefix) and n > after)
            return [name for name in names if self._space.live(name, now)][:limit]

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        space = self._space
        with space.alone():
            now = space.now()
            queue = space.live(resource, now)
            victims = [e for e in queue if (e.admitted_at is not None if id is None else e.id == id)]
            for row in victims:
                space.evicted[row.id] = (reason, now + max(REMEMBERED_S, row.claim.ttl))
            removed = [self._standing(row, now) for row in victims]
            for row in victims:
                space.remove(resource, queue, row, now)
            return removed

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        def left() -> float:
            return timeout if outline(self._queue(resource)) == outline(seen) else 0.0

        first_lapse = min((s.lapses_in for s in seen.standings), default=timeout)
        await self._listen(f"queue:{resource}", left, min(timeout, first_lapse))

    # ---- the register --------------------------------------------------------------

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        with self._space.alone():
            return self._read(name)

    def _read(self, name: str) -> Versioned:
        self._space.forget_old(self._space.now())
        value = self._space.registers.get(name)
        return Versioned(None, 0) if value is None else Versioned(value.value, value.version)

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        space = self._space
        with space.alone():
            now = space.now()
            space.forget_old(now)
            old = space.registers.get(name)
            if old is not None and old.writer == id:
                return Versioned(old.value, old.version)
            if (old.version if old is not None else 0) != version:
                return None
            new = _Value(value, space.next_number(), id, now)
            space.registers[name] = new
            space.ring(f"register:{name}")
            return Versioned(new.value, new.version)

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        def left() -> float:
            return timeout if self._read(name).version == version else 0.0

        await self._listen(f"register:{name}", left, timeout)

    # ---- housekeeping ------------------------------------------------------------------

    def inside(self) -> bool:
        return self._space.mutex._is_owned()

    def blocking(self) -> Store:
        return self if self._blocking is None else self._blocking

    async def close(self) -> None:
        """Wake everybody that waits here; claims stay, in the space."""
        with self._space.mutex:
            self._closed = True
            listening = list(self._listening)
        notify(listening)

    def after_fork(self) -> None:
        """Empty the child's copy of the memory: nobody holds anything in it."""
        self._listening.clear()
        self._space.after_fork(self._runtime.mutex())
