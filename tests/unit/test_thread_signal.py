"""The event that threads wait for: set once, seen by all, and whole after an interrupt anywhere inside it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from interlock._runtime.threads import ThreadSignal
from interlock.testing.lag import at_most
from tests.patience import PATIENCE


def interrupted_everywhere(call: Callable[[ThreadSignal], object]) -> Iterator[ThreadSignal]:
    """Signals on which `call` was interrupted after its first instruction, its second, ..."""
    for place in range(1, 500):
        signal, count = ThreadSignal(), [0]

        def step(frame: FrameType, event: str, arg: Any) -> Any:
            if not frame.f_code.co_filename.endswith("threads.py"):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if event == "opcode":
                count[0] += 1  # noqa: B023
                if count[0] == place:  # noqa: B023
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return step

        before = sys.gettrace()
        sys.settrace(step)
        try:
            call(signal)
        except KeyboardInterrupt:
            yield signal
        else:
            return
        finally:
            sys.settrace(before)
    raise AssertionError("it never got through")


def waits(signal: ThreadSignal) -> threading.Thread:
    thread = threading.Thread(target=signal.wait, args=(PATIENCE,))
    thread.start()
    return thread


def test_it_is_seen_by_everyone_however_often_it_is_set() -> None:
    signal = ThreadSignal()
    threads = [waits(signal) for _ in range(10)]
    assert not signal.is_set()
    assert not signal.wait(0.01)
    signal.set()
    signal.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert signal.wait()
    assert signal.is_set()


def test_a_wait_ends_after_its_timeout() -> None:
    signal = ThreadSignal()
    began = time.monotonic()
    with at_most(0.5):
        assert not signal.wait(0.05)
        assert not signal.wait(0)
        assert not signal.wait(-1)
    assert time.monotonic() - began > 0.04


def test_it_cannot_be_taken_back() -> None:
    with pytest.raises(RuntimeError):
        ThreadSignal().clear()


def test_interrupted_anywhere_in_set_it_can_be_set_again() -> None:
    for signal in interrupted_everywhere(lambda signal: signal.set()):
        signal.set()
        assert signal.wait(PATIENCE)
        thread = waits(signal)
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_interrupted_anywhere_in_wait_others_still_get_through() -> None:
    def wait(signal: ThreadSignal) -> None:
        signal.set()
        signal._flag = False  # let it go to the gate, as who came just before the signal was set
        threading.Thread(target=signal.set).start()
        signal.wait(PATIENCE)

    for signal in interrupted_everywhere(wait):
        thread = waits(signal)
        signal.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()
