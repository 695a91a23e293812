"""`interlock lab chaos`, `lab model` and the replay of a storm: what they say, how they exit, and what they leave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import pytest

from interlock.lab.storm.deployments import KINDS
from interlock.testing.patience import until
from tests.environment import environment
from tests.lab.command import lab

HEAD = {
    "storm": "sqlite", "seed": 1, "synchronizer": "lock", "ttl": 1.0, "progress": 5.0, "tolerance": 0.7,
    "resources": ["orders"],
}  # fmt: skip
GRANT = {
    "time": 1.0, "process": "p1", "call": "grant", "kind": "ok", "attempt": "a/1", "resource": "orders",
    "token": 7, "deadline": 2.0, "began": 0.9,
}  # fmt: skip
END = {"time": 1.1, "process": "p1", "call": "end", "kind": "ok", "attempt": "a/1", "deadline": 2.0}


def written(tmp_path: Path, *lines: object) -> Path:
    file = tmp_path / "storm.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("".join(f"{text}\n" for text in texts))
    return file


@pytest.mark.slow
def test_a_storm_over_a_file_is_judged_and_its_history_is_judged_again(tmp_path: Path) -> None:
    page = tmp_path / "storm.html"
    told = lab("chaos", "sqlite", "--seconds", "2", "--report", str(page))
    assert told.returncode == 0, told.stdout + told.stderr
    assert "nothing happened that must never happen" in told.stdout
    assert "again: interlock lab chaos sqlite --seconds 2 --seed 1\n" in told.stdout
    assert "<svg" in page.read_text()
    again = lab("replay", str(page.with_suffix(".jsonl")), "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["numbers"]["grants"] > 0


def test_an_unknown_kind_gets_the_nearest_name_and_the_code_of_wrong_usage() -> None:
    told = lab("chaos", "redlok")
    assert told.returncode == 64
    assert "there are no servers of the kind 'redlok': did you mean redlock?" in told.stderr


def test_the_name_of_a_product_gets_the_kind_that_is_meant() -> None:
    assert "did you mean durable? there are durable, forgetful, " in lab("chaos", "redis").stderr


def test_the_help_names_every_kind() -> None:
    told = lab("chaos", "--help").stdout
    assert [kind for kind in KINDS if kind not in told] == []


@pytest.mark.parametrize(("kind", "package"), [("durable", "gcc"), ("etcd", "etcd-server")])
def test_a_missing_server_is_named_with_its_package_and_never_green(kind: str, package: str) -> None:
    told = lab("chaos", kind, "--seconds", "1", PATH="/nonexistent")
    assert told.returncode == 77, told.stdout + told.stderr
    assert package in told.stdout


def test_two_holders_in_a_history_are_found_again(tmp_path: Path) -> None:
    other = {**GRANT, "process": "p2", "time": 1.05, "attempt": "b/8", "token": 8}
    over = {**END, "process": "p2", "attempt": "b/8", "time": 1.2}
    told = lab("replay", str(written(tmp_path, HEAD, GRANT, other, END, over)))
    assert told.returncode == 1
    assert "THIS MUST NEVER HAPPEN" in told.stdout
    assert "E at 1.05" in told.stdout


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"time": ', "this is no JSON"),
        ("[1]", "this is no record"),
        ({**GRANT, "time": "noon"}, "time must be a number"),
        ({**GRANT, "resource": 5}, "resource must be a text"),
        ({**GRANT, "kind": "perhaps"}, "no record has the kind 'perhaps'"),
        ({"time": 1.0}, "this record has no process"),
    ],
)
def test_a_broken_line_is_named_with_its_number(tmp_path: Path, line: object, why: str) -> None:
    told = lab("replay", str(written(tmp_path, HEAD, GRANT, line)))
    assert told.returncode == 64, told.stdout
    assert f"line 3: {why}" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize("name", [name for name in HEAD if name != "storm"])
def test_a_first_line_without_a_number_that_judging_needs_is_named(tmp_path: Path, name: str) -> None:
    head = {key: value for key, value in HEAD.items() if key != name}
    told = lab("replay", str(written(tmp_path, head)))
    assert told.returncode == 64
    assert f"line 1: {name} must be" in told.stderr


@pytest.mark.slow
def test_ctrl_c_ends_everybody_and_leaves_no_file(tmp_path: Path) -> None:
    memory, folder = Path(mkdtemp(prefix="il-")), tmp_path  # a socket's path is short
    argv = [sys.executable, "-m", "interlock", "lab", "chaos", "sqlite", "--seconds", "60"]
    env = {**environment(), "TMPDIR": str(memory)}
    with subprocess.Popen(argv, env=env, cwd=folder, text=True, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline().startswith("sqlite: 1 min of faults")
        program.stdout.readline()  # the first fault is over: workers are at work
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        assert children
        os.kill(program.pid, signal.SIGINT)
        assert program.wait(60) == 130
    until(lambda: not [pid for pid in children if Path(f"/proc/{pid}").exists()])
    assert list(memory.iterdir()) == []
    assert list(folder.iterdir()) == []
    shutil.rmtree(memory)


def test_a_case_of_the_model_is_searched_and_its_trace_is_shown() -> None:
    told = lab("model", "less than a majority")
    assert told.returncode == 0, told.stderr
    assert "broken, as it must be" in told.stdout
    assert "=> shared" in told.stdout


def test_an_unknown_case_gets_the_nearest_name() -> None:
    told = lab("model", "beginnin at onse")
    assert told.returncode == 64
    assert "did you mean 'beginning at once'?" in told.stderr
