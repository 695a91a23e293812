"""Resumes tasks in the turn of the event loop in which their answers arrive.

asyncio resumes a task that waits for a future in the turn after the one that set its result. That turn asks
the selector once more and makes a handle for each task, which costs more than the rest of a lock on a server
nearby. A callback of the loop runs in no task, so it can run those that wait for it right there. A task
cannot tell the difference.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

if sys.version_info >= (3, 12):
    task_of = asyncio.current_task
else:
    running_tasks: dict[asyncio.AbstractEventLoop, asyncio.Task[Any]] = vars(asyncio.tasks)["_current_tasks"]
    task_of = running_tasks.get
"""The running task of a loop.

Every acquire asks, and until Python 3.12 asyncio's own function is one in Python.
"""

names_in_asyncio = vars(asyncio)  # nest_asyncio adds one

WakeUp = tuple[Callable[[Any], object], "asyncio.Future[Any]", Context]


class InlineResume:
    """The tasks whose answers came in one read of a connection: first all answers are given, then the
    tasks go on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # A transport of uvloop takes a SystemExit that leaves a task for its own failure, and the program
        # would go on.
        self._at_once = isinstance(loop, asyncio.BaseEventLoop)
        self.ready: deque[WakeUp] = deque()  # those that go on next

    def add(self, waiting: asyncio.Future[Any], result: Any) -> None:
        """Set the result of a future that is not done; the task that waits for it goes on with the next
        `run`.
        """
        callbacks: Any = waiting._callbacks
        if not self._at_once or callbacks is None or len(callbacks) != 1:
            waiting.set_result(result)
            return
        ((wake_up, context),) = callbacks
        waiting.remove_done_callback(wake_up)
        waiting.set_result(result)
        self.ready.append((wake_up, waiting, context))

    def run(self) -> None:
        """Run the tasks that have been added; in the next turn if some other task of the loop runs now."""
        ready, loop = self.ready, self._loop
        if not ready:
            return
        # With nest_asyncio a task may run the loop itself. It could read no socket in whose callback it runs.
        if task_of(loop) is not None or "_nest_patched" in names_in_asyncio:
            self.run_later()
            return
        if len(ready) > 1:
            # For the rest, if one of them does not come back to us but ends the program.
            loop.call_soon(self.run)
        while ready:
            wake_up, waiting, context = ready.popleft()
            try:
                context.run(wake_up, waiting)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # not of a task, which keeps its errors, but of a callback
                loop.call_exception_handler(
                    {"message": f"Exception in callback {wake_up!r}", "exception": error}
                )

    def run_later(self) -> None:
        """Let the tasks that have been added go on in the next turn of the loop."""
        while self.ready:
            wake_up, waiting, context = self.ready.popleft()
            self._loop.call_soon(wake_up, waiting, context=context)
