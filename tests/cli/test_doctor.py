"""`doctor`: the answer first, details where something is wrong, exit codes for scripts."""

from __future__ import annotations

import json

import pytest

from interlock.testing.servers.process import free_port
from tests.cli.program import Program


@pytest.fixture
def locked(program: Program) -> Program:
    """A store that exists."""
    assert program.call("run", "x", "--", "true").returncode == 0
    return program


def test_the_answer_comes_first_and_the_summary_last(locked: Program) -> None:
    told = locked.call("doctor", "--probe")
    assert told.returncode == 0
    assert told.stderr == ""
    store, answer, *lines = told.stdout.splitlines()
    assert store == locked.url
    assert answer == "With this deployment two holders are possible when the file is deleted or replaced."
    assert lines[-1].endswith("good")
    assert any(line.startswith("WHEN") for line in lines)


def test_what_is_wrong_says_what_mends_it_and_where_more_stands(locked: Program) -> None:
    told = locked.call("doctor").stdout
    assert "note     [scope] these locks exclude the processes of one machine only" in told
    assert '         mend: connect(requires="network")' in told
    assert "         more: interlock doctor --explain scope" in told


def test_a_script_chooses_for_what_it_fails(locked: Program) -> None:
    assert locked.call("doctor", "--fail-level", "note").returncode == 1
    ignored = ["--ignore", "scope", "--ignore", "sqlite-filesystem"]
    assert locked.call("doctor", "--fail-level", "note", *ignored).returncode == 0


def test_a_store_that_cannot_be_reached_is_neither_good_nor_bad(program: Program) -> None:
    told = program.call("doctor", f"redis://:secret@127.0.0.1:{free_port()}")
    assert told.returncode == 2
    assert "nothing could be looked at" in told.stdout
    assert "secret" not in told.stdout + told.stderr


def test_a_program_gets_the_whole_diagnosis(locked: Program) -> None:
    found = json.loads(locked.call("doctor", "--json", "--probe").stdout)
    assert found["worst"] in ("note", "unknown")
    assert {"id", "severity", "text", "remedy", "server"} == set(found["findings"][0])
    assert found["probe"]["renewal_p50"] > 0
    assert found["outlooks"]


def test_a_page_is_printed_without_a_look_at_any_store(program: Program) -> None:
    told = program.call("doctor", "--explain", "redis-eviction")
    assert told.returncode == 0
    assert told.stdout.startswith("# redis-eviction: ")
    assert not program.file.exists()


def test_a_misspelt_finding_gets_the_nearest(program: Program) -> None:
    told = program.call("doctor", "--explain", "redis-evictions")
    assert told.returncode == 64
    assert told.stderr == "interlock: there is no finding 'redis-evictions': did you mean redis-eviction?\n"


def test_a_lock_file_that_does_not_exist_is_not_made(program: Program) -> None:
    told = program.call("doctor")
    assert told.returncode == 69
    assert "does not exist" in told.stderr
    assert not program.file.exists()
