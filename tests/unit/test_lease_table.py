"""The life of a lease is a table; this reads it."""

from __future__ import annotations

from itertools import product

import pytest

from interlock._core.states import FINAL, TRANSITIONS, LeaseEvent, State

EVERYWHERE = list(product(State, LeaseEvent))


def test_the_table_has_an_answer_for_everything() -> None:
    assert set(TRANSITIONS) == set(State)
    assert all(set(row) == set(LeaseEvent) for row in TRANSITIONS.values())


@pytest.mark.parametrize(("state", "event"), EVERYWHERE, ids=lambda part: part.value)
def test_what_is_final_stays(state: State, event: LeaseEvent) -> None:
    if state in FINAL:
        assert TRANSITIONS[state][event] is state


def test_no_answer_is_doubt_and_not_a_loss() -> None:
    assert TRANSITIONS[State.HELD][LeaseEvent.NO_ANSWER] is State.DOUBTFUL
    assert TRANSITIONS[State.DOUBTFUL][LeaseEvent.NO_ANSWER] is State.DOUBTFUL
    assert TRANSITIONS[State.DOUBTFUL][LeaseEvent.RENEWED] is State.HELD


@pytest.mark.parametrize("state", [State.HELD, State.DOUBTFUL])
def test_a_refusal_and_the_clock_both_end_it(state: State) -> None:
    assert TRANSITIONS[state][LeaseEvent.REFUSED] is State.LOST
    assert TRANSITIONS[state][LeaseEvent.LAPSED] is State.LOST
    assert TRANSITIONS[state][LeaseEvent.RELEASE] is State.RELEASED
