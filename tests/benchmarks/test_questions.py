"""The benchmarks measure what they say, and one that breaks does not cost the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from benchmarks import history
from benchmarks.__main__ import STORES, ask_all, load, select
from benchmarks.contended import figure, jain
from benchmarks.counting import calls_of
from benchmarks.question import Case, Figure, Measure, Question, Result
from benchmarks.rounds import ratio
from tests.house.source import ROOT

KNOWN = load()
ALL = [question for questions in KNOWN.values() for question in questions]


@contextmanager
def quiet() -> Iterator[Measure]:
    yield lambda: 1.0


def broken() -> AbstractContextManager[Measure]:
    raise RuntimeError("no such server")


def test_every_question_has_a_name_of_its_own() -> None:
    names = [question.name for question in ALL]
    assert len(set(names)) == len(names)


def test_a_question_begins_with_the_name_of_its_store_so_that_its_peers_are_installed() -> None:
    for store, questions in KNOWN.items():
        names = [question.name for question in questions]
        assert store == "embedded" or all(name.startswith(f"{store}-") for name in names), names


def test_every_group_of_peers_belongs_to_a_store() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert {name for name in groups if name.startswith("bench")} <= {f"bench-{store}" for store in STORES}


def test_a_store_or_the_beginning_of_a_name_selects_questions() -> None:
    assert select(KNOWN, ["redlock"]) == KNOWN["redlock"]
    assert select(KNOWN, ["embedded"]) == KNOWN["embedded"]
    assert [q.name for q in select(KNOWN, ["redis-pair"])] == ["redis-pair", "redis-pair-async"]
    assert select(KNOWN, []) == ALL
    with pytest.raises(LookupError, match="redis-pear"):
        select(KNOWN, ["redis-pear"])


@pytest.mark.parametrize("question", ALL, ids=lambda question: question.name)
def test_a_question_judges_one_of_its_cases_and_never_the_limit(question: Question) -> None:
    assert question.judged in [case.name for case in question.cases[1:]]


def test_a_hand_off_is_a_change_of_owner() -> None:
    told = [
        [[0.1, 0.2, 0.3], []],
        [[0.4], [0.6, 9.0]],
    ]  # the first takes again at once, twice; 9.0 is too late
    seen = figure(told, asked=12, spent=0.0, begin=0.0, end=1.0)
    assert seen.facts["hand offs a second"] == 2
    assert seen == 0.5
    assert seen.facts["between processes"] == 0.5
    assert seen.facts["requests a grant"] == 2


@pytest.mark.parametrize(("counts", "index"), [([5, 5, 5, 5], 1.0), ([8, 0, 0, 0], 0.25), ([0, 0], 0.0)])
def test_jains_index_is_one_when_all_had_the_lock_equally_often(counts: list[int], index: float) -> None:
    assert jain(counts) == index


def test_a_ratio_compares_within_rounds_before_the_median_is_taken() -> None:
    question = Question("q", "", [Case("limit", quiet), Case("interlock", quiet)])
    result = Result(question, 1, {"limit": [1.0, 10.0, 2.0], "interlock": [2.0, 20.0, 40.0]})
    assert ratio(result, "interlock") == 2.0


def test_facts_are_the_medians_of_what_was_seen() -> None:
    result = Result(Question("q", "", []), 1, {"interlock": [Figure(1.0, Jain=n) for n in (0.1, 0.9, 0.5)]})
    assert result.facts("interlock") == {"Jain": 0.5}


def test_a_question_that_breaks_does_not_cost_the_others_their_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.rounds.pin", lambda cores: None)  # or all later tests run on one core
    cases = [Case("limit", quiet), Case("interlock", quiet)]
    asked = [(Question("bad", "", [Case("limit", broken)]), 1), (Question("good", "", cases), 1)]
    assert ask_all(asked, 1, tmp_path) == 1
    assert "no such server" in capsys.readouterr().out
    kept = json.loads((tmp_path / "results.json").read_text())
    assert [answer["question"] for answer in kept["answers"]] == ["good"]


def bench(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *args],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )


def test_an_unknown_question_is_told_to_be_unknown() -> None:
    told = bench("redis-pear")
    assert told.returncode == 2
    assert "no such question: redis-pear" in told.stderr


@pytest.mark.slow
def test_contenders_of_two_processes_hand_one_lock_to_each_other(tmp_path: Path) -> None:
    """One question end to end: processes, servers, rounds, JSON, chart."""
    args = ("--quick", "--rounds", "1", "--cores", "1", "--out", str(tmp_path), "redis-contended-2")
    told = bench(*args)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "[1/1] redis-contended-2: 1 rounds on 1 core" in told.stderr
    (answer,) = json.loads((tmp_path / "results.json").read_text())["answers"]
    for case in ("ownership moved, PUBLISH", "interlock"):
        facts = answer["cases"][case]["facts"]
        assert facts["between processes"] == 1, case
        assert facts["Jain"] > 0.9, case
        assert 1.9 < facts["requests a grant"] < 3, case
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")


# ---- results by commit ----------------------------------------------------------------------


def measured(ratio: float, calls: float) -> Result:
    question = Question("redis-pair", "", [Case("limit", quiet), Case("interlock", quiet)])
    return Result(question, 1, {"limit": [1.0], "interlock": [Figure(ratio, python_calls=calls)]})


def test_a_slower_pair_is_named_with_the_commit_that_was_quicker(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    assert history.record([measured(2.0, 60)], file, "aaa") == []
    assert history.record([measured(2.1, 60)], file, "bbb") == []  # noise
    (slower,) = history.record([measured(3.0, 60)], file, "ccc")
    assert slower == "redis-pair (1 core): 3.00x, was 2.10x at bbb"
    (more,) = history.record([measured(3.0, 66)], file, "ddd")
    assert more == "redis-pair (1 core): python calls 66, was 60 at ccc"
    assert [row["commit"] for row in history.read(file)] == ["aaa", "bbb", "ccc", "ddd"]


def test_the_history_that_is_kept_can_be_read() -> None:
    names = {question.name for question in ALL}
    for row in history.read():
        assert row["question"] in names
        assert float(row["ratio"]) > 0
        assert history.worse(row, row) == []


def test_calls_are_counted_for_one_pair() -> None:
    def inner() -> None: ...

    def pair() -> None:
        inner()
        inner()

    assert calls_of(pair) == 2
