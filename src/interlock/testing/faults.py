"""A store that loses, repeats and delays what passes between it and its client.

    with a Link you can cut by hand          link.cut() ... link.heal()
    or with chances, decided by a seed       Link(Faults(lose_reply=0.05), random.Random(7))

A request travels on its own: when its sender gives up, is paused or dies, it still arrives, perhaps much
later. Requests of one client arrive in the order they were sent, as on one connection, but for those a fault
delays or repeats. Wraps any store, under any runtime, so a program can be tested against it as well as
interlock itself:

    link = Link()
    store = Faulty(store, runtime, link)
    link.cut()                              # from here on the store does not answer
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from interlock._core.runtime import Runtime, Signal
from interlock.errors import StoreUnavailable
from interlock.model import (
    Busy,
    Claim,
    ClaimAnswer,
    Examination,
    Granted,
    Queue,
    Renewal,
    RenewAnswer,
    Standing,
    Traits,
    Versioned,
)
from interlock.store import IO_TIMEOUT, Store

T = TypeVar("T")


class Breakdown(RuntimeError):
    """An error that no store should raise: it stands for a bug in the store, which the keeper must
    survive.
    """


@dataclass(frozen=True, slots=True)
class Faults:
    """The probability of each fault, per request, between 0 and 1."""

    lose_request: float = 0.0  # it never arrives
    lose_reply: float = 0.0  # it is applied, and nobody hears of it
    repeat: float = 0.0  # it arrives a second time, up to `long` seconds later
    delay: float = 0.0  # request or reply takes up to `long` seconds instead of `latency`
    deafen: float = 0.0  # a wait misses its wake-up and ends by its timeout
    break_down: float = 0.0  # a renewal raises `Breakdown`
    latency: float = 0.001
    long: float = 2.0
    timeout: float = IO_TIMEOUT  # seconds after which a request is given up, whatever its caller would wait


NONE = Faults()


@dataclass(slots=True)
class Link:
    """The way between one client and its store, and what happens on it."""

    faults: Faults = NONE
    random: random.Random = field(default_factory=random.Random)
    severed: bool = False
    stalled_until: float = 0.0  # on the carrier's clock: nothing moves before
    last: Signal | None = None  # set once the request that was sent last has arrived
    carrier: Runtime | None = None  # which carries that one

    def cut(self) -> None:
        """From now on nothing arrives, in either direction."""
        self.severed = True

    def heal(self) -> None:
        """From now on everything arrives, at once and once."""
        self.severed = False
        self.faults = Faults(latency=self.faults.latency, timeout=self.faults.timeout)

    def happens(self, chance: float) -> bool:
        return chance > 0.0 and self.random.random() < chance

    def flight(self, delayed: bool) -> float:
        """Seconds one direction takes."""
        return self.random.random() * (self.faults.long if delayed else self.faults.latency)


class _Letter(Generic[T]):
    """One request on its way, and the answer to it."""

    __slots__ = ("answer", "answered", "arrived", "behind", "call", "error")

    def __init__(self, call: Callable[[], Awaitable[T]], answered: Signal, arrived: Signal) -> None:
        self.call = call
        self.answered = answered
        self.arrived = arrived
        self.behind: Signal | None = None  # set once the one before has arrived
        self.answer: list[T] = []
        self.error: Exception | None = None


class Faulty:
    """A `Store` behind a link that fails.

    `carrier` runs what is on its way; None: the client's own runtime.
    """

    def __init__(self, store: Store, runtime: Runtime, link: Link, carrier: Runtime | None = None) -> None:
        self._store = store
        self._runtime = runtime
        self._carrier = carrier or runtime
        self.link = link

    @property
    def traits(self) -> Traits:
        return self._store.traits

    @property
    def decides_here(self) -> bool:
        return self._store.decides_here

    def claim_idle(self, claim: Claim) -> Granted | None:
        return self._store.claim_idle(claim) if self._idle() else None

    def release_alone(self, resource: str, id: str) -> bool:
        return self._idle() and self._store.release_alone(resource, id)

    def _idle(self) -> bool:
        """Whether a call that does not travel overtakes none that does, and is not cut off."""
        link = self.link
        under_way = link.last is not None and not link.last.is_set()
        return not (link.severed or under_way or link.happens(link.faults.lose_request))

    async def _ask(self, what: str, call: Callable[[], Awaitable[T]], timeout: float = IO_TIMEOUT) -> T:
        limit = min(timeout, self.link.faults.timeout)
        await self._runtime.sleep(
            0.0
        )  # an await before anything is sent: a caller that is cancelled here has sent nothing
        letter = _Letter(call, self._runtime.signal(), self._carrier.signal())
        if not self.link.happens(self.link.faults.lose_request):
            self._send(what, letter)
        if self.link.happens(self.link.faults.repeat):
            self._carrier.spawn(f"{what} again", partial(self._repeat, call))
        if not await self._runtime.wait(letter.answered, limit):
            raise StoreUnavailable(f"{what}: no answer in {limit:.3f} s")
        if letter.error is not None:
            raise letter.error
        return letter.answer[0]

    def _send(self, what: str, letter: _Letter[T]) -> None:
        delayed = self.link.happens(self.link.faults.delay)
        if not delayed:
            if self.link.carrier is self._carrier:  # another carrier has a connection of its own
                letter.behind = self.link.last
            self.link.last, self.link.carrier = letter.arrived, self._carrier
        self._carrier.spawn(what, partial(self._carry, letter, delayed))

    async def _carry(self, letter: _Letter[T], delayed: bool) -> None:
        """Bring a request to the store, and what the store says back."""
        await self._travel(delayed)
        if letter.behind is not None and not letter.behind.is_set():
            await self._carrier.wait(letter.behind, None)
        letter.behind = None
        letter.arrived.set()
        if self.link.severed:
            return
        try:
            letter.answer.append(await letter.call())
        except Exception as error:
            letter.error = error
        if self.link.happens(self.link.faults.lose_reply):
            return
        await self._travel(self.link.happens(self.link.faults.delay))
        if not self.link.severed:
            letter.answered.set()

    async def _repeat(self, call: Callable[[], Awaitable[object]]) -> None:
        await self._carrier.sleep(self.link.random.random() * self.link.faults.long)
        if not self.link.severed:
            try:
                await call()
            except Exception:
                pass  # nobody waits for this answer

    async def _travel(self, delayed: bool) -> None:
        await self._carrier.sleep(self.link.flight(delayed))
        while (stalled := self.link.stalled_until - self._carrier.now()) > 0:
            await self._carrier.sleep(stalled)

    async def _listen(self, what: str, wait: Callable[[], Awaitable[T]], timeout: float) -> T | None:
        """A wait: the store rings when there is something to see, and the ring may be lost."""
        if self.link.severed or self.link.happens(self.link.faults.deafen):
            await self._runtime.sleep(timeout)
            return None
        if self.link.happens(self.link.faults.lose_reply):
            await self._runtime.sleep(min(timeout, self.link.flight(delayed=False)))
            raise StoreUnavailable(f"{what}: the connection broke")
        return await wait()

    # ---- Store -----------------------------------------------------------------

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        return await self._ask("claim", lambda: self._store.claim(claim, timeout), timeout)

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        return await self._listen("wait", lambda: self._store.wait(claim, busy, timeout), timeout)

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        if self.link.happens(self.link.faults.break_down):
            raise Breakdown("a bug in the store")
        return await self._ask("renew", lambda: self._store.renew(renewals, timeout), timeout)

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        return await self._ask("release", lambda: self._store.release(resource, id, linger, timeout), timeout)

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        return await self._ask(
            "inspect", lambda: self._store.inspect(resource, timeout, limit=limit), timeout
        )

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        return await self._ask("scan", lambda: self._store.scan(prefix, after, limit))

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        asked = lambda: self._store.evict(resource, id, reason, foreign=foreign, no_expiry=no_expiry)  # noqa: E731
        return await self._ask("evict", asked)

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        await self._listen("watch", lambda: self._store.watch(resource, seen, timeout), timeout)

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        return await self._ask("read", lambda: self._store.read(name, timeout), timeout)

    async def confirm_read(self, name: str, version: int, timeout: float = IO_TIMEOUT) -> bool:
        return await self._store.confirm_read(name, version, timeout)

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        return await self._ask(
            "write", lambda: self._store.compare_and_set(name, version, value, id, timeout), timeout
        )

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        await self._listen("watch", lambda: self._store.watch_register(name, version, timeout), timeout)

    def on_doubt(self, call: Callable[[], None]) -> None:
        self._store.on_doubt(call)

    def on_session_lost(self, call: Callable[[Collection[str] | None], None]) -> None:
        self._store.on_session_lost(call)

    def on_session_shortened(self, call: Callable[[float, float], None]) -> None:
        self._store.on_session_shortened(call)

    def expect_ttl(self, ttl: float, *, at_most: bool) -> None:
        self._store.expect_ttl(ttl, at_most=at_most)

    async def examine(self, timeout: float = IO_TIMEOUT) -> Examination:
        return await self._store.examine(timeout)

    def part(self, resource: str) -> str:
        return self._store.part(resource)

    def inside(self) -> bool:
        return self._store.inside()

    def liveness_byte(self) -> tuple[str, int] | None:
        return self._store.liveness_byte()

    def blocking(self) -> Store:
        """The same link for a plain thread; itself where the store already is one for it."""
        blocking = self._store.blocking()
        if blocking is self._store:
            return self
        from interlock._runtime.threads import Threads  # here: only a program with an event loop needs it

        return Faulty(blocking, Threads(), self.link)

    def for_keeper(self) -> Store:
        kept = self._store.for_keeper()
        return self if kept is self._store else Faulty(kept, self._runtime, self.link, self._carrier)

    def after_fork(self) -> None:
        self._store.after_fork()

    async def close(self) -> None:
        await self._store.close()
