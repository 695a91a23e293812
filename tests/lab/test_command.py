"""`interlock lab`: what it says, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from interlock.lab.report import write_history
from interlock.lab.scenarios import NAMES
from tests.lab.command import lab
from tests.lab.report import samples


def test_the_list_names_every_scenario() -> None:
    told = lab("list")
    assert told.returncode == 0
    for name in NAMES:
        assert f"{name} " in told.stdout


def test_the_list_for_programs_is_json() -> None:
    rows = [json.loads(line) for line in lab("list", "--json").stdout.splitlines()]
    assert [row["name"] for row in rows] == list(NAMES)


def test_the_language_is_that_of_the_environment() -> None:
    assert "停顿" in lab("list", LANG="zh_CN.UTF-8").stdout
    assert "停顿" not in lab("list").stdout
    assert "停顿" in lab("list", "--lang", "zh").stdout


def test_an_unknown_scenario_gets_the_nearest_name_and_the_code_of_wrong_usage() -> None:
    told = lab("run", "gc-pausr")
    assert told.returncode == 64
    assert told.stderr == "interlock: there is no scenario 'gc-pausr': did you mean gc-pause?\n"


def test_a_scenario_without_servers_is_played_and_judged(tmp_path: Path) -> None:
    report = tmp_path / "lab.html"
    told = lab("run", "no-lock", "--report", str(report))
    assert told.returncode == 0, told.stdout + told.stderr
    assert "additions were lost" in told.stdout
    assert "All 64 additions are there" in told.stdout
    assert report.read_text().startswith("<!doctype html>")
    again = lab("replay", str(report.with_suffix(".jsonl")))
    assert again.returncode == 0
    assert "All 64 additions are there" in again.stdout


def test_a_history_that_is_broken_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "lab.jsonl"
    file.write_text('{"scenario": "no-lock"}\n{"time": \n')
    told = lab("replay", str(file))
    assert told.returncode == 64
    assert "line 2" in told.stderr


def test_a_history_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    told = lab("replay", str(tmp_path / "none.jsonl"))
    assert told.returncode == 64
    assert told.stderr.endswith("cannot be read: No such file or directory\n")
    assert told.stderr.count("\n") == 1


def test_a_figure_is_drawn_of_one_scenario(tmp_path: Path) -> None:
    history, figure = tmp_path / "lab.jsonl", tmp_path / "lab.svg"
    write_history(history, [samples.gc_pause()])
    lab("replay", str(history), "--figure", str(figure))
    assert ElementTree.fromstring(figure.read_text()).tag.endswith("svg")
    write_history(history, [samples.gc_pause(), samples.crash_before_del()])
    told = lab("replay", str(history), "--figure", str(figure))
    assert (told.returncode, told.stderr) == (
        64,
        "interlock: --figure draws one scenario, and 2 were played\n",
    )


def test_a_missing_server_is_named_with_its_package_and_never_green() -> None:
    told = lab("run", "crash-before-del", PATH="/nonexistent")
    assert told.returncode == 77
    assert "apt-get install redis-server" in told.stdout


@pytest.mark.server
class TestOnARealServer:
    def played(self, *words: str) -> dict[str, Any]:
        told = lab("run", "--json", *words)
        row: dict[str, Any] = json.loads(told.stdout)
        assert told.returncode == 0, row
        return row

    @pytest.mark.parametrize("name", ["crash-before-del", "get-then-del", "gc-pause"])
    def test_the_naive_lock_fails_and_ours_survives(self, name: str) -> None:
        row = self.played(name)
        assert {finding["outcome"] for finding in row["runs"].values()} == {"as_expected"}
