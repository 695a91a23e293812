"""Who holds a claim, on its way through a store: four fields, and a fifth where the kind must be told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@given(st.text(), st.integers(0, 2**31), st.text(), st.text(), st.text())
def test_everything_packed_is_read_again(host: str, pid: int, thread: str, site: str, kind: str) -> None:
    who = Who(host, pid, thread, site, kind)
    assert Who.parse(who.pack()) == who
