"""The histories beside a report: kept whole, read back, judged again, and a broken line is found."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from interlock.lab.report import BrokenHistory, read_history, write_history, write_report
from tests.lab.report import samples

HEAD = '{"scenario": "gc-pause", "ttl": 1.0}'
RECORD = '{"time": 1.0, "process": "A", "call": "grant", "kind": "ok"}'


def test_a_history_is_read_back_and_judged_to_the_same_verdict(tmp_path: Path) -> None:
    played = [samples.split_brain(), samples.missing(), samples.flash_sale()]
    write_history(tmp_path / "lab.jsonl", played)
    kept = read_history(tmp_path / "lab.jsonl")
    assert [one.scenario for one in kept] == ["split-brain", "etcd-pause", "flash-sale"]
    for before, one in zip(played, kept, strict=True):
        after = one.judged(before.scenario)
        assert after.findings == before.findings
        assert (after.seed, after.versions, after.skipped, after.missing) == (
            before.seed, before.versions, before.skipped, before.missing,
        )  # fmt: skip
        assert {name: run.facts() for name, run in after.runs.items()} == {
            name: run.facts() for name, run in before.runs.items()
        }


def test_the_history_lies_beside_the_page(tmp_path: Path) -> None:
    made = datetime(2026, 11, 19, tzinfo=UTC)
    write_report(tmp_path / "lab.html", [samples.gc_pause()], made=made, machine="here")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lab.html", "lab.jsonl"]
    assert 'href="lab.jsonl"' in (tmp_path / "lab.html").read_text("utf-8")
    assert len(read_history(tmp_path / "lab.jsonl")[0].records) == 79


@pytest.mark.parametrize(
    ("lines", "number", "why"),
    [
        ([HEAD, RECORD, '{"time": 1.0,'], 3, "this is no JSON"),
        ([HEAD, "", "[1, 2]"], 3, "no record"),
        ([RECORD], 1, "before the line that names its scenario"),
        ([HEAD, RECORD.replace('"time": 1.0', '"time": "soon"')], 2, "time must be a number"),
        ([HEAD, RECORD.replace('"kind"', '"kin"')], 2, "no kind"),
        ([HEAD, RECORD.replace('"ok"', '"maybe"')], 2, "'maybe'"),
        (['{"scenario": "gc-pause", "ttl": "long"}'], 1, "ttl must be a number"),
        (['{"scenario": 5}'], 1, "scenario must be a text"),
        (['{"scenario": "gc-pause", "colour": "red"}'], 1, "colour"),
        (["\x00\ufffd"], 1, "no JSON"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, lines: list[str], number: int, why: str) -> None:
    path = tmp_path / "lab.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(BrokenHistory, match=f"lab.jsonl, line {number}: ") as caught:
        read_history(path)
    assert caught.value.line == number
    assert why in str(caught.value)


def test_bytes_that_are_no_text_are_a_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "lab.jsonl"
    path.write_bytes(HEAD.encode() + b"\n\xff\xfe\x00\n")
    with pytest.raises(BrokenHistory, match="line 2"):
        read_history(path)


def test_fields_that_a_later_version_adds_to_records_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "lab.jsonl"
    path.write_text(
        HEAD + "\n" + json.dumps({**json.loads(RECORD), "colour": "red"}) + "\n", encoding="utf-8"
    )
    (kept,) = read_history(path)
    assert kept.records[0].process == "A"
