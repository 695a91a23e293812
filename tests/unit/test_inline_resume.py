"""A task goes on in the turn in which its answer arrives, and cannot tell."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from interlock._support.inline_resume import InlineResume, task_of

Main = Callable[[], Coroutine[Any, Any, None]]


def run(main: Main) -> None:
    """Run it on a loop that waits for no other task at its end: one that was never resumed would keep it for ever."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


class Reply:
    """A future for which one task waits, or several, or none."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[int] = self.loop.create_future()
        self.inline_resume = InlineResume(self.loop)

    def give(self, result: int = 7) -> None:
        self.inline_resume.add(self.future, result)
        self.inline_resume.run()

    async def arrives(self, after: Callable[[], object] = lambda: None) -> None:
        """Give it as the loop runs the callback of a socket: in no task."""

        def received() -> None:
            assert task_of(self.loop) is None
            self.give()
            after()
            assert task_of(self.loop) is None

        self.loop.call_soon(received)
        await asyncio.sleep(0)


def test_a_task_goes_on_in_the_turn_of_its_answer() -> None:
    async def main() -> None:
        reply, steps = Reply(), list[str]()

        async def waits() -> None:
            steps.append(f"got {await reply.future}")
            steps.append(f"in its own task: {asyncio.current_task() is task}")

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        await reply.arrives(lambda: steps.append("delivered"))
        assert steps == ["got 7", "in its own task: True", "delivered"]
        await task

    run(main)


def test_a_task_goes_on_a_turn_later_if_another_task_answers() -> None:
    """Tasks do not run inside of each other."""

    async def main() -> None:
        reply, got = Reply(), list[int]()

        async def waits() -> None:
            got.append(await reply.future)

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        reply.give()
        assert got == []
        await asyncio.wait([task], timeout=5)
        assert got == [7]

    run(main)


@pytest.mark.parametrize("waiters", [0, 2])
def test_an_answer_for_nobody_or_for_several_is_given_as_usual(waiters: int) -> None:
    async def main() -> None:
        reply = Reply()

        async def waits() -> int:
            return await reply.future

        tasks = [asyncio.create_task(waits()) for _ in range(waiters)]
        await asyncio.sleep(0)
        await reply.arrives()
        assert reply.future.result() == 7
        assert await asyncio.gather(*tasks) == [7] * waiters

    run(main)


def test_the_task_sees_its_own_context() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody's")

    async def main() -> None:
        reply = Reply()

        async def waits() -> str:
            name.set("the task's")
            await reply.future
            return name.get()

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        await reply.arrives()
        assert await task == "the task's"
        assert name.get() == "nobody's"

    run(main)


def test_an_error_of_the_task_stays_in_the_task() -> None:
    async def main() -> None:
        reply = Reply()

        async def waits() -> None:
            await reply.future
            raise IndexError("the task's own")

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        await reply.arrives()
        with pytest.raises(IndexError):
            await task

    run(main)


def ended_by_a_task(end: type[BaseException], *, at_once: bool) -> list[str]:
    """What happens when the second of three tasks, whose answers came together, ends the program."""
    steps: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        inline_resume, futures = InlineResume(loop), [loop.create_future() for _ in range(3)]

        async def waits(number: int) -> None:
            try:
                await futures[number]
                steps.append(f"{number} goes on")
                if number == 1:
                    raise end(3)
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                steps.append(f"{number} cleaned up")
                raise

        def received() -> None:
            for future in futures:
                inline_resume.add(future, None) if at_once else future.set_result(None)
            inline_resume.run()

        tasks.extend(asyncio.create_task(waits(number)) for number in range(3))
        await asyncio.sleep(0)
        loop.call_soon(received)
        await asyncio.sleep(60)

    loop = asyncio.new_event_loop()
    with pytest.raises(end):
        loop.run_until_complete(main())
    others = asyncio.all_tasks(loop)  # then as `asyncio.run` does, but it would wait for ever
    for task in others:
        task.cancel()
    loop.run_until_complete(asyncio.wait(others, timeout=5))
    loop.close()
    tasks[1].exception()  # or it would be reported in the midst of pytest's own work
    return sorted(steps[2:])


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_task_that_ends_the_program_ends_it_as_in_asyncio(end: type[BaseException]) -> None:
    """At once, and nobody who cleans up is struck by it later."""
    usual = ended_by_a_task(end, at_once=False)
    assert usual == ["0 cleaned up", "2 cleaned up"]
    assert ended_by_a_task(end, at_once=True) == usual


def test_where_a_task_may_run_the_loop_itself_it_goes_on_a_turn_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with nest_asyncio: inside the callback of a socket, the loop could not call that callback again."""
    monkeypatch.setattr(asyncio, "_nest_patched", True, raising=False)

    async def main() -> None:
        reply, steps = Reply(), list[str]()

        async def waits() -> None:
            steps.append(f"got {await reply.future}")

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        await reply.arrives(lambda: steps.append("delivered"))
        await task
        assert steps == ["delivered", "got 7"]

    run(main)


def test_an_error_of_a_callback_is_told_to_the_loop_and_to_nobody_else() -> None:
    """A coroutine may be driven by something that is no task."""
    told: list[object] = []

    async def main() -> None:
        reply = Reply()
        reply.loop.set_exception_handler(lambda loop, context: told.append(context["exception"]))
        reply.future.add_done_callback(lambda future: [][future.result()])
        await reply.arrives()

    run(main)
    assert [type(error) for error in told] == [IndexError]


def test_below_uvloop_a_task_goes_on_a_turn_later() -> None:
    """Its transports take a SystemExit that leaves a task for a failure of theirs."""
    uvloop = pytest.importorskip("uvloop")
    steps: list[str] = []

    async def main() -> None:
        reply = Reply()

        async def waits() -> None:
            steps.append(f"got {await reply.future}")

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        await reply.arrives(lambda: steps.append("delivered"))
        await task

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert steps == ["delivered", "got 7"]


def test_a_task_that_is_cancelled_meanwhile_is_cancelled() -> None:
    async def main() -> None:
        reply = Reply()

        async def waits() -> None:
            await reply.future

        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        assert reply.future.done()  # so that nobody gives it a result
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)
