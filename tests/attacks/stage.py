"""What attacks share: facts to wait for, and a store whose answers the test decides."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any, cast
from uuid import uuid4

import interlock
from interlock import aio, events
from interlock._core.client import Client as CoreClient
from interlock._runtime import lifetimes
from interlock._runtime.tasks import Tasks
from interlock._runtime.threads import Threads
from interlock.backends.memory import MemoryStore, Space
from interlock.blocking import Lease
from interlock.store import Store
from tests.patience import PATIENCE, until

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(interlock.__file__))}
"""For programs of ours: they use the interlock that is being tested, installed or not."""

Answer = Callable[..., Awaitable[Any]]


def eventually(fact: Callable[[], object], within: float = PATIENCE) -> None:
    """Wait for a fact, and fail if it does not come true."""
    until(fact, within)


class Directed:
    """A store that does what the test says instead of what it was asked: `store.before["renew"] = raises`.

    What stands in `before[name]` is called with the call's arguments, and may raise; the call follows, and then
    what stands in `after[name]`: to raise there is to lose the reply.
    """

    def __init__(self, store: MemoryStore) -> None:
        self.inner = store
        self.plain: Directed | None = None
        self.before: dict[str, Callable[..., object]] = {}
        self.after: dict[str, Callable[..., object]] = {}
        self.instead: dict[str, Answer] = {}
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if not iscoroutinefunction(method):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            self.asked.append(name)
            if name in self.before:
                self.before[name](*args, **options)
            answering: Any = self.instead.get(name, method)
            answer = await answering(*args, **options)
            if name in self.after:
                self.after[name](*args, **options)
            return answer

        return call

    def blocking(self) -> Directed:
        return self.plain or self

    def for_keeper(self) -> Directed:
        return self


def fresh() -> str:
    """The URL of a memory that nobody else in this process has."""
    return f"memory://{uuid4().hex}"


def raises(error: BaseException) -> Callable[..., object]:
    def call(*args: object, **options: object) -> object:
        raise error

    return call


def space() -> Space:
    return Space(Threads().now, Threads().mutex())


class Stage:
    """A sync client on a directed store, and what it reported."""

    def __init__(self, ttl: float = 30.0, shared: Space | None = None) -> None:
        self.events: list[events.Event] = []
        runtime = Threads(lambda error, lease: self.events.append(events.CallbackFailed(repr(error))))
        self.store = Directed(MemoryStore(shared or space(), runtime))
        self.core = CoreClient(
            cast(Store, self.store),
            runtime,
            runtime,
            ttl=ttl,
            listener=self.events.append,
            lease_type=Lease,
        )
        lifetimes.follow(self.core)
        self.client = interlock.Client(self.core)


class AsyncStage:
    """An async client on a directed store, and what it reported."""

    def __init__(self, ttl: float = 30.0, shared: Space | None = None) -> None:
        self.events: list[events.Event] = []
        runtime, keeping = Tasks(), Threads()
        shared = shared or space()
        self.plain = Directed(MemoryStore(shared, keeping))
        self.store = Directed(MemoryStore(shared, runtime))
        self.store.plain = self.plain
        self.core = CoreClient(
            cast(Store, self.store),
            runtime,
            keeping,
            ttl=ttl,
            listener=self.events.append,
            lease_type=aio.Lease,
        )
        lifetimes.follow(self.core)
        self.client = aio.Client(self.core)
