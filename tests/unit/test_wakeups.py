"""A task is resumed in the turn in which its answer arrives, and cannot tell."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from interlock.wakeups import resume, task_of

Deliver = Callable[[], object]


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it on a loop that waits for no other task at its end: one that was never resumed would keep it for ever."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


async def delivered(deliver: Deliver) -> None:
    """Run this as the loop runs the callback of a socket: in no task."""
    loop = asyncio.get_running_loop()
    loop.call_soon(deliver)
    await asyncio.sleep(0)


def test_a_task_goes_on_in_the_turn_of_its_answer() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[int] = loop.create_future()
        steps: list[str] = []

        async def waits() -> None:
            steps.append(f"got {await waiting}")
            steps.append(f"in its own task: {asyncio.current_task() is task}")

        def deliver() -> None:
            resume(waiting, 7, loop)
            steps.append("delivered")
            assert task_of(loop) is None

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        await delivered(deliver)
        assert steps == ["got 7", "in its own task: True", "delivered"]
        await task

    run(main)


def test_a_task_goes_on_a_turn_later_if_another_task_answers() -> None:
    """Tasks do not run inside of each other."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[int] = loop.create_future()
        got: list[int] = []

        async def waits() -> None:
            got.append(await waiting)

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        resume(waiting, 7, loop)
        assert got == []
        await task
        assert got == [7]

    run(main)


@pytest.mark.parametrize("waiters", [0, 2])
def test_an_answer_for_nobody_or_for_several_is_delivered_as_usual(waiters: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[int] = loop.create_future()

        async def waits() -> int:
            return await waiting

        tasks = [asyncio.create_task(waits()) for _ in range(waiters)]
        await asyncio.sleep(0)
        await delivered(lambda: resume(waiting, 7, loop))
        assert waiting.result() == 7
        assert await asyncio.gather(*tasks) == [7] * waiters

    run(main)


def test_the_task_sees_its_own_context() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody's")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()

        async def waits() -> str:
            name.set("the task's")
            await waiting
            return name.get()

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        await delivered(lambda: resume(waiting, None, loop))
        assert await task == "the task's"
        assert name.get() == "nobody's"

    run(main)


def test_an_error_of_the_task_stays_in_the_task() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()

        async def waits() -> None:
            await waiting
            raise IndexError("the task's own")

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        await delivered(lambda: resume(waiting, None, loop))
        with pytest.raises(IndexError):
            await task

    run(main)


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_task_that_ends_the_program_ends_the_loop_and_not_its_callers_connection(
    end: type[BaseException],
) -> None:
    after: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()

        async def waits() -> None:
            await waiting
            raise end

        def deliver() -> None:
            resume(waiting, None, loop)
            after.append("delivered")

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        await delivered(deliver)
        for _ in range(3):  # turns in which the loop should have ended
            await asyncio.sleep(0)
        task.exception()  # or it would be reported in the midst of pytest's own work

    with pytest.raises(end):
        run(main)
    assert after == ["delivered"]


def test_a_task_that_is_cancelled_meanwhile_is_cancelled() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Any] = loop.create_future()

        async def waits() -> None:
            await waiting

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        assert waiting.done()  # so that nobody delivers to it
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)
