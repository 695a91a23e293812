"""The pure parts: ages, escapes, columns, times of grace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.cli import formatting, table, termination
from interlock.errors import InvalidSetting


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "<1 s"),
        (0.4, "<1 s"),
        (41.9, "41 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
        (3 * 86400 + 4 * 3600, "3 d 4 h"),
    ],
)
def test_an_age_has_two_units_at_most(seconds: float, text: str) -> None:
    assert formatting.age(seconds) == text


@given(st.text())
def test_printable_text_has_nothing_in_it_that_moves_a_cursor(text: str) -> None:
    shown = formatting.printable(text)
    assert shown.replace(formatting.JOINER, "").isprintable()


def test_printable_text_is_left_as_it_is() -> None:
    for text in ("plain", "größer", "日本", "👩\u200d🚀", "back\\slash"):
        assert formatting.printable(text) == text


@given(st.text(st.characters(exclude_categories=["C", "Z"])), st.integers(3, 40))
def test_cut_text_is_never_wider_than_its_column(text: str, width: int) -> None:
    assert table.columns(table.cut(text, width)) <= width


def test_cut_text_keeps_both_ends() -> None:
    assert table.cut("orders/2024/customer/42", 11) == "order…er/42"


def test_a_long_name_is_cut_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one tenant's long names make `ls` and `top` slow for everybody."""
    looked, counted = 0, table.columns

    def counting(text: str) -> int:
        nonlocal looked
        looked += len(text)
        return counted(text)

    monkeypatch.setattr(table, "columns", counting)
    assert counted(table.cut("界" * 2000, 41)) <= 41
    assert looked < 20_000


def test_the_widest_column_gives_way() -> None:
    (line,) = table.lines([("x" * 100, "short", "y" * 30)], 70)
    assert sum(map(len, line)) + 2 * len(table.GAP) == 70
    assert line[1:] == ["short", "y" * 30]


def test_a_row_of_cells_too_many_to_fit_is_still_shown() -> None:
    (line,) = table.lines([("x" * 20,) * 6], 10)
    assert all(len(cell) == table.MIN_COLUMN_WIDTH for cell in line)


class TestGrace:
    @given(st.floats(0.01, 1e6))
    def test_a_renewal_at_a_third_of_the_ttl_is_always_in_time(self, ttl: float) -> None:
        for asked in (None, ttl / 2):
            left = termination.term_at(0.98 * ttl, ttl, termination.checked_grace(asked, ttl))
            assert left > ttl / 3 * 1.2

    @given(st.floats(0.01, 1e6), st.floats(0, 1))
    def test_term_comes_before_kill_and_kill_before_the_end(self, ttl: float, part: float) -> None:
        deadline, time = 0.98 * ttl, termination.checked_grace(part * ttl / 2, ttl)
        assert termination.term_at(deadline, ttl, time) <= termination.kill_at(deadline, ttl) < deadline

    @pytest.mark.parametrize("bad", [-1.0, 5.1, float("nan"), float("inf")])
    def test_a_grace_that_does_not_fit_is_refused_with_the_bound(self, bad: float) -> None:
        with pytest.raises(InvalidSetting, match="5 s"):
            termination.checked_grace(bad, 10.0)
