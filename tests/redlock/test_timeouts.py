"""How long a request waits for connections: until a majority has one, and for the others as long again."""

from __future__ import annotations

import pytest

from interlock.backends.redlock.transport.timeouts import (
    MIN_CONNECT_S,
    ConnectDeadline,
    ConnectTimes,
    Timeouts,
)

ALL = range(5)
CONNECTING = 5.0


def timeouts(total: float = float("inf")) -> Timeouts:
    """As a quorum of five asks: three must be heard, each has 50 ms."""
    return Timeouts(0.05, 0.5, 3, CONNECTING, total)


def deadline(
    speed: ConnectTimes, missing: range = ALL, now: float = 100.0, total: float = float("inf")
) -> ConnectDeadline:
    for node in missing:
        speed.wanted(node, now)
    return ConnectDeadline(timeouts(total), missing, 5, speed, now)


def test_a_majority_is_waited_for_as_long_as_connecting_may_take() -> None:
    waits = deadline(ConnectTimes(5))
    for connected in (0, 1, 2):
        assert waits.until(connected, 100.0 + connected) == pytest.approx(100.0 + CONNECTING)


def test_once_a_majority_is_connected_the_others_have_as_long_again() -> None:
    waits = deadline(ConnectTimes(5))
    waits.until(2, 100.4)
    assert waits.until(3, 100.4) == pytest.approx(100.8)


def test_but_never_less_than_a_connection_takes() -> None:
    waits = deadline(ConnectTimes(5))
    waits.until(2, 100.001)
    assert waits.until(3, 100.001) == pytest.approx(100.0 + MIN_CONNECT_S)
    far = ConnectTimes(5)
    for node in ALL:
        far.connected(node, 0.3, 0.1)
    assert deadline(far, range(4, 5)).until(4, 100.0) == pytest.approx(100.6)


def test_servers_that_hang_are_waited_for_once_and_not_by_every_request() -> None:
    speed = ConnectTimes(5)
    deadline(speed)
    assert deadline(speed, now=104.0).until(0, 104.0) == pytest.approx(105.0)
    assert deadline(speed, now=106.0).until(0, 106.0) == pytest.approx(106.5)
    for node in ALL:
        speed.connected(node, 0.01, 0.001)
    assert deadline(speed, now=110.0).until(0, 110.0) == pytest.approx(115.0)


def test_a_request_that_must_be_over_in_time_leaves_some_of_it_for_the_answer() -> None:
    assert deadline(ConnectTimes(5), total=3.0).until(0, 100.0) == pytest.approx(102.5)
    assert deadline(ConnectTimes(5), total=0.2).until(0, 100.0) == pytest.approx(100.1)


def test_one_connection_that_was_held_up_says_little_of_the_way() -> None:
    speed = ConnectTimes(5)
    for node in ALL:
        speed.connected(node, 0.01, 0.001)
    speed.connected(0, 4.0, 2.0)
    assert speed.round_trip(5) == pytest.approx(0.002)
    assert speed.connecting(5) == pytest.approx(0.02)
    assert speed.round_trip(3) == pytest.approx(0.001)


def test_the_way_to_the_nearest_majority_counts() -> None:
    speed = ConnectTimes(5)
    for node, trip in enumerate((0.3, 0.02, 0.01, 0.2, 0.03)):
        speed.connected(node, 3 * trip, trip)
    assert speed.round_trip(3) == pytest.approx(0.03)
    assert speed.round_trip(5) == pytest.approx(0.3)


def test_a_request_has_its_own_time_after_connecting() -> None:
    cold = timeouts().after(3.0, 2, 0.001)
    assert (cold.longest, cold.timeout) == (0.5, 0.05)


def test_but_a_minority_that_must_be_connected_to_is_waited_for_within_it() -> None:
    assert timeouts().after(0.2, 3, 0.001).longest == pytest.approx(0.3)
    assert timeouts(total=0.6).after(0.2, 2, 0.001).longest == pytest.approx(0.4)


def test_a_caller_in_a_hurry_waits_for_two_round_trips() -> None:
    shortened = Timeouts(0.05, 0.15, 3, CONNECTING, shortened=True)
    assert shortened.after(0.0, 5, 0.15).longest == pytest.approx(0.3)
    assert shortened.after(0.0, 5, 0.001).longest == pytest.approx(0.15)
