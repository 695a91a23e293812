"""The watch on clocks: what drift explains is excused, what it does not is a jump."""

from __future__ import annotations

import random

import pytest

from interlock.backends.redlock.algorithm.clock import DRIFT_PART, SLACK_S, ClockWatch
from interlock.backends.redlock.algorithm.membership import Membership


def watched(*readings: tuple[float, float, float]) -> list[float]:
    """The verdict on each reading: the node's clock, sent, received, all in seconds."""
    watch = ClockWatch()
    return [watch.observe(round(clock * 1e6), sent, received) for clock, sent, received in readings]


def test_the_first_reading_is_taken_as_it_is() -> None:
    assert watched((1e9, 5.0, 5.001)) == [0.0]


def test_a_clock_that_runs_as_ours_does_is_steady() -> None:
    assert not any(watched(*((1000.0 + t, 5.0 + t - 0.001, 5.0 + t + 0.001) for t in range(100))))


@pytest.mark.parametrize("jump", [0.02, 3600.0, -0.02, -3600.0])
def test_a_jump_either_way_is_seen_and_told_about(jump: float) -> None:
    before, after = watched((1000.0, 5.0, 5.001), (1000.01 + jump, 5.01, 5.011))
    assert before == 0.0
    assert abs(after - jump) < 0.005


def test_a_slow_reply_excuses_what_it_may_have_waited() -> None:
    assert watched((1000.0, 5.0, 5.001), (1003.0, 5.0, 9.0)) == [0.0, 0.0]


def test_a_jump_within_one_slow_reply_is_seen_once_a_quick_one_comes() -> None:
    verdicts = watched((1000.0, 5.0, 5.001), (1003.0, 5.5, 9.0), (1007.9, 9.0, 9.001))
    assert [bool(verdict) for verdict in verdicts] == [False, False, True]


def test_drift_while_a_reply_was_late_is_no_jump() -> None:
    rate = 1 + DRIFT_PART * 0.9
    assert not any(watched((1000.0, 5.0, 9.0), (1000.0 + 4.01 * rate, 9.01, 9.011)))


@pytest.mark.parametrize("rate", [1 + DRIFT_PART * 0.9, 1 - DRIFT_PART * 0.9])
def test_drift_within_its_bound_is_no_jump(rate: float) -> None:
    readings = [(1000.0 + t * rate, 5.0 + t, 5.0 + t + 0.0005) for t in (n * 0.37 for n in range(400))]
    assert not any(watched(*readings))


def test_many_small_steps_are_a_jump_in_the_end() -> None:
    readings = [
        (1000.0 + n * (0.001 + SLACK_S * 0.4), 5.0 + n * 0.001, 5.0 + n * 0.001 + 1e-4) for n in range(50)
    ]
    assert any(watched(*readings))


def test_honest_clocks_are_never_accused_whatever_the_network_does() -> None:
    chance = random.Random(7)
    for _ in range(200):
        watch, rate, true = ClockWatch(), 1 + chance.uniform(-DRIFT_PART, DRIFT_PART) * 0.9, 100.0
        for _ in range(50):
            true += chance.expovariate(1.0)
            way = chance.expovariate(100.0)
            back = chance.expovariate(100.0)
            clock = 5000.0 + (true + way) * rate
            assert watch.observe(round(clock * 1e6), true, true + way + back) == 0.0


def ails(members: Membership) -> bool:
    return bool(members.unhealthy)


def test_a_node_whose_clock_jumped_does_not_count_until_the_longest_ttl_has_passed() -> None:
    members = Membership(["a", "b", "c"])
    members.note_ttl(10.0)
    assert members.counts(1, 1_000_000_000, 5.0, 5.001)
    assert not members.counts(1, 1_900_000_000, 5.01, 5.011)
    assert members.counts(0, 7_000_000_000, 5.0, 5.001)
    assert ails(members)
    members.settle_jump(1, 20.0)  # others hold for longer than we do
    assert not ails(members)
    assert not members.counts(1, 1_900_000_000 + 19_000_000, 24.01, 24.011)
    assert members.counts(1, 1_900_000_000 + 20_300_000, 25.31, 25.311)


def test_a_node_whose_clock_jumped_does_not_count_before_it_has_told_its_longest_ttl() -> None:
    members = Membership(["a", "b", "c"])
    members.counts(1, 1_000_000_000, 5.0, 5.001)
    members.counts(1, 1_900_000_000, 5.01, 5.011)
    assert not members.counts(1, 2_900_000_000, 1005.01, 1005.011)
