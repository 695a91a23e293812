"""When a lease ends, and which durations are taken."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock._core import timing
from interlock.backends.memory import TRAITS
from interlock.errors import InvalidSetting

durations = st.floats(0.01, 365 * 86400.0)


@given(st.floats(0, 1e9), durations)
def test_a_holder_knows_of_the_end_before_the_store_forgets(asked: float, ttl: float) -> None:
    assert asked - 0.01 < timing.deadline(asked, ttl) < asked + ttl


@given(durations)
def test_a_lease_is_renewed_with_time_for_a_second_try(ttl: float) -> None:
    assert 2 * timing.renew_every(ttl) < ttl - timing.margin(ttl) + 0.01


@given(durations)
def test_a_dead_waiter_is_in_the_way_for_ten_seconds_at_most(ttl: float) -> None:
    assert 0 < timing.place_ttl(ttl) <= min(ttl, 10.0)


@pytest.mark.parametrize("ttl", [0, -1, 0.001, math.nan, math.inf, -math.inf, 1e12, 10**400])
def test_a_ttl_out_of_range_is_refused(ttl: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"ttl must be between 0\.01 s and 365 d on memory, not "):
        timing.checked_ttl(ttl, TRAITS)


@pytest.mark.parametrize("ttl", [None, "5", True, [], 1j])
def test_a_ttl_that_is_no_number_is_a_type_error(ttl: Any) -> None:
    with pytest.raises(TypeError, match="ttl must be a number of seconds"):
        timing.checked_ttl(ttl, TRAITS)


@pytest.mark.parametrize(
    ("blocking", "timeout", "otherwise", "wait"),
    [
        (True, -1, None, None),  # for ever, as threading
        (True, None, None, None),
        (True, -1, 7.0, 7.0),  # the lock's own timeout
        (True, 3, 7.0, 3.0),
        (True, 0, 7.0, 0.0),
        (False, -1, 7.0, 0.0),
        (False, None, None, 0.0),
    ],
)
def test_how_long_an_acquire_waits(
    blocking: bool, timeout: float | None, otherwise: float | None, wait: float | None
) -> None:
    assert timing.checked_wait(blocking, timeout, otherwise) == wait


@pytest.mark.parametrize(
    ("blocking", "timeout", "kind"),
    [
        (False, 1, ValueError),
        (False, 0, ValueError),
        (True, -2, ValueError),
        (True, -0.5, ValueError),
        (True, math.nan, ValueError),
        (True, math.inf, OverflowError),
        (True, 1e100, OverflowError),
        (True, 10**400, OverflowError),
        (True, "1", TypeError),
        (True, True, TypeError),
    ],
)
def test_a_bad_timeout_is_refused_as_threading_does(
    blocking: bool, timeout: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        timing.checked_wait(blocking, timeout, None)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf])
def test_a_bad_duration_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidSetting, match="max_hold must be a positive number of seconds or None"):
        timing.checked_duration(seconds, "max_hold")


@pytest.mark.parametrize(
    ("count", "kind"),
    [
        (0, ValueError),
        (-1, ValueError),
        (2**31, ValueError),
        (True, TypeError),
        (1.0, TypeError),
        ("1", TypeError),
    ],
)
def test_a_bad_count_is_refused(count: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="capacity must be"):
        timing.checked_count(count, "capacity")


@given(st.floats(-100, 100))
def test_a_request_never_outlasts_its_callers_time_by_much(left: float) -> None:
    assert 0 < timing.patience(left) <= max(left, 0) + timing.GRACE_S
