"""The async face, for tests: `interlock.aio` on an event loop of each test's own."""

from __future__ import annotations

import asyncio
from typing import Any

from interlock import aio
from interlock._core.runtime import Runtime
from interlock._runtime.tasks import Tasks
from interlock.testing.conformance.face import PATIENCE, Actor, Face, Main, Report


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


class AsyncFace(Face):
    """`interlock.aio`, on tasks."""

    name = "async"
    asynchronous = True
    client_type = aio.Client
    lease_type = aio.Lease

    def run(self, main: Main) -> None:
        asyncio.run(main())

    def runtime(self, report: Report | None = None) -> Runtime:
        return Tasks(report)

    def spawn(self, main: Main) -> Actor:
        return TaskActor(main)
