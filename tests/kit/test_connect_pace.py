"""How long a call may take to connect, before and after its client has reached the server."""

from __future__ import annotations

import pytest

from interlock._core import timing
from interlock.backends.kit.connect_pace import ConnectPace, left_after

LIMIT = 5.0
AT_ONCE = timing.patience(0.0)  # what a call with blocking=False gives its store


@pytest.fixture
def near() -> ConnectPace:
    pace = ConnectPace(LIMIT)
    pace.reached(0.01)
    return pace


@pytest.mark.parametrize("timeout", [AT_ONCE, 1.0, 60.0])
def test_the_first_connection_has_its_own_time_which_does_not_count(timeout: float) -> None:
    pace = ConnectPace(LIMIT)
    assert pace.within(timeout) == LIMIT
    assert not pace.counts(timeout)


@pytest.mark.parametrize("timeout", [0.3, 1.0, 4.0])
def test_a_later_one_counts_within_the_time_of_its_caller(near: ConnectPace, timeout: float) -> None:
    assert near.within(timeout) == timeout
    assert near.counts(timeout)
    assert near.within(60.0) == LIMIT


def test_a_caller_that_does_not_wait_gives_what_the_last_one_took_and_a_second(near: ConnectPace) -> None:
    assert near.within(AT_ONCE) == pytest.approx(1.01)
    assert not near.counts(AT_ONCE)
    near.reached(0.7)
    assert near.within(AT_ONCE) == pytest.approx(1.7)
    near.reached(4.9)
    assert near.within(AT_ONCE) == LIMIT


def test_a_caller_whose_grace_is_used_up_is_not_taken_for_one_that_does_not_wait(near: ConnectPace) -> None:
    assert near.within(timing.patience(-1.0)) == pytest.approx(0.02)


def test_a_distant_server_can_be_reached_again_however_short_the_timeout(near: ConnectPace) -> None:
    near.reached(0.6)
    assert near.within(0.3) == pytest.approx(1.2)


def test_a_request_keeps_its_grace_after_connecting() -> None:
    assert left_after(1.0, 0.4) == pytest.approx(0.6)
    assert left_after(1.0, 0.99) == timing.GRACE_S
    assert left_after(0.05, 0.05) == 0.05
