"""Resumes a task in the turn of the event loop in which its answer arrives.

asyncio resumes a task that waits for a future in the turn after the one that set its result. That turn asks the selector once
more and makes a handle for each task, which costs more than the rest of a lock on a server nearby. A callback of the loop runs
in no task, so it can run the one that waits for it right there. The task cannot tell the difference.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

if sys.version_info >= (3, 12):
    task_of = asyncio.current_task
else:
    running_tasks: dict[asyncio.AbstractEventLoop, asyncio.Task[Any]] = vars(asyncio.tasks)["_current_tasks"]
    task_of = running_tasks.get
"""The running task of a loop. Every acquire asks, and until Python 3.12 asyncio's own function is one in Python."""


def resume(waiting: asyncio.Future[Any], result: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Set the result of a future that is not done, and run the task that waits for it, unless another task of the loop runs now."""
    callbacks: list[Any] | None = waiting._callbacks
    if callbacks is None or len(callbacks) != 1 or task_of(loop) is not None:
        waiting.set_result(result)
        return
    ((wake_up, context),) = callbacks
    waiting.remove_done_callback(wake_up)
    waiting.set_result(result)
    try:
        context.run(wake_up, waiting)
    except (
        SystemExit,
        KeyboardInterrupt,
    ) as end:  # of the task, and for the loop: the caller's connection is well
        loop.call_soon(_end_loop, end)


def _end_loop(end: BaseException) -> None:
    raise end
