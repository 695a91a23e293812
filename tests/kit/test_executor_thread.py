"""The thread beside the loop for calls that block: in order, within their time, and no longer than its store."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

from interlock.backends.kit.executor_thread import ExecutorThread
from interlock.errors import StoreUnavailable, Unreached
from tests.patience import PATIENCE, until

NAME = "interlock-kit-test"


def executor() -> ExecutorThread:
    return ExecutorThread(time.monotonic, NAME, "the database")


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def ident(until: float) -> int:
    return threading.get_ident()


def test_a_step_is_told_by_when_it_must_be_back() -> None:
    async def main() -> None:
        now = time.monotonic()
        runs = ExecutorThread(lambda: now, NAME, "the database")
        assert await runs.run(lambda until: until, timeout=2.0) == now + 2.0
        runs.close()

    asyncio.run(main())


def test_all_steps_run_in_order_on_one_thread_beside_the_loop() -> None:
    steps: list[tuple[int, int]] = []

    def step(until: float, number: int) -> None:
        steps.append((number, threading.get_ident()))

    async def main() -> None:
        runs = executor()
        await asyncio.gather(*(runs.run(step, number, timeout=PATIENCE) for number in range(20)))
        runs.close()

    asyncio.run(main())
    assert [number for number, _ in steps] == list(range(20))
    assert len({thread for _, thread in steps}) == 1
    assert threading.get_ident() not in {thread for _, thread in steps}
    until(lambda: not threads())


def test_what_a_step_raises_its_caller_gets() -> None:
    def fail(until: float) -> None:
        raise KeyError("mine")

    async def main() -> None:
        runs = executor()
        with pytest.raises(KeyError, match="mine"):
            await runs.run(fail, timeout=PATIENCE)
        runs.close()

    asyncio.run(main())


def test_a_cancelled_step_runs_to_its_end_before_the_next_begins() -> None:
    """The claim that was cancelled is made before it is taken back, never after."""
    went: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def claim(until: float) -> None:
        begun.set()
        assert go.wait(PATIENCE)
        went.append("claim")

    async def main() -> None:
        runs = executor()
        claiming = asyncio.ensure_future(runs.run(claim, timeout=PATIENCE))
        await asyncio.to_thread(begun.wait, PATIENCE)
        claiming.cancel()
        back = asyncio.ensure_future(runs.run(lambda until: went.append("taken back"), timeout=PATIENCE))
        with pytest.raises(asyncio.CancelledError):
            await claiming
        go.set()
        await back
        runs.close()

    asyncio.run(main())
    assert went == ["claim", "taken back"]


def test_behind_a_step_that_hangs_the_others_fail_in_time_and_are_never_begun() -> None:
    go, begun = threading.Event(), list[str]()

    async def main() -> None:
        runs = executor()
        hanging = asyncio.ensure_future(runs.run(lambda until: go.wait(PATIENCE), timeout=PATIENCE))
        await asyncio.sleep(0)  # it asks first
        with pytest.raises(StoreUnavailable, match="the database, or the thread"):
            await runs.run(lambda until: begun.append("late"), timeout=0.05)
        go.set()
        await hanging
        runs.close()

    asyncio.run(main())
    until(lambda: not threads())
    assert not begun


def test_without_a_thread_nothing_was_done_and_the_next_call_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        runs = executor()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", none_left)
            with pytest.raises(Unreached, match="the database"):
                await runs.run(ident, timeout=PATIENCE)
        assert await runs.run(ident, timeout=PATIENCE) != threading.get_ident()
        runs.close()

    asyncio.run(main())


def test_the_thread_of_a_store_that_nobody_closed_ends_with_it() -> None:
    async def main() -> None:
        await executor().run(ident, timeout=PATIENCE)

    asyncio.run(main())
    gc.collect()
    until(lambda: not threads())
