"""The time of one call: each request gets what is left, and no more than a request may take."""

from __future__ import annotations

from interlock.backends.kit.deadline import MIN_REQUEST_S, Deadline
from interlock.store import IO_TIMEOUT


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time


def test_requests_share_the_time_of_their_call() -> None:
    clock = Clock()
    deadline = Deadline(clock.now, 3.0)
    assert deadline.for_request() == 3.0
    clock.time += 2.0
    assert deadline.left() == deadline.for_request() == 1.0
    assert not deadline.passed()


def test_one_request_takes_no_more_than_requests_may() -> None:
    deadline = Deadline(Clock().now, 60.0)
    assert deadline.left() == 60.0
    assert deadline.for_request() == IO_TIMEOUT
    assert deadline.for_request(0.5) == 0.5


def test_when_it_has_passed_nothing_is_left_and_a_request_fails_soon() -> None:
    clock = Clock()
    deadline = Deadline(clock.now, 1.0)
    clock.time += 1.0
    assert deadline.passed()
    clock.time += 5.0
    assert deadline.left() == 0.0
    assert deadline.for_request() == MIN_REQUEST_S
