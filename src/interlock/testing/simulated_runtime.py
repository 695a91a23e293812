"""The third runtime: one process of a simulated world, under virtual time and a seed.

The shipped algorithms run over it unchanged. It can be paused and resumed as by SIGSTOP and SIGCONT,
killed as by SIGKILL, and its clock may run a little fast or slow and starts anywhere: whoever compares
the clocks of two processes is found out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from inspect import isawaitable
from typing import Any, Literal

from interlock._core.runtime import Job, Owner, Signal
from interlock.testing.world import (
    Cancelled,
    Killed,
    SimulatedJob,
    SimulatedMutex,
    SimulatedSignal,
    World,
)
from interlock.who import Who


class _Outside:
    """The owner of what is acquired by no job of the world."""

    name = "outside"

    def alive(self) -> bool:
        return True


class SimulatedRuntime:
    """A `Runtime` whose every await is a place to be overtaken.

    `drift` is how much faster than true time its clock runs (0.01: one percent). `style` decides how an
    interruption meets it: "tasks" as asyncio does (a clean-up runs shielded, a lost lease cancels its
    body), "threads" as Ctrl-C does (a clean-up is interrupted where it is and runs once more, a body is
    left alone).
    """

    def __init__(
        self,
        world: World,
        name: str,
        *,
        drift: float = 0.0,
        epoch: float = 0.0,
        style: Literal["tasks", "threads"] = "tasks",
    ) -> None:
        self.world = world
        self.name = name
        self.style = style
        self.paused = False
        self.dead = False
        self.jobs: dict[SimulatedJob, None] = {}
        self.stopped: list[SimulatedJob] = []  # due to run, were it not for the pause
        self._rate = 1.0 + drift
        self._epoch = epoch
        self._ids = 0
        self._outside = _Outside()
        world.processes.append(self)

    # ---- what can happen to a process ------------------------------------------

    def pause(self) -> None:
        """As SIGSTOP: nothing of it runs, time goes on, its timers fire late."""
        self.paused = True

    def resume(self) -> None:
        """As SIGCONT."""
        self.paused = False
        stopped, self.stopped = self.stopped, []
        for job in stopped:
            job.waiting = True
            self.world.wake(job)

    def kill(self) -> None:
        """As SIGKILL: nothing of it ever runs again."""
        if self.dead:
            return
        self.dead = True
        for job in list(self.jobs):
            if job is not self.world.current():  # a job that kills its own process ends at its next await
                self.world.resume(job, Killed())
        self.stopped.clear()

    def true_time(self, instant: float) -> float:
        """The world's time at which this process's clock shows `instant`."""
        return (instant - self._epoch) / self._rate

    # ---- Runtime --------------------------------------------------------------------

    def now(self) -> float:
        return self._epoch + self.world.time * self._rate

    def random(self) -> float:
        return self.world.random.random()

    def fresh_id(self) -> str:
        self._ids += 1
        return f"{self.name}-{self._ids}"

    def owner(self) -> Owner:
        return self.world.current() or self._outside

    runner = owner

    def who(self, owner: Owner) -> str:
        return Who(self.name, 1, owner.name, "simulated").pack()

    def mutex(self) -> SimulatedMutex:
        return SimulatedMutex(self.world)

    def signal(self) -> SimulatedSignal:
        return SimulatedSignal(self.world)

    async def wait(self, signal: Signal, timeout: float | None) -> bool:
        assert isinstance(signal, SimulatedSignal)
        return await signal.wait(None if timeout is None else max(0.0, timeout) / self._rate)

    async def sleep(self, seconds: float) -> None:
        await self.world.park(self.world.time + max(0.0, seconds) / self._rate)

    def spawn(
        self, name: str, work: Callable[[], Coroutine[Any, Any, None]] | Coroutine[Any, Any, None]
    ) -> SimulatedJob:
        coroutine = work() if callable(work) else work
        job = SimulatedJob(self, name, coroutine)
        if self.dead:
            coroutine.close()
            job.coroutine = None
        else:
            self.world.start(job)
        return job

    async def join(self, job: Job, timeout: float) -> None:
        assert isinstance(job, SimulatedJob)
        if job.alive():
            await self.wait(job.ended, timeout)

    async def finish(self, cleanup: Callable[[], Awaitable[object]]) -> None:
        await (self._shielded(cleanup) if self.style == "tasks" else self._twice(cleanup))

    async def _twice(self, cleanup: Callable[[], Awaitable[object]]) -> None:
        try:
            await cleanup()
        except Cancelled:
            await cleanup()
            raise

    async def _shielded(self, cleanup: Callable[[], Awaitable[object]]) -> None:
        failure: list[BaseException] = []

        async def run() -> None:
            try:
                await cleanup()
            except Exception as error:
                failure.append(error)

        job = self.spawn("finish", run)
        cancelled: Cancelled | None = None
        while job.alive():
            try:
                await self.wait(job.ended, None)
            except Cancelled as error:
                cancelled = error  # noted, and obeyed once nothing is left behind
        if self.dead:
            raise Killed
        if cancelled is not None:
            raise cancelled
        if failure:
            raise failure[0]

    def interrupt(self, owner: Owner, wanted: Callable[[], bool]) -> None:
        async def deliver() -> None:
            if isinstance(owner, SimulatedJob) and owner.alive() and wanted():
                owner.cancel()

        if self.style == "tasks":
            self.spawn("interrupt", deliver)

    def call(self, callback: Callable[[Any], object], argument: object) -> None:
        async def run() -> None:
            result = callback(argument)
            if isawaitable(result):
                await result

        self.spawn("callback", run)

    def sweep_statements(self) -> None:
        """Nothing to do: nobody uses a `with` statement of the public API here."""

    def later(self, deliver: Callable[[Any], object], argument: object) -> None:
        deliver(argument)  # listeners in a simulation only note the instant

    def stalled(self) -> float:
        return 0.0

    def __repr__(self) -> str:
        state = "dead" if self.dead else "paused" if self.paused else "running"
        return f"<process {self.name} {state}>"
