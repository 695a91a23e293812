"""What all suites share: a test is a coroutine, run under one face on one fresh place."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import Any, ClassVar
from unittest import SkipTest
from uuid import uuid4

from interlock._core.runtime import Runtime
from interlock.errors import StoreUnavailable
from interlock.model import Queue, Traits
from interlock.store import Store
from interlock.testing.conformance.face import PATIENCE, Actor, Face, Main, SyncFace, got, until
from interlock.testing.conformance.factory import StoreFactory
from interlock.testing.lag import Lag, stretched


class Clocked:
    """Asks questions of a store that take no time on a quiet machine, and notes how long the slowest
    answer took.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.slowest = 0.0

    async def __call__(self, question: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The answer; None if the store did not answer in time, which is a slow answer and no verdict."""
        began = self._runtime.now()
        try:
            return await question()
        except StoreUnavailable:
            return None
        finally:
            self.slowest = max(self.slowest, self._runtime.now() - began)


class Suite:
    """Tests of one subject. `suites` makes a class of it for each face; any test runner can collect that.

    After each test everything it opened is closed, and nothing may be left in the store: a claim that
    stays behind fails the test that left it.
    """

    stores: ClassVar[StoreFactory]
    face: ClassVar[Face]
    wanted: ClassVar[dict[str, object]] = {}  # traits that all of its tests need

    place: str
    name: str  # a resource nobody else uses
    runtime: Runtime
    _traits: Traits | None = None

    def __init_subclass__(cls) -> None:
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and iscoroutinefunction(test):
                setattr(cls, name, _runnable(test))

    async def _within(self, test: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        self.place = self.stores.fresh()
        self.name = f"resource-{uuid4().hex[:8]}"
        self.runtime = self.face.runtime()
        self._opened: list[Any] = []
        self._short = stretched(0.2)
        self.prepare()
        try:
            if self.wanted:
                self.needs(**self.wanted)
            await test(self)
        finally:
            await self.tidy()
            for opened in reversed(self._opened):
                await got(opened.close())
        await self._nothing_is_left()

    async def _nothing_is_left(self) -> None:
        store = self.stores.open(self.place, self.runtime, self.face.asynchronous)
        try:
            names: list[str] = []

            async def empty() -> bool:
                names[:] = await store.scan("", "", 100)
                return not names

            try:
                await until(self.runtime, empty, 30.0)
            except AssertionError:
                raise AssertionError(f"left behind in the store: {names}") from None
        finally:
            await store.close()

    def prepare(self) -> None:
        """Make what each test of a suite needs; test runners want no constructor."""

    async def tidy(self) -> None:
        """Take away what a test leaves on purpose."""

    # ---- what tests use --------------------------------------------------------

    def client(self, **options: Any) -> Any:
        """A client of this suite's face; closed after the test. Options as of `Face.client`."""
        client = self.face.client(self.stores, self.place, **options)
        self._opened.append(client)
        return client

    def store(self) -> Store:
        """A store as a client of this face uses it; closed after the test."""
        store = self.stores.open(self.place, self.runtime, self.face.asynchronous)
        self._opened.append(store)
        return store

    @property
    def traits(self) -> Traits:
        if self._traits is None:
            self._traits = self.store().traits
        return self._traits

    @property
    def short(self) -> float:
        """A ttl that a test can wait for; one and the same throughout a test, longer on a busy machine."""
        return max(self._short, self.traits.min_ttl)

    def needs(self, **wanted: object) -> None:
        """Skip the test, and say why, unless the store's traits are as wanted (one of a tuple)."""
        traits = self.traits
        for name, value in wanted.items():
            have = getattr(traits, name)
            if have not in (value if isinstance(value, tuple) else (value,)):
                raise SkipTest(f"{traits.backend}: its trait {name} is {have!r}, this needs {value!r}")

    def crash(self, store: Store) -> None:
        """End a store's session as a crash of its client does; where claims lapse by themselves, waiting
        is enough.
        """
        if self.traits.lapses == "session":
            assert self.stores.abandon is not None, "the factory of a session store says how to abandon one"
            self.stores.abandon(store)

    def spawn(self, main: Main) -> Actor:
        """Run a coroutine function beside the test, on a thread or as a task."""
        return self.face.spawn(main)

    async def until(self, fact: Callable[[], object], patience: float = PATIENCE) -> Any:
        return await until(self.runtime, fact, patience)

    async def with_a_ttl_that_the_machine_can_keep(
        self, kept: Callable[[float, Clocked], Coroutine[Any, Any, bool]]
    ) -> None:
        """Run a test of renewals, `kept(ttl, clocked)`, and again with a longer ttl where the machine was too
        slow for it.

        A machine that does not run the keeper for half a ttl costs any lease, and so does a server that takes
        as long for an answer: servers that others have started are not in `Lag`, so they are clocked.
        """
        for ttl in (2 * self.short, 6 * self.short, 20 * self.short):
            clocked = Clocked(self.runtime)
            with Lag() as lag:
                if await kept(ttl, clocked):
                    return
            assert lag.seconds + clocked.slowest > ttl / 2, (
                f"a ttl of {ttl:.1f} s was not renewed; the lag was {lag.seconds:.2f} s, "
                f"and the slowest answer took {clocked.slowest:.2f} s"
            )
        raise SkipTest("the machine was too slow for every ttl: nothing was shown")

    async def queue(self, client: Any, name: str = "") -> Queue:
        queue: Queue = await got(client.inspect(name or self.name))
        return queue

    async def standing(self, client: Any, holders: int, waiters: int, name: str = "") -> Queue:
        """The queue once so many hold and so many wait."""

        async def so() -> Queue | None:
            queue = await self.queue(client, name)
            return queue if (len(queue.holders), len(queue.waiters)) == (holders, waiters) else None

        found: Queue = await self.until(so)
        return found

    async def keeps_min_hold(self, make: Callable[[Any, float], Any], capacity: int) -> None:
        """Check that waiters which come in one after the other keep a `min_hold` each, however long they have
        waited.

        `make(client, min_hold)` makes a lock of this capacity. All waiters stand in the queue before the
        first of them comes in, for longer than `min_hold`. The one clock is the test's own, and lag cannot
        hurt: a waiter that is late comes in later, not earlier.
        """
        min_hold, turns, see = 2 * self.short, 3, self.client()
        holding = [make(see, min_hold) for _ in range(capacity)]
        for held in holding:
            await got(held.acquire())
        clients = [self.client() for _ in range(2)]
        came_in = list[float]()

        async def enter(number: int) -> None:
            lock = make(clients[number % 2], min_hold)
            assert await got(lock.acquire(timeout=PATIENCE))
            came_in.append(self.runtime.now())
            await got(lock.release())

        waiters = [self.spawn(partial(enter, number)) for number in range(turns * capacity)]
        if self.traits.fair:
            await self.standing(see, holders=capacity, waiters=len(waiters))
        await self.runtime.sleep(1.5 * min_hold)
        began = self.runtime.now()
        for held in holding:
            await got(held.release())
        for waiter in waiters:
            await waiter.result()
        for turn in range(1, turns):
            after = sorted(came_in)[turn * capacity] - began
            assert after >= turn * min_hold * 0.95, (
                f"turn {turn} came in after {after:.2f} s, with a min_hold of {min_hold:.2f} s"
            )


def _runnable(test: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    @wraps(test)
    def run(self: Suite) -> None:
        self.face.run(lambda: self._within(test))

    del run.__wrapped__  # a runner that looks behind it would await it
    return run


def faces() -> list[Face]:
    from interlock.testing.conformance.loop import AsyncFace

    return [SyncFace(), AsyncFace()]
