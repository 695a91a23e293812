"""Who holds a claim, on its way through a store: four fields, and a fifth where the kind must be told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import events
from interlock.model import Standing
from interlock.who import Who

PLAIN = Who("web-1", 211, "MainThread", "billing/run.py:88")


def test_a_kind_is_packed_only_where_there_is_one() -> None:
    assert json.loads(PLAIN.pack()) == ["web-1", 211, "MainThread", "billing/run.py:88"]
    election = Who("web-1", 211, "", "", "election")
    assert json.loads(election.pack())[4] == "election"
    assert Who.parse(election.pack()) == election


def test_records_of_four_fields_and_of_more_are_read() -> None:
    assert Who.parse('["web-1",211,"MainThread","billing/run.py:88"]') == PLAIN
    assert Who.parse('["web-1",211,"t","s","election","of a later version"]').kind == "election"


@pytest.mark.parametrize(
    "text", ["", "another program", '"h1ts and more"', "[]", "7", '{"a": 1}', '["a","b","c","d"]']
)
def test_text_of_other_programs_is_shown_as_it_is(text: str) -> None:
    assert Who.parse(text) == Who(host=text)


@pytest.mark.parametrize("text", ["[" * 100_000, f"{'[' * 900}{']' * 900}", '["h",1e999,"",""]'])
def test_text_that_was_made_to_hurt_is_shown_as_it_is(text: str) -> None:
    assert Who.parse(text).host.startswith(text[:1])


@given(st.text(), st.integers(0, 2**31), st.text(), st.text(), st.text())
def test_everything_packed_is_read_again(host: str, pid: int, thread: str, site: str, kind: str) -> None:
    who = Who(host, pid, thread, site, kind)
    assert Who.parse(who.pack()) == who


@pytest.mark.parametrize("words", ["a\nb", "\x1b[31m", "\u202e", "\x9b"])
def test_words_of_others_draw_nothing_on_a_terminal(words: str) -> None:
    assert str(Who("h" + words, 1, "t" + words, "s" + words)).isprintable()
    for event in (
        events.OwnerEnded("x", 7, words, 1.0),
        events.WaitingForItself("x", words, 7),
        events.Doubtful("x", 7, 1.0, words),
        events.CleanupFailed("x", words),
        events.KeeperFailed(words),
        events.CallbackFailed(words),
    ):
        assert str(event).isprintable()


def test_a_standing_tells_its_caller_in_words() -> None:
    standing = Standing("id", 7, 1, True, 41.0, 20.0, "", PLAIN.pack())
    assert standing.caller == PLAIN
    assert str(standing.caller) == "web-1 pid 211 MainThread (billing/run.py:88)"
