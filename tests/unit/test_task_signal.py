"""The event that tasks wait for: any thread sets it, and the waits of the usual length share one timer."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from interlock._core.runtime import BRIEF_S
from interlock._runtime.tasks import Tasks
from interlock.testing.lag import at_most
from tests.patience import PATIENCE


def timers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The instants for which timers are made on the running loop from here on."""
    loop, made = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def noted(when: float, *rest: Any, **options: Any) -> Any:
        made.append(when)
        return call_at(when, *rest, **options)

    monkeypatch.setattr(loop, "call_at", noted)
    return made


def test_another_thread_wakes_all_that_wait() -> None:
    async def main() -> None:
        runtime = Tasks()
        signal = runtime.signal()
        waits = [asyncio.create_task(runtime.wait(signal, timeout)) for timeout in (None, PATIENCE, BRIEF_S)]
        await asyncio.sleep(0)
        threading.Thread(target=signal.set).start()
        assert await asyncio.gather(*waits) == [True, True, True]
        assert await runtime.wait(signal, 0.0)

    asyncio.run(main())


def test_each_brief_wait_ends_in_time_though_another_began_before_it() -> None:
    async def main() -> None:
        loop, runtime = asyncio.get_running_loop(), Tasks()

        async def wait(after: float) -> float:
            await asyncio.sleep(after)
            began = loop.time()
            with at_most(BRIEF_S + 0.5, "nobody ended it"):
                assert not await asyncio.wait_for(runtime.wait(runtime.signal(), BRIEF_S), PATIENCE)
            return loop.time() - began

        for lasted in [*await asyncio.gather(*map(wait, (0.0, 0.0, BRIEF_S / 2))), await wait(0.0)]:
            assert lasted > BRIEF_S - 0.01

    asyncio.run(main())


def test_brief_waits_share_a_timer_and_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        runtime = Tasks()
        waits, signals = [], [runtime.signal() for _ in range(50)]
        made = timers(monkeypatch)
        for signal in signals:
            waits.append(asyncio.create_task(runtime.wait(signal, BRIEF_S)))
            await asyncio.sleep(0)
        waits[0].cancel()
        for signal in signals:
            signal.set()
        await asyncio.gather(*waits, return_exceptions=True)
        assert len(made) == 1
        assert runtime._brief is not None
        assert not runtime._brief.ends

    asyncio.run(main())


def test_another_loop_has_a_timer_of_its_own() -> None:
    runtime = Tasks()

    async def main() -> bool:
        return await asyncio.wait_for(runtime.wait(runtime.signal(), BRIEF_S), PATIENCE)

    assert [asyncio.run(main()) for _ in range(2)] == [False, False]
