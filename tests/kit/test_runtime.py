"""The runtime of plain threads: it waits on the calling thread, and what it runs beside it ends by itself."""

from __future__ import annotations

import threading
import time

from interlock._core.drive import drive
from interlock.backends.kit.runtime import ThreadRuntime
from tests.patience import PATIENCE, until


def test_it_waits_for_a_signal_or_for_its_time() -> None:
    runtime = ThreadRuntime(time.monotonic)
    signal = runtime.signal()
    assert drive(runtime.wait(signal, 0.01)) is False
    threading.Timer(0.01, signal.set).start()
    assert drive(runtime.wait(signal, PATIENCE)) is True


def test_a_job_runs_beside_the_caller_until_its_work_is_over() -> None:
    runtime, go, threads = ThreadRuntime(time.monotonic), threading.Event(), set[int]()

    async def work() -> None:
        await runtime.wait(go, PATIENCE)
        threads.add(threading.get_ident())

    job = runtime.spawn("work", work)
    assert job.alive()
    go.set()
    until(lambda: not job.alive())
    assert len(threads) == 1
    assert threading.get_ident() not in threads
