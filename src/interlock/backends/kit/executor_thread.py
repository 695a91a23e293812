"""A thread beside the event loop on which the blocking calls of an asyncio store run; it may own the store's
connection.

SQLite has no call that does not block, and neither have most clients of SQL databases. One thread for each
asyncio store makes its calls in the order they were asked for, so a claim that was cancelled is taken back
after it was made, never before. It starts with the first call, and ends when the store is closed or nobody
has it any more.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from interlock._support import native
from interlock.errors import StoreUnavailable, Unreached

T = TypeVar("T")


class ExecutorThread:
    """Runs steps in order. A cancelled caller stops waiting; its step runs to its end all the same.

    `now` is the clock on which steps are given their deadlines; `name` is the thread's, and `of` says what it
    writes.
    """

    def __init__(self, now: Callable[[], float], name: str, of: str) -> None:
        self._now = now
        self._name = name
        self._of = of
        self._mutex = native.mutex()  # a finalizer may call us from within
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, step: Callable[..., T], *args: Any, timeout: float) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        now, of = self._now, self._of  # not self: the thread must not keep a store that nobody has any more
        # From now: those who queue up behind a locked file must not wait one after the other.
        until = now() + timeout

        def job() -> None:
            try:
                if now() >= until:
                    # Its caller was told that there is no answer, and may have had the claim taken back by
                    # another thread already: made now, it would stand for nobody.
                    raise _late(of)
                result = step(until, *args)
            except BaseException as error:  # all of it is the caller's, not this thread's
                _post(loop, _settle, answer, None, error)
            else:
                _post(loop, _settle, answer, result, None)

        self._put(job)
        timer = loop.call_later(timeout, _settle, answer, None, _late(of))
        try:
            return await answer
        finally:
            timer.cancel()

    def _put(self, job: Callable[[], None]) -> None:
        """Raises `Unreached` if there is no thread to be had: nothing was done, and the next try may work."""
        with self._mutex:
            if self._thread is None:
                self._start()
            self._jobs.put(job)  # only now: without a thread, another call's would find it and run it late

    def _start(self) -> None:
        jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        thread = native.Thread(target=_work, args=(jobs,), name=self._name, daemon=True)
        try:
            thread.start()
            self._jobs, self._thread = jobs, thread
        except RuntimeError as error:
            raise Unreached(f"no thread could be started that writes {self._of}: {error}") from error
        except BaseException:  # interrupted: nobody would ever end it
            if self._thread is not thread:
                jobs.put(None)
            raise

    def after_fork(self) -> None:
        self.__init__(self._now, self._name, self._of)  # type: ignore[misc]

    def close(self) -> None:
        """End the thread after what it has been given."""
        with self._mutex:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._jobs.put(None)

    def __del__(self) -> None:
        self._jobs.put(None)  # a client that nobody closed must not leave its thread behind


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        # It may refer to the store: kept until the next job, it would keep a store that nobody has any more.
        del job


def _late(of: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"no answer in time: {of}, or the thread that writes it, is busy with others' calls"
    )


def _post(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *args: object) -> None:
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        pass  # the loop is closed, and nobody is left to tell


def _settle(answer: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if answer.done():
        return  # cancelled meanwhile
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
