"""Data as parts of sentences."""

from __future__ import annotations

import pytest

from interlock.wording import counted, duration, either, printable


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-0.01, "0.0 s"),
        (0.0, "0.0 s"),
        (0.34, "0.3 s"),
        (5.0, "5.0 s"),
        (9.949, "9.9 s"),
        (9.96, "10 s"),
        (41.2, "41 s"),
        (59.6, "1 min"),
        (200.0, "3 min 20 s"),
        (3599.7, "1 h"),
        (7200.0, "2 h"),
        (7500.0, "2 h 5 min"),
        (86400.0, "1 d"),
        (273600.0, "3 d 4 h"),
    ],
)
def test_a_duration_is_told_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_choice_is_joined_with_or() -> None:
    assert either(["a"]) == "a"
    assert either(["a", "b"]) == "a or b"
    assert either(["a", "b", "c"]) == "a, b or c"


def test_one_thing_is_not_told_in_the_plural() -> None:
    assert [counted(number, "claim") for number in (0, 1, 2)] == ["0 claims", "1 claim", "2 claims"]


def test_what_could_forge_a_line_or_move_a_cursor_is_escaped() -> None:
    assert printable("höst 🔒 日本") == "höst 🔒 日本"
    assert printable("a\nb\x1b[2J\u202ec") == "a\\nb\\x1b[2J\\u202ec"
