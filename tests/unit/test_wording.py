"""Data as parts of sentences."""

from __future__ import annotations

import re

import pytest

from interlock._support.wording import counted, duration, either, one_sentence, printable
from tests.house.source import SRC


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-0.01, "0.0 s"),
        (0.0, "0.0 s"),
        (0.000879, "1 ms"),
        (1e-9, "1 ms"),
        (0.0421, "42 ms"),
        (0.0994, "99 ms"),
        (0.0996, "0.1 s"),
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


AS_GIVEN = {"_core/timing.py", "cli/termination.py"}  # they quote a setting, digit by digit
ITS_OWN = {
    "_support/wording.py",
    "cli/quorum_report.py",
}  # the latter shows by how much clocks differ, with a sign


def test_every_sentence_rounds_its_durations_in_the_same_way() -> None:
    """`no answer within 0.000879 s` is for nobody."""
    package = SRC / "interlock"
    files = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    rounding = re.compile(r"\{[^{}]+:[^{}]*[fg]\} ?(s|seconds)\b")
    found = {name for name, path in files.items() if rounding.search(path.read_text(encoding="utf-8"))}
    assert {name for name in found if not name.startswith(("lab/", "testing/"))} == AS_GIVEN | ITS_OWN


def test_a_choice_is_joined_with_or() -> None:
    assert either(["a"]) == "a"
    assert either(["a", "b"]) == "a or b"
    assert either(["a", "b", "c"]) == "a, b or c"


def test_one_thing_is_not_told_in_the_plural() -> None:
    assert [counted(number, "claim") for number in (0, 1, 2)] == ["0 claims", "1 claim", "2 claims"]


def test_what_could_forge_a_line_or_move_a_cursor_is_escaped() -> None:
    assert printable("höst 🔒 日本") == "höst 🔒 日本"
    assert printable("a\nb\x1b[2J\u202ec") == "a\\nb\\x1b[2J\\u202ec"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("", ""),
        (
            "port 1 failed: Connection refused\n\tIs the server running on that host?\n",
            "port 1 failed: Connection refused; is the server running on that host",
        ),
        (
            "server closed the connection\n\tThis probably means the server terminated\n\tbefore the request.\n",
            "server closed the connection; this probably means the server terminated before the request",
        ),
        ("first  failed\nSSL was refused", "first failed; SSL was refused"),
    ],
)
def test_the_lines_of_a_library_become_one_sentence(said: str, sentence: str) -> None:
    assert one_sentence(said) == sentence
