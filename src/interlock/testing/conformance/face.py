"""The two ways to call interlock, so that a test is written once: `async def`, for threads and for tasks.

Under the sync face a test is stepped on the caller's own thread, as interlock's own algorithms are: what it
awaits has happened already. What runs beside it is a thread there and a task here.

    lease = await got(lock.acquire(timeout=1))      # a lease, or an awaitable of one
    async with within(lock) as lease: ...           # `with`, or `async with`
    async for queue in each(client.watch(name)): ...
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, Protocol, TypeVar

from interlock import blocking, events
from interlock._core.client import Client as CoreClient
from interlock._core.drive import drive
from interlock._core.lease import Lease
from interlock._core.runtime import Runtime
from interlock._runtime import lifetimes
from interlock._runtime.threads import Threads, blocking_runtime
from interlock._support.log import callback_reporter
from interlock.model import Claim, Granted
from interlock.store import Store
from interlock.testing.conformance.factory import StoreFactory

PATIENCE = 60.0  # seconds after which a fact that was waited for counts as missing; a busy machine is slow

E = TypeVar("E", bound=BaseException)
Main = Callable[[], Coroutine[Any, Any, Any]]
Listener = Callable[[events.Event], object]
Report = Callable[[BaseException, Any], object]
Wrap = Callable[[Store, Runtime], Store]


class Actor(Protocol):
    """Something that runs beside the test."""

    def ended(self) -> bool: ...
    async def result(self) -> Any:
        """What it returned; raises what it raised, or AssertionError if it does not end in time."""
        ...


class Face(Protocol):
    """One of the two faces of interlock, and how a test runs under it."""

    name: str
    asynchronous: bool
    client_type: Callable[[CoreClient], Any]
    lease_type: type[Lease]

    def run(self, main: Main) -> None:
        """Run a test from end to end."""
        ...

    def runtime(self, report: Report | None = None) -> Runtime: ...
    def spawn(self, main: Main) -> Actor: ...
    def client(
        self,
        stores: StoreFactory,
        place: str,
        *,
        ttl: float = 30.0,
        listener: Listener | None = None,
        wrap: Wrap | None = None,
    ) -> Any:
        """A client of this face, connected to a place; `wrap` may put something before its store."""
        listen = listener or ignore

        report = callback_reporter(listen)
        runtime = self.runtime(report)
        store = stores.open(place, runtime, self.asynchronous)
        store = wrap(store, runtime) if wrap else store
        keeping = runtime.for_keeper() if isinstance(runtime, Threads) else Threads(report)
        core = CoreClient(store, runtime, keeping, ttl=ttl, listener=listen, lease_type=self.lease_type)
        lifetimes.follow(core)
        return self.client_type(core)


class ThreadActor:
    """A coroutine on a thread of its own."""

    def __init__(self, main: Main) -> None:
        self._main = main
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="actor", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = drive(self._main())
        except BaseException as error:
            self._error = error

    def ended(self) -> bool:
        return not self._thread.is_alive()

    async def result(self) -> Any:
        self._thread.join(PATIENCE)
        assert self.ended(), "it does not end"
        if self._error is not None:
            raise self._error
        return self._result


class SyncFace(Face):
    """`interlock`, on threads."""

    name = "sync"
    asynchronous = False
    client_type = blocking.Client
    lease_type = blocking.Lease

    def run(self, main: Main) -> None:
        drive(main())

    def runtime(self, report: Report | None = None) -> Runtime:
        return blocking_runtime(report)

    def spawn(self, main: Main) -> Actor:
        return ThreadActor(main)


def ignore(event: events.Event) -> None:
    """Listens to nothing."""


async def got(answer: Any) -> Any:
    """What a call of either face answers."""
    return await answer if isawaitable(answer) else answer


async def ask(thing: Any, name: str) -> Any:
    """What a property of the sync face, or the coroutine method in its place, says."""
    value = getattr(thing, name)
    return await got(value() if callable(value) else value)


@asynccontextmanager
async def within(thing: Any) -> AsyncIterator[Any]:
    """`with thing`, or `async with thing` where the face has that."""
    if hasattr(thing, "__aenter__"):
        async with thing as entered:
            yield entered
    else:
        with thing as entered:
            yield entered


async def each(iterator: Any) -> AsyncIterator[Any]:
    """`for`, or `async for` where the face has that."""
    if hasattr(iterator, "__aiter__"):
        async for item in iterator:
            yield item
    else:
        for item in iterator:
            yield item


async def first(iterator: Any, count: int) -> list[Any]:
    """The first `count` items; the iterator is closed after them."""
    items: list[Any] = []
    async for item in each(iterator):
        items.append(item)
        if len(items) == count:
            break
    if hasattr(iterator, "aclose"):
        await iterator.aclose()
    return items


async def until(runtime: Runtime, fact: Callable[[], object], patience: float = PATIENCE) -> Any:
    """What `fact()` says (or awaits) once that is true; AssertionError if it does not come true in time."""
    end = runtime.now() + patience
    while True:
        found: Any = await got(fact())
        if found:
            return found
        assert runtime.now() < end, f"not so within {patience:g} s: {getattr(fact, '__qualname__', fact)}"
        await runtime.sleep(0.002)


async def refused(kind: type[E], call: Callable[[], Any]) -> E:
    """The error of this kind that a call of either face raises; AssertionError if it does not."""
    try:
        answer = await got(call())
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised; the answer was {answer!r}")


def noted(store: Any) -> list[str]:
    """The watches that a client's store is asked for, from now on: the caller has read what it waits for
    to change.
    """
    asked: list[str] = []

    def noting(name: str) -> None:
        watch = getattr(store, name)

        def call(*args: Any) -> Any:
            asked.append(name)
            return watch(*args)

        setattr(store, name, call)

    for name in ("watch", "watch_register"):
        noting(name)
    return asked


def forge_grants(store: Any) -> None:
    """Tell whoever waits at this store that it holds, as an unconfirmed message does."""

    async def wait(claim: Claim, *_: Any) -> Granted:
        (standing,) = [one for one in (await store.inspect(claim.resource)).waiters if one.id == claim.id]
        return Granted(standing.token, claim.place_ttl, unconfirmed=True)

    store.wait = wait
