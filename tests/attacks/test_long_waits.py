"""Whoever waits for long is told of, once, and so is a caller that waits for itself."""

from __future__ import annotations

import threading

import pytest

import interlock
from interlock import events
from tests.attacks.stage import Stage, eventually


def told(stage: Stage, kind: type[events.Event]) -> list[events.Event]:
    return [event for event in stage.events if isinstance(event, kind)]


@pytest.mark.parametrize("fair", [True, False])
def test_a_wait_of_a_second_is_told_once_with_the_holder(fair: bool) -> None:
    stage = Stage()
    other = Stage(shared=stage.store.inner._space)
    with other.client.lock("x") as held:
        assert stage.client.lock("x", fair=fair).acquire(timeout=0.5) is None
        assert not told(stage, events.Waiting)
        assert stage.client.lock("x", fair=fair).acquire(timeout=1.8) is None
    (waiting,) = told(stage, events.Waiting)
    assert isinstance(waiting, events.Waiting)
    assert waiting.holder
    assert waiting.holder.token == held.token
    assert waiting.ahead == (1 if fair else 0)
    assert 1.0 <= waiting.waited < 1.8
    assert not told(stage, events.WaitingForItself)


def test_a_thread_that_waits_for_its_own_lock_is_told_so() -> None:
    stage = Stage()
    with stage.client.lock("x") as lease:
        assert stage.client.lock("x").acquire(timeout=1.3) is None
    (warning,) = told(stage, events.WaitingForItself)
    assert isinstance(warning, events.WaitingForItself)
    assert (warning.token, warning.owner) == (lease.token, threading.current_thread().name)
    assert "rlock" in str(warning)


def test_a_holder_of_some_permits_that_waits_for_more_does_not_wait_for_itself() -> None:
    stage = Stage()
    other = Stage(shared=stage.store.inner._space)
    with other.client.semaphore("x", 2), stage.client.semaphore("x", 2):
        assert not stage.client.semaphore("x", 2).acquire(timeout=1.3)
    assert told(stage, events.Waiting)
    assert not told(stage, events.WaitingForItself)


def test_who_stands_in_no_queue_asks_ever_more_seldom() -> None:
    stage = Stage()
    other = Stage(shared=stage.store.inner._space)
    with other.client.lock("x"):
        assert stage.client.lock("x", fair=False).acquire(timeout=2.0) is None
    assert stage.store.asked.count("claim") < 25  # fifty to seventy a second before


def test_who_stands_in_no_queue_is_in_soon_after_the_release() -> None:
    stage = Stage()
    other = Stage(shared=stage.store.inner._space)
    held = other.client.lock("x").acquire()
    assert held
    got: list[interlock.Lease | None] = []
    thread = threading.Thread(
        target=lambda: got.append(stage.client.lock("x", fair=False).acquire(timeout=20))
    )
    thread.start()
    eventually(lambda: stage.store.asked.count("claim") >= 6)
    held.release()
    thread.join(10)
    assert got
    assert got[0]
