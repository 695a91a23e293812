"""The runtimes for programs of greenlets, where they can be tried without a library of greenlets."""

from __future__ import annotations

import threading
import time

import pytest

from interlock._core.drive import drive
from interlock._core.runtime import Job
from interlock._runtime.green import GreenSignal, Native
from interlock._support import native
from tests.patience import PATIENCE, until


async def no_work() -> None: ...


def finished(runtime: Native) -> Job:
    job = runtime.spawn("job", no_work)
    until(lambda: not job.alive())
    return job


def test_whoever_joins_a_thread_of_the_system_waits_until_it_has_left_its_hub(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[str] = []

    def slowly() -> None:
        time.sleep(0.2)
        left.append("the hub")

    monkeypatch.setattr(native, "_leave_hub", slowly)
    runtime = Native()
    drive(runtime.join(finished(runtime), PATIENCE))
    assert left == ["the hub"]


def test_a_thread_whose_hub_cannot_be_left_is_joined_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_leave_hub", lambda: 1 / 0)
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    runtime, began = Native(), time.monotonic()
    drive(runtime.join(finished(runtime), PATIENCE))
    assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize("thread", ["of the system", "of greenlets"])
def test_a_signal_wakes_whoever_waits_on_whatever_thread(thread: str) -> None:
    signal, heard = GreenSignal(), list[bool]()
    begin = native.run if thread == "of the system" else lambda work: threading.Thread(target=work).start()
    begin(lambda: heard.append(signal.wait(PATIENCE)))
    until(lambda: signal._bells)
    signal.set()
    until(lambda: heard)
    assert heard == [True]
    assert not signal._bells


def test_a_thread_of_the_system_that_waits_in_vain_hears_so() -> None:
    signal, heard = GreenSignal(), list[bool]()
    native.run(lambda: heard.append(signal.wait(0.01)))
    until(lambda: heard)
    assert heard == [False]


def test_a_thread_of_the_system_waits_without_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """gevent's would make a hub for this thread."""

    def refuse() -> None:
        raise AssertionError("a pair of sockets")

    monkeypatch.setattr("socket.socketpair", refuse)
    signal, heard = GreenSignal(), list[bool]()
    native.run(lambda: heard.append(signal.wait(PATIENCE)))
    until(lambda: signal._bells)
    signal.set()
    until(lambda: heard)
