"""The asyncio runtime: an await suspends the calling task."""

from __future__ import annotations

import asyncio
import os
import sys
import weakref
from asyncio import _get_running_loop, get_running_loop
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from inspect import isawaitable
from typing import Any

from interlock._core.runtime import BRIEF_S, Job, Mutex, Owner, Signal
from interlock._runtime import identity, with_statements
from interlock._runtime.threads import new_mutex
from interlock._support import clock
from interlock._support.inline_resume import task_of

Work = Callable[[], Coroutine[Any, Any, None]]

MAX_CLEAN_UP_TRIES = 3  # times a clean-up is begun, if others cancel it


class TaskOwner:
    """One task; alive until it is done, or left behind on a loop that was closed."""

    __slots__ = ("__weakref__", "_task", "name", "quoted")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = weakref.ref(task)
        self.name = task.get_name()
        self.quoted = identity.quote(self.name)

    @property
    def task(self) -> asyncio.Task[Any] | None:
        return self._task()

    def alive(self) -> bool:
        task = self._task()
        if task is None or task.done():
            return False
        loop = task.get_loop()
        return _get_running_loop() is loop or not loop.is_closed()

    def __str__(self) -> str:
        return f"task {self.name}"


class LoopOwner:
    """A whole event loop; alive until it is closed.

    It owns leases that were granted after the task that asked had ended.
    """

    __slots__ = ("__weakref__", "_loop", "name")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.name = "event loop"

    def alive(self) -> bool:
        return not self._loop.is_closed()

    def __str__(self) -> str:
        return "the event loop"


_owners: weakref.WeakKeyDictionary[asyncio.Task[Any], TaskOwner] = weakref.WeakKeyDictionary()


def _owner_of(task: asyncio.Task[Any]) -> TaskOwner:
    return getattr(task, "_interlock_owner", None) or _new_owner(task)


def _new_owner(task: asyncio.Task[Any]) -> TaskOwner:
    """The owner of a task that has not asked before, or on which no attribute can be set."""
    owner = _owners.get(task)
    if owner is None:
        awaiting = _waits_for(task)
        owner = TaskOwner(task) if awaiting is None else _owner_of(awaiting)
        # Kept as an attribute of the task: looking it up in a weak dictionary takes longer than everything
        # else that an acquire asks of the runtime.
        try:
            task._interlock_owner = owner  # type: ignore[attr-defined]
        except AttributeError:  # a task of another make
            _owners[task] = owner
    return owner


def _waits_for(task: asyncio.Task[Any]) -> asyncio.Task[Any] | None:
    """The task that called `wait_for`, if this is the inner task that `wait_for` makes before Python 3.12;
    otherwise None.

    Users do not think of the inner task as an owner, and it ends before its caller goes on.
    """
    release = getattr(asyncio.tasks, "_release_waiter", None) if sys.version_info < (3, 12) else None
    for callback, _ in getattr(task, "_callbacks", None) or ():
        if release is not None and getattr(callback, "func", None) is release:
            for wakeup, _ in callback.args[0]._callbacks or ():
                awaiting: asyncio.Task[Any] | None = getattr(wakeup, "__self__", None)
                if isinstance(awaiting, asyncio.Task):
                    return awaiting
    return None


class BriefWaits:
    """Ends the waits of one loop that last for `BRIEF_S` seconds, by one timer for all of them.

    Tasks that pass a lock on among themselves wait for less than a millisecond each. Making, sorting and
    cancelling a timer for each of them is a sixth of the Python calls of a hand-over.
    """

    __slots__ = ("_ticking", "ends", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ticking = False
        # In the order they began, in which they also end. Whoever has waited takes itself out.
        self.ends: dict[asyncio.Future[None], float] = {}

    def begin(self, waiter: asyncio.Future[None]) -> None:
        self.ends[waiter] = end = self.loop.time() + BRIEF_S
        if not self._ticking:
            self._tick_at(end)

    def _tick_at(self, end: float) -> None:
        self.loop.call_at(end, self._tick)
        self._ticking = True  # last: if Ctrl-C has struck before, the next wait makes the timer

    def _tick(self) -> None:
        self._ticking = False
        now = self.loop.time()
        for waiter, end in self.ends.items():
            if end > now:
                self._tick_at(end)
                break
            settle(waiter)


class TaskSignal:
    """A flag that tasks of one loop wait for and any thread may raise."""

    __slots__ = ("_brief", "_loop", "_set", "_waiters")

    def __init__(self, loop: asyncio.AbstractEventLoop, brief: BriefWaits) -> None:
        self._loop = loop
        self._brief = brief
        self._set = False
        self._waiters: set[asyncio.Future[None]] = set()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        if _get_running_loop() is not self._loop:
            post(self._loop, self.set)
            return
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, timeout: float | None = None) -> bool:
        """True once the flag is raised, False when `timeout` seconds passed first."""
        if self._set:
            return True
        if timeout is not None and timeout <= 0:
            return False
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        timer = None
        if timeout == BRIEF_S:
            self._brief.begin(waiter)
        elif timeout is not None:
            timer = self._loop.call_later(timeout, settle, waiter)
        try:
            if not self._set:  # raised by another thread since the first look
                await waiter
        finally:
            self._waiters.discard(waiter)
            if timer is not None:
                timer.cancel()
            elif timeout is not None:
                self._brief.ends.pop(waiter, None)
        return self._set


class TaskJob:
    """A task that is begun again if a stranger cancels it and its loop goes on."""

    # Seconds after which it is begun again: a loop that is about to end has ended by then.
    RETRY_PAUSE_S = 0.05

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, work: Work) -> None:
        self._loop, self._name, self._work = loop, name, work
        self._over = False
        self._begin()

    def _begin(self) -> None:
        self.task = self._loop.create_task(self._work(), name=self._name)
        self.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            # Programs that end cancel all their tasks; so do some that go on, and these would lose their
            # locks.
            self._loop.call_later(self.RETRY_PAUSE_S, self._begin)
        else:
            self._over = True

    def alive(self) -> bool:
        """Whether it goes on; not if it was left behind on a loop that was closed."""
        return not self._over and not self._loop.is_closed()


class Tasks:
    """Waits by suspending, on the caller's loop; callbacks run on the loop that called last."""

    def __init__(self, report: Callable[[BaseException, Any], object] | None = None) -> None:
        self._bound: asyncio.AbstractEventLoop | None = None
        self._brief: BriefWaits | None = None  # of that loop
        self._report = report
        self._pinged = 0.0  # when a sign of life was last asked of the loop; 0.0: it has been given
        self._jobs: set[asyncio.Future[Any]] = set()
        self.who: Callable[[Owner], str] = identity.describe

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # another thread asks about a lease that is held on the loop
            if self._bound is None:
                raise
            return self._bound
        if running is not self._bound:  # the first; or a later one: a forked child's, or another thread's
            self._bound, self._pinged = running, 0.0
        return running

    now = staticmethod(clock.now)

    def random(self) -> float:
        return int.from_bytes(os.urandom(4), "big") / 2**32

    fresh_id = staticmethod(identity.fresh_id)

    def owner(self) -> Owner:
        try:
            loop = get_running_loop()
        except RuntimeError:  # no loop runs here
            return identity.thread_owner()
        task = task_of(loop)
        if task is None:  # a callback of the loop: bound to the thread that runs it
            return identity.thread_owner()
        if loop is not self._bound:
            _ = (
                self._loop
            )  # bind it: a holder is told of a loss there, even if nothing has had to wait so far
        return getattr(task, "_interlock_owner", None) or _new_owner(task)

    def runner(self) -> Owner:
        task = task_of(get_running_loop())
        if task is None:
            return self.owner()
        owner: TaskOwner = getattr(task, "_interlock_owner", None) or _new_owner(task)
        return owner if owner._task() is task else TaskOwner(task)

    def mutex(self) -> Mutex:
        return new_mutex()  # the keeper's thread meets us there

    def signal(self) -> TaskSignal:
        loop, brief = self._loop, self._brief
        if brief is None or brief.loop is not loop:
            self._brief = brief = BriefWaits(loop)
        return TaskSignal(loop, brief)

    def wait(self, signal: Signal, timeout: float | None) -> Coroutine[Any, Any, bool]:
        assert isinstance(signal, TaskSignal)
        # Not awaited here: a task that wakes up goes through every coroutine that awaits another.
        return signal.wait(timeout)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def spawn(self, name: str, work: Work) -> Job:
        return TaskJob(self._loop, name, work)

    async def join(self, job: Job, timeout: float) -> None:
        assert isinstance(job, TaskJob)
        if not job.task.done():  # one that is may be of a loop that was closed
            await asyncio.wait([job.task], timeout=timeout)

    async def finish(self, cleanup: Callable[[], Awaitable[object]]) -> None:
        async def run() -> None:
            await cleanup()

        caller = asyncio.current_task()
        before = 0 if caller is None else caller.cancelling()
        cancelled: asyncio.CancelledError | None = None
        task = self._hold(self._loop.create_task(run()))
        for attempt in range(MAX_CLEAN_UP_TRIES):
            if attempt:  # a loop at its end cancels every task it has, this one too: once more
                task = self._hold(self._loop.create_task(run()))
            while not task.done():
                try:
                    await asyncio.shield(task)
                except asyncio.CancelledError as error:
                    if not task.cancelled() or (caller is not None and caller.cancelling() > before):
                        cancelled = error  # noted, and obeyed once nothing is left behind
                except Exception:
                    break
            if not task.cancelled():
                break
        if cancelled is not None:
            if not task.cancelled():
                # Looked at, so that the loop does not complain; the cancellation comes first.
                task.exception()
            raise cancelled
        task.result()

    def interrupt(self, owner: Owner, wanted: Callable[[], bool]) -> None:
        task = owner.task if isinstance(owner, TaskOwner) else None
        if task is None:
            return

        def deliver() -> None:
            if not task.done() and wanted():
                task.cancel()

        post(task.get_loop(), deliver)

    def call(self, callback: Callable[[Any], object], argument: object) -> None:
        async def run() -> None:
            try:
                result = callback(argument)
                if isawaitable(result):
                    await result
            except Exception as error:
                if self._report is not None:
                    self._report(error, argument)

        loop = self._bound
        if loop is not None:
            post(loop, lambda: self._hold(loop.create_task(run())))

    sweep_statements = staticmethod(with_statements.sweep)

    def later(self, deliver: Callable[[Any], object], argument: object) -> None:
        if self._bound is not None:
            post(self._bound, partial(deliver, argument))

    def stalled(self) -> float:
        """Ask the loop for a sign of life; say how long it has owed one."""
        now = clock.now()
        if self._bound is None or self._bound.is_closed():
            return 0.0
        if self._pinged:
            return now - self._pinged
        self._pinged = now
        if not post(self._bound, self._pong):
            self._pinged = 0.0
        return 0.0

    def _pong(self) -> None:
        self._pinged = 0.0

    def _hold(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self._jobs.add(task)  # the loop itself keeps only weak references
        task.add_done_callback(self._jobs.discard)
        return task


def settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def post(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> bool:
    """Run `callback` on the loop, from any thread; False if the loop is closed and nobody is left to tell."""
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        return False
    return True
