"""A silent server is pinged, and given up when it does not answer."""

from __future__ import annotations

import time

import pytest

from interlock.backends.redis.pubsub.heartbeat import Heartbeat

EVERY = 100.0  # seconds; the test says what time it is


@pytest.fixture
def began() -> float:
    return time.monotonic()


@pytest.fixture
def heartbeat(began: float) -> Heartbeat:
    return Heartbeat(EVERY)


def test_a_server_that_says_something_is_not_asked(heartbeat: Heartbeat, began: float) -> None:
    assert not any(heartbeat.ping_due(True, began + EVERY * turn) for turn in range(1, 5))


def test_a_silent_one_is_asked_once_and_given_up_as_much_later(heartbeat: Heartbeat, began: float) -> None:
    assert not heartbeat.ping_due(False, began + EVERY * 0.9)
    assert heartbeat.ping_due(False, began + EVERY * 1.1)
    assert not heartbeat.ping_due(False, began + EVERY * 2.0), "it was asked a moment ago"
    with pytest.raises(EOFError, match="no sign of life"):
        heartbeat.ping_due(False, began + EVERY * 2.2)


def test_one_that_answers_is_asked_again_after_the_next_silence(heartbeat: Heartbeat, began: float) -> None:
    assert heartbeat.ping_due(False, began + EVERY * 1.1)
    assert not heartbeat.ping_due(True, began + EVERY * 1.2)
    assert not heartbeat.ping_due(False, began + EVERY * 2.1)
    assert heartbeat.ping_due(False, began + EVERY * 2.3)
