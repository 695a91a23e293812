"""The async face, for tests: `interlock.aio` on an event loop of each test's own."""

from __future__ import annotations

import asyncio
from typing import Any

from interlock import aio, events
from interlock._core.client import Client as CoreClient
from interlock._runtime import lifetimes
from interlock._runtime.tasks import Tasks
from interlock._runtime.threads import Threads
from interlock.ports import Runtime
from interlock.testing.conformance.face import PATIENCE, Actor, Listener, Main, Wrap, ignore
from interlock.testing.conformance.factory import StoreFactory


class TaskActor:
    """A coroutine as a task of its own."""

    def __init__(self, main: Main) -> None:
        self.task = asyncio.get_running_loop().create_task(main())

    def ended(self) -> bool:
        return self.task.done()

    async def result(self) -> Any:
        await asyncio.wait([self.task], timeout=PATIENCE)
        assert self.task.done(), "it does not end"
        return self.task.result()


class AsyncFace:
    """`interlock.aio`, on tasks."""

    name = "async"
    asynchronous = True

    def run(self, main: Main) -> None:
        asyncio.run(main())

    def runtime(self) -> Runtime:
        return Tasks()

    def spawn(self, main: Main) -> Actor:
        return TaskActor(main)

    def client(
        self,
        stores: StoreFactory,
        place: str,
        *,
        ttl: float = 30.0,
        listener: Listener | None = None,
        wrap: Wrap | None = None,
    ) -> Any:
        listen = listener or ignore

        def report(error: BaseException) -> None:
            listen(events.CallbackFailed(repr(error)))

        runtime = Tasks(report)
        store = stores.open(place, runtime, True)
        store = wrap(store, runtime) if wrap else store
        core = CoreClient(store, runtime, Threads(report), ttl=ttl, listener=listen, lease_type=aio.Lease)
        lifetimes.follow(core)
        return aio.Client(core)
