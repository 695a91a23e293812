"""A small world with its own time: jobs, timers and processes, all decided by one seed.

Nothing here waits for real. A job runs until it awaits; then some job that is ready runs, chosen by the
seed; when none is ready, time moves on to the next timer. So the same seed gives the same run, and a
minute of virtual time costs milliseconds.

What can happen to a program happens to a job at its awaits, and only there: it is overtaken, its process is
paused (time goes on, its timers fire late), it is killed (nothing of it runs again, not even its clean-up),
or it is cancelled. Not done: to overtake a job between two lines without an await; what must be guarded
there is guarded by `Runtime.mutex`, and a mutex held across an await is an error here.

While a job runs it is asyncio's current task, as for any third party's tasks, so the shipped async face runs
here too. asyncio's own sleeps and locks do not: they would wait in real time.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import types
from collections.abc import Callable, Coroutine, Generator
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlock.testing.simulated_runtime import SimulatedRuntime

STEP_S = 1e-6  # seconds of virtual time that running to the next await takes
MAX_STEPS = 200_000  # steps after which a run counts as going in circles


class Cancelled(asyncio.CancelledError):
    """The error that a cancelled job meets at its await."""


class Killed(BaseException):
    """Ends the jobs of a killed process. It meets this again at every await, so it touches nothing more."""


class Livelock(RuntimeError):
    """Jobs keep each other busy, and time does not move."""


class SimulatedJob:
    """A coroutine that the world runs, and the owner of what it acquires."""

    __slots__ = (
        "__weakref__",
        "_cancelling",
        "awaits",
        "cancel_at",
        "coroutine",
        "ended",
        "failure",
        "late",
        "name",
        "pending",
        "process",
        "turn",
        "waiting",
    )

    def __init__(self, process: SimulatedRuntime, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        self.process = process
        self.name = name
        self.coroutine: Coroutine[Any, Any, None] | None = coroutine
        self.waiting = False  # at an await, and not yet due to go on
        self.turn = 0  # which await it is at: an old timer must not end a new wait
        self.awaits = 0
        self.cancel_at = 0  # cancel it at this await of its life, counted from 1
        self.late = False  # ... when it would go on, not when it starts to wait
        self._cancelling = 0
        self.pending: BaseException | None = None
        self.failure: BaseException | None = None
        self.ended = SimulatedSignal(process.world)

    def alive(self) -> bool:
        """True until the job has ended."""
        return self.coroutine is not None

    def cancel(self, *, late: bool = False) -> None:
        """Raise `Cancelled` at the await where the job is, or at its next; `late`: when it would go on."""
        if self.coroutine is not None:
            self._cancelling += 1
            if self.pending is None:
                self.pending = Cancelled(f"{self.name} was cancelled")
            if not late:
                self.process.world.wake(self)

    def cancelling(self) -> int:
        """How often it was cancelled, less how often that was taken back; as `asyncio.Task`."""
        return self._cancelling

    def uncancel(self) -> int:
        self._cancelling = max(0, self._cancelling - 1)
        return self._cancelling

    def __repr__(self) -> str:
        return f"<job {self.process.name}/{self.name}>"


class SimulatedSignal:
    """A flag that is raised once and wakes the jobs that wait for it."""

    __slots__ = ("_set", "_waiters", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._set = False
        self._waiters: dict[SimulatedJob, None] = {}

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        if not self._set:
            self._set = True
            for job in self._waiters:
                self._world.wake(job)

    async def wait(self, timeout: float | None = None) -> bool:
        """True once it is set, False when `timeout` seconds of true time passed first."""
        world = self._world
        job = world.running()
        self._waiters[job] = None
        if self._set:
            timeout = 0.0
        try:
            await world.park(None if timeout is None else world.time + timeout)
        finally:
            self._waiters.pop(job, None)
        return self._set


class SimulatedMutex:
    """A mutual exclusion that raises where threads would deadlock."""

    __slots__ = ("_held", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._held = False

    def __enter__(self) -> object:
        if self._held:
            raise RuntimeError(
                "a mutex was entered by who is inside already: two threads would wait for ever"
            )
        self._held = True
        self._world.mutexes_held += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._held = False
        self._world.mutexes_held -= 1

    def _is_owned(self) -> bool:
        return self._held  # no job is overtaken inside a mutex: the one that asks is inside


class World:
    """Runs jobs under one seed. `time` is the true time, which no process sees undistorted."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.time = 0.0
        self.steps = 0
        self.mutexes_held = 0
        self.failures: list[tuple[SimulatedJob, BaseException]] = []
        self.processes: list[SimulatedRuntime] = []
        self._ready: list[SimulatedJob] = []
        self._timers: list[tuple[float, int, SimulatedJob, int]] = []
        self._order = count()
        self._running: SimulatedJob | None = None
        self._loop: Any = self  # asyncio only asks whose turn it is
        self._outside: Any = None  # a loop on which the test itself runs

    def current(self) -> SimulatedJob | None:
        """The job that runs now; None between steps."""
        return self._running

    def running(self) -> SimulatedJob:
        if self._running is None:
            raise RuntimeError("this can only be awaited by a job of the simulated world")
        return self._running

    # ---- what jobs do ---------------------------------------------------------

    def start(self, job: SimulatedJob) -> None:
        """Let a new job take its first step when the seed says so."""
        job.waiting = True
        job.process.jobs[job] = None
        self.wake(job)

    @types.coroutine
    def park(self, until: float | None) -> Generator[None, None, None]:
        """Give the others a turn; go on after `wake`, or when the time is `until`."""
        job = self.running()
        if job.process.dead:
            raise Killed
        if self.mutexes_held:
            raise RuntimeError("an await under a mutex: every other thread would wait for it")
        job.awaits += 1
        job.turn += 1
        job.waiting = True
        if job.awaits == job.cancel_at:
            job.cancel(late=job.late)
        elif job.pending is not None:
            self.wake(job)
        if job.waiting and until is not None:
            heapq.heappush(self._timers, (until, next(self._order), job, job.turn))
        yield

    def wake(self, job: SimulatedJob) -> None:
        if job.waiting:
            job.waiting = False
            self._ready.append(job)

    # ---- running ----------------------------------------------------------------

    def run(self, until: float, done: Callable[[], bool] | None = None) -> None:
        """Let time pass up to `until`, or until `done` says so."""
        ready, timers, choose = self._ready, self._timers, self.random.random
        while done is None or not done():
            while timers and timers[0][0] <= self.time:
                _, _, job, turn = heapq.heappop(timers)
                if job.turn == turn:
                    self.wake(job)
            if ready:
                index = int(choose() * len(ready))
                ready[index], ready[-1] = ready[-1], ready[index]
                self._step(ready.pop())
            elif timers and timers[0][0] <= until:
                self.time = timers[0][0]
            else:
                self.time = max(self.time, until)
                return

    def _step(self, job: SimulatedJob) -> None:
        if job.process.paused:
            job.process.stopped.append(job)  # goes on, however late, when the process does
            return
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Livelock(f"{self.steps} steps taken, and it is only {self.time:.3f} s")
        self.time += STEP_S
        error, job.pending = job.pending, None
        self.resume(job, error)

    def resume(self, job: SimulatedJob, error: BaseException | None) -> None:
        """Run a job to its next await, or raise `error` at the one where it is."""
        if job.coroutine is None:
            return
        before = self._enter(job)
        try:
            if error is None:
                job.coroutine.send(None)
            else:
                job.coroutine.throw(error)
        except (StopIteration, Killed):
            self._end(job, None)
        except BaseException as failure:
            self._end(job, failure)
        finally:
            self._enter(before)

    def _enter(self, job: SimulatedJob | None) -> SimulatedJob | None:
        """Make `job` the current task; returns the one before."""
        before, self._running = self._running, job
        task: Any = before
        if before is not None:
            asyncio.tasks._leave_task(self._loop, task)
        else:
            self._outside = asyncio._get_running_loop()
        asyncio._set_running_loop(self._outside if job is None else self._loop)
        task = job
        if job is not None:
            asyncio.tasks._enter_task(self._loop, task)
        return before

    def _end(self, job: SimulatedJob, failure: BaseException | None) -> None:
        if failure is not None:
            job.failure = failure
            if not isinstance(failure, asyncio.CancelledError):
                self.failures.append((job, failure))
        job.process.jobs.pop(job, None)
        job.coroutine = None
        job.ended.set()

    def close(self) -> None:
        """End everything, without a trace."""
        for process in self.processes:
            process.kill()
