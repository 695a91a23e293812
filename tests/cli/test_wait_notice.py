"""A run that waits says for whom; one that must not wait skips, aloud or quietly."""

from __future__ import annotations

import json
import subprocess

import pytest

import interlock
from interlock.cli import wait_notice
from interlock.events import Waiting
from interlock.model import EVERYTHING, NEVER, Standing
from interlock.who import Who
from tests.cli.program import Program, Reader, finished
from tests.patience import PATIENCE


def errors(process: subprocess.Popen[str]) -> Reader:
    return Reader(process, process.stderr)


class TestInTheQueue:
    def test_a_run_says_after_a_second_who_holds_it_since_when_and_its_place(self, program: Program) -> None:
        holder = program.hold("job")
        first = errors(program.start("run", "job", "--", "true"))
        told = first.find().rstrip()
        assert told.startswith("interlock: job: waiting; held for ")
        assert f" pid {holder.pid} (interlock run), token " in told
        assert "(since " in told
        assert told.endswith("; next in the queue")
        second = errors(program.start("run", "job", "--", "true"))
        assert second.find().endswith("; place 2 in the queue\n")
        holder.terminate()
        assert (first.process.wait(PATIENCE), second.process.wait(PATIENCE)) == (0, 0)
        assert len(first.lines) == 1  # once, however long it waits

    def test_a_program_gets_an_event(self, program: Program) -> None:
        holder = program.hold("job")
        run = errors(program.start("run", "--json", "job", "--", "true"))
        event = json.loads(run.find())
        assert (event["event"], event["resource"], event["ahead"]) == ("waiting", "job", 1)
        assert event["holder"]["pid"] == holder.pid

    def test_quiet_means_quiet(self, program: Program) -> None:
        program.hold("job")
        told = program.call("run", "-q", "-w", "1500ms", "job", "--", "true")
        assert (told.returncode, told.stdout, told.stderr) == (75, "", "")

    def test_a_run_that_gets_it_soon_says_nothing(self, program: Program) -> None:
        told = program.call("run", "job", "--", "true")
        assert (told.returncode, told.stderr) == (0, "")

    def test_a_run_under_the_lease_it_waits_for_is_told_so(self, program: Program) -> None:
        inner = program.argv("run", "-w", "1500ms", "job", "--", "true")
        told = program.call("run", "job", "--", *inner)
        assert told.returncode == 75
        assert "job: waiting for itself: it is held by the `interlock run` that started" in told.stderr


def standing(id: str = "a", **changes: object) -> Standing:
    who = Who("web-1", 211, "", "interlock run").pack()
    settings: dict[str, object] = {"token": 7, "permits": 1, "admitted": True, "age": 41.0, "lapses_in": 20.0}
    return Standing(id=id, note="", who=who, **{**settings, **changes})  # type: ignore[arg-type]


def sentence(capacity: int, ahead: int, holder: Standing | None) -> str:
    return wait_notice.sentence(Waiting("job", 1.0, ahead, holder), capacity)


class TestTheSentence:
    def test_tells_a_lease_that_lingers_from_one_that_is_held(self) -> None:
        told = sentence(1, 1, standing("lingering-7"))
        assert "released by web-1 pid 211" in told
        assert "free in 20 s" in told
        assert "held" not in told

    def test_counts_claims_where_several_hold(self) -> None:
        assert sentence(3, 3, standing()).endswith("; 3 claims ahead, holders included")
        assert sentence(EVERYTHING, 1, standing()).endswith("; 1 claim ahead")

    def test_does_not_invent_what_the_store_has_not_told(self) -> None:
        assert sentence(1, 0, None) == "job: waiting"

    def test_shows_nothing_of_a_foreign_key_but_that_it_is_one(self) -> None:
        foreign = standing("s3cret", foreign=True, token=0, age=0.0, lapses_in=NEVER)
        told = sentence(1, 1, foreign)
        assert "held by a key of another program, which never lapses by itself" in told
        assert "s3cret" not in told


class TestOnce:
    def test_skips_without_a_word_and_with_code_0(self, program: Program) -> None:
        program.hold("job")
        told = program.call("run", "--once", "job", "--", "touch", "ran")
        assert (told.returncode, told.stdout, told.stderr) == (0, "", "")
        assert not (program.folder / "ran").exists()

    def test_runs_the_command_when_nobody_does(self, program: Program) -> None:
        assert program.call("run", "--once", "job", "--", "sh", "-c", "exit 37").returncode == 37

    def test_says_whom_it_left_it_to_when_asked(self, program: Program) -> None:
        holder = program.hold("job")
        told = program.call("run", "--once", "-v", "job", "--", "true")
        assert told.returncode == 0
        assert "job: skipped; held for " in told.stderr
        assert f" pid {holder.pid} " in told.stderr
        event = json.loads(
            program.call("run", "--once", "--json", "job", "--", "true").stderr.splitlines()[-1]
        )
        assert (event["event"], event["code"]) == ("skipped", 0)

    def test_with_min_hold_late_workers_skip_too(self, program: Program) -> None:
        words = ["run", "--once", "--min-hold", "50s", "minutely", "--", "sh", "-c", "echo ran >> log"]
        assert [program.call(*words).returncode for _ in range(3)] == [0, 0, 0]
        assert (program.folder / "log").read_text() == "ran\n"

    def test_is_no_excuse_for_a_store_that_is_away(self, program: Program) -> None:
        told = program.call("--url", "redis://127.0.0.1:1", "run", "--once", "job", "--", "true")
        assert told.returncode == 69
        assert told.stderr.count("\n") == 1


def test_verbose_names_the_store_and_tells_the_life_of_the_lease(program: Program) -> None:
    told = program.call("run", "-v", "job", "--", "true")
    assert told.returncode == 0
    store, acquired, released = told.stderr.splitlines()
    assert store == f"interlock: the store is {program.url}"
    assert acquired.startswith("interlock: job: acquired after ")
    assert released.startswith("interlock: job: released after ")


@pytest.mark.parametrize("option", ["-q", "-v"])
def test_an_error_is_told_however_quiet(program: Program, option: str) -> None:
    told = program.call("--url", "redis://127.0.0.1:1", "run", option, "job", "--", "true")
    assert told.returncode == 69
    assert "Connection refused" in told.stderr


def test_who_times_out_behind_a_min_hold_is_not_told_of_a_dead_holder(program: Program) -> None:
    program.call("run", "--min-hold", "60s", "job", "--", "true")
    with interlock.connect(program.url) as client, pytest.raises(interlock.AcquireTimeout) as timeout:
        with client.lock("job", timeout=0):
            pass
    assert "released by " in str(timeout.value)
    assert "free in " in str(timeout.value)
    assert "; held " not in str(timeout.value)
    assert finished(program.start("run", "-n", "job", "--", "true"))[0] == 75
