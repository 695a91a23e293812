"""docs/reliability.md is made from the lines of soaks: its sections are found again, and a table has every kind."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.lab.storm.tally import SECTIONS, matrix, published, summary
from tests.house.source import ROOT

PAGE = ROOT / "docs" / "reliability.md"


def line(kind: str, **rest: Any) -> dict[str, Any]:
    faults = {"frozen": 3, "flushed": 2}
    numbers = {"grants": 100, "register writes": 0, "refused writes": 4, "longest pause": 1.25}
    said = {"kind": kind, "synchronizer": "lock", "seed": 7, "at": "2026-11-19T01:00:00+00:00", "took": 90.0}
    rows = {"frozen": "server E", "flushed": "amnesia L"}
    more = {"violations": [], "versions": ["Redis 7.0.15"], "why": "", "commit": "abc", "rows": rows}
    return {**said, **more, "faults": faults, "numbers": numbers, **rest}


def test_the_sections_of_the_page_are_made_anew_and_all_else_stays() -> None:
    before = PAGE.read_text(encoding="utf-8")
    after = published(before, [line("durable"), line("etcd", seed=8)])
    assert published(after, [line("durable"), line("etcd", seed=8)]) == after
    assert after.count("<!-- soak: ") == len(SECTIONS)
    assert "**200 grants**" in after
    assert "**10 faults**" in after
    assert "**no violation**" in after
    assert [row for row in before.splitlines() if row.startswith("#")] == [
        row for row in after.splitlines() if row.startswith("#")
    ]


def test_a_page_without_a_section_is_refused() -> None:
    with pytest.raises(ValueError, match="no section"):
        published("# A page", [line("durable")])


def test_the_matrix_has_a_column_for_each_kind_and_counts_faults_by_their_rows() -> None:
    head, _, *rows = matrix([line("durable"), line("sqlite", faults={"frozen": 1})])
    assert head == "| fault | durable | sqlite |"
    cells = {row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:4]] for row in rows}
    frozen = next(cells[text] for text in cells if text.startswith("a server freezes"))
    assert frozen == ["E: 3", "E: 1"]
    assert next(cells[text] for text in cells if text.startswith("a server loses")) == ["L: 2", "-"]


def test_a_round_without_a_verdict_is_told_and_counts_nothing() -> None:
    told = summary([line("durable"), line("etcd", numbers={}, why="etcd is not installed")])
    assert told[0] == "1 rounds: 100 grants, 0 register writes, 5 faults, 0 violations"
    assert told[-1] == "  etcd, seed 7: etcd is not installed"
