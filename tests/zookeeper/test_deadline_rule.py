"""From when a session's time counts: only from a write that a later write has proved."""

from __future__ import annotations

import random

import pytest

from interlock.backends.zookeeper.deadline_rule import APART, ConfirmedWrites

T = 8.0  # seconds: a quarter is 2


def test_a_session_counts_from_before_it_began() -> None:
    assert ConfirmedWrites(T, 100.0).ends == 108.0


def test_a_single_write_proves_nothing_of_itself() -> None:
    writes = ConfirmedWrites(T, 100.0)
    writes.confirm(105.0, 105.1)
    assert writes.ends == 108.0


def test_a_write_a_quarter_later_proves_the_earlier_one() -> None:
    writes = ConfirmedWrites(T, 100.0)
    writes.confirm(103.0, 103.1)
    writes.confirm(105.1, 105.2)
    assert writes.ends == 103.0 + T


def test_the_quarter_counts_from_the_answer_of_the_earlier_one() -> None:
    """The report that names a write comes after the follower has it, which may be long after it was sent."""
    writes = ConfirmedWrites(T, 100.0)
    writes.confirm(103.0, 104.5)
    writes.confirm(105.1, 105.2)
    assert writes.ends == 100.0 + T
    writes.confirm(106.5, 106.6)
    assert writes.ends == 103.0 + T


def test_many_writes_in_a_moment_prove_nothing_of_each_other() -> None:
    writes = ConfirmedWrites(T, 100.0)
    for number in range(1000):
        writes.confirm(101.0 + number / 1000, 101.0005 + number / 1000)
    assert writes.ends == 108.0


def test_it_never_counts_from_a_write_that_is_not_proved_and_remembers_few() -> None:
    chance, now = random.Random(7), 0.0
    writes, history = ConfirmedWrites(T, 0.0), list[tuple[float, float]]()
    for _ in range(5000):
        now += chance.expovariate(20.0)
        sent, now = now, now + chance.expovariate(50.0)
        writes.confirm(sent, now)
        history.append((sent, now))
        proved = [s for s, answered in history if answered + T * APART <= sent]
        assert writes.counts_from <= max(proved, default=0.0)
        assert writes.counts_from >= max(proved, default=0.0) - T / 16  # and loses little by its grain
        assert len(writes._unproved) <= 40
        history = history[-2000:]


def test_it_says_when_the_next_write_would_help() -> None:
    writes = ConfirmedWrites(T, 100.0)
    assert writes.next_proof() is None
    writes.confirm(103.0, 103.5)
    assert writes.next_proof() == 105.5


def test_a_connection_that_negotiates_less_shortens_the_session_from_its_beginning() -> None:
    writes = ConfirmedWrites(T, 100.0)
    assert writes.renegotiated(2.0, asked=103.0)
    assert (writes.timeout, writes.ends) == (2.0, 105.0)


def test_a_session_that_ends_sooner_anyway_lives_no_longer_for_a_new_connection() -> None:
    """That the server has asked the leader is not proved: the leader may be deposed by then."""
    writes = ConfirmedWrites(T, 100.0)
    writes.renegotiated(2.0, asked=107.0)
    assert writes.ends == 108.0


def test_a_longer_timeout_counts_for_writes_of_its_own_connection_only() -> None:
    writes = ConfirmedWrites(T, 100.0)
    writes.confirm(102.0, 102.1)
    assert not writes.renegotiated(4 * T, asked=104.0)
    assert writes.ends == 100.0 + T
    writes.confirm(105.0, 105.1)
    writes.confirm(105.1 + 4 * T * APART, 114.0)
    assert writes.ends == 105.0 + 4 * T


def test_the_same_timeout_changes_nothing() -> None:
    writes = ConfirmedWrites(T, 100.0)
    writes.confirm(102.0, 102.1)
    assert not writes.renegotiated(T, asked=104.0)
    writes.confirm(105.0, 105.1)
    assert writes.ends == 102.0 + T


def test_a_session_that_may_live_longer_is_proved_as_soon_as_the_shorter_one() -> None:
    """Otherwise leases of the short time end before the first proof of the long one."""
    writes = ConfirmedWrites(15.0, began=0.0)
    writes.renegotiated(2.0, asked=10.0)
    writes.renegotiated(15.0, asked=11.0)
    writes.confirm(sent=11.1, answered=11.2)
    assert writes.next_proof() == pytest.approx(11.7)
    writes.confirm(sent=11.7, answered=11.8)
    assert writes.ends == pytest.approx(26.1)
