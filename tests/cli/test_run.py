"""`interlock run`: what it exits with, what the command finds, who is kept out."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from interlock.cli import main
from interlock.testing.lag import stretched
from tests.cli.program import Program, alive, boot_time, finished, until, written
from tests.patience import PATIENCE


class TestTheExitCode:
    def test_is_the_commands_own(self, program: Program) -> None:
        assert program.call("run", "job", "--", "sh", "-c", "exit 37").returncode == 37
        assert program.call("run", "job", "--", "true").returncode == 0

    def test_is_128_and_the_number_of_the_signal_the_command_died_of(self, program: Program) -> None:
        assert program.call("run", "job", "--", "sh", "-c", "kill -KILL $$").returncode == 137
        assert program.call("run", "job", "--", "sh", "-c", "kill -SEGV $$").returncode == 139

    def test_is_75_when_the_resource_is_taken_and_we_do_not_wait(self, program: Program) -> None:
        holder = program.hold("job")
        told = program.call("run", "-n", "job", "--", "touch", "ran")
        assert told.returncode == 75
        assert f"pid {holder.pid} " in told.stderr
        assert "; 1 claim ahead; held " in told.stderr
        assert told.stderr.count("\n") == 1
        assert not (program.folder / "ran").exists()

    def test_is_75_after_waiting_in_vain(self, program: Program) -> None:
        program.hold("job")
        began = boot_time()
        assert program.call("run", "-w", "0.3", "job", "--", "true").returncode == 75
        assert boot_time() - began >= 0.3

    def test_is_what_E_says_instead_of_75(self, program: Program) -> None:
        program.hold("job")
        assert program.call("run", "-n", "-E", "9", "job", "--", "true").returncode == 9
        assert program.call("run", "-n", "-E", "0", "job", "--", "true").returncode == 0

    @pytest.mark.parametrize("scheme", ["redis", pytest.param("redis+cluster", marks=pytest.mark.slow)])
    def test_is_69_for_a_server_that_was_never_reached_and_one_line_says_so(
        self, scheme: str, program: Program
    ) -> None:
        told = program.call("--url", f"{scheme}://127.0.0.1:1", "run", "job", "--", "touch", "ran")
        assert told.returncode == 69
        assert told.stderr.count("\n") == 1
        assert "Connection refused" in told.stderr

    def test_is_127_for_a_command_that_does_not_exist(self, program: Program) -> None:
        told = program.call("run", "job", "--", "no-such-command")
        assert told.returncode == 127
        assert "no-such-command: command not found" in told.stderr

    def test_is_126_for_a_command_that_cannot_be_executed(self, program: Program) -> None:
        (program.folder / "plain.txt").write_text("no program")
        assert program.call("run", "job", "--", "./plain.txt").returncode == 126
        assert program.call("run", "job", "--", str(program.folder)).returncode == 126

    def test_a_command_that_did_not_start_leaves_nothing_behind(self, program: Program) -> None:
        program.call("run", "job", "--", "no-such-command")
        assert program.queue("job")["kind"] == "idle"

    def test_is_69_when_the_store_cannot_be_used(self, program: Program) -> None:
        told = program.call("--url", "sqlite:////proc/no/locks.db", "run", "job", "--", "true")
        assert told.returncode == 69
        assert told.stderr.startswith("interlock: ")
        assert "Traceback" not in told.stderr

    def test_is_69_when_the_store_does_not_answer(self, program: Program) -> None:
        program.call("run", "job", "--", "true")
        blocker = sqlite3.connect(program.file)
        blocker.execute("begin immediate")
        try:
            told = program.call("run", "-w", "0.5", "job", "--", "true")
        finally:
            blocker.close()
        assert told.returncode == 69, told.stderr

    @pytest.mark.parametrize(
        "words",
        [
            ["run", "-w", "1e300", "job", "--", "true"],
            ["run", "--ttl", "0", "job", "--", "true"],
            ["run", "--ttl", "inf", "job", "--", "true"],
            ["run", "--ttl", "4", "--grace", "3", "job", "--", "true"],
            ["run", "--min-hold", "inf", "job", "--", "true"],
            ["run", "--permits", "3", "--capacity", "2", "job", "--", "true"],
            ["run", "--capacity", "99999999999", "job", "--", "true"],
            ["run", "", "--", "true"],
            ["run", "two\nlines", "--", "true"],
            ["run", "x" * 1025, "--", "true"],
            ["--url", "nonsense", "run", "job", "--", "true"],
            ["--url", "redsi://host", "run", "job", "--", "true"],
            ["--url", "memory://", "run", "job", "--", "true"],
        ],
        ids=" ".join,
    )
    def test_is_64_for_wrong_usage_said_in_one_sentence(self, program: Program, words: list[str]) -> None:
        told = program.call(*words)
        assert told.returncode == 64
        assert told.stdout == ""
        assert told.stderr.count("\n") == 1, told.stderr

    @pytest.mark.parametrize(
        "words",
        [
            [],
            ["frobnicate"],
            ["run"],
            ["run", "job"],
            ["run", "job", "--"],
            ["run", "job", "--", ""],
            ["run", "job", "true"],
            ["run", "--", "true"],
            ["run", "-n", "-w", "1", "job", "--", "true"],
            ["run", "-w", "soon", "job", "--", "true"],
            ["run", "-w", "-1", "job", "--", "true"],
            ["run", "-w", "nan", "job", "--", "true"],
            ["run", "-E", "256", "job", "--", "true"],
            ["run", "--permits", "1", "job", "--", "true"],
            ["run", "-s", "--capacity", "2", "job", "--", "true"],
            ["evict", "job"],
            ["run", "-q", "-v", "job", "--", "true"],
            ["run", "--once", "-w", "5", "job", "--", "true"],
            ["run", "--once", "-E", "3", "job", "--", "true"],
            ["run", "-w", "5x", "job", "--", "true"],
            ["run", "-w", "5m5", "job", "--", "true"],
            ["top", "--every", "0"],
            ["inspect"],
        ],
        ids=" ".join,
    )
    def test_is_64_for_words_that_are_refused_before_anything_starts(
        self, words: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Asked in this process: they come no further than the parser, which needs no interpreter for each."""
        assert main(words) == 64
        out, errors = capsys.readouterr()
        assert out == ""
        assert errors.count("\n") == 1, errors

    def test_is_64_for_such_words_of_the_program_too(self, program: Program) -> None:
        told = program.call("run", "job")
        assert (told.returncode, told.stdout, told.stderr.count("\n")) == (64, "", 1)


class TestTheCommand:
    def test_finds_its_lease_in_its_environment(self, program: Program) -> None:
        told = program.call("run", "--ttl", "12.5", "a name/ü", "--", "env")
        found = {line.partition("=")[0]: line.partition("=")[2] for line in told.stdout.splitlines()}
        assert found["INTERLOCK_RESOURCE"] == "a name/ü"
        assert int(found["INTERLOCK_TOKEN"]) > 0
        assert float(found["INTERLOCK_TTL"]) == 12.5
        assert boot_time() < float(found["INTERLOCK_DEADLINE"]) < boot_time() + 12.5

    def test_gets_a_greater_token_each_time(self, program: Program) -> None:
        tokens = [
            int(program.call("run", "job", "--", "sh", "-c", "echo $INTERLOCK_TOKEN").stdout)
            for _ in range(3)
        ]
        assert tokens == sorted(set(tokens))

    def test_reads_our_standard_input_and_writes_our_output_and_errors(self, program: Program) -> None:
        told = program.call("run", "job", "--", "sh", "-c", "cat; echo oops >&2", input="one\ntwo\n")
        assert told.stdout == "one\ntwo\n"
        assert told.stderr == "oops\n"

    def test_gets_its_arguments_untouched(self, program: Program) -> None:
        told = program.call("run", "job", "--", "printf", "%s|", "-n", "--", "--url", "", "a b", "*")
        assert told.stdout == "-n|--|--url||a b|*|"

    def test_is_found_in_the_path(self, program: Program) -> None:
        tool = program.folder / "tool"
        tool.write_text("#!/bin/sh\necho from the path\n")
        tool.chmod(0o755)
        path = f"{program.folder}{os.pathsep}{os.environ['PATH']}"
        assert program.call("run", "job", "--", "tool", PATH=path).stdout == "from the path\n"

    def test_has_the_default_signals_that_python_had_changed(self, program: Program) -> None:
        """`yes | head -1` must end: Python ignores SIGPIPE, and an ignored signal is inherited."""
        told = program.call("run", "job", "--", "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
        masks = {line.split()[0]: int(line.split()[1], 16) for line in told.stdout.splitlines()}
        assert masks["SigBlk:"] == 0
        assert not masks["SigIgn:"] & (1 << (signal.SIGPIPE - 1))

    def test_keeps_ignoring_what_nohup_ignores(self, program: Program) -> None:
        argv = program.argv("run", "job", "--", "grep", "^SigIgn", "/proc/self/status")
        process = program.start_program(["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *argv])
        code, out, _ = finished(process)
        assert code == 0
        assert int(out.split()[1], 16) & (1 << (signal.SIGHUP - 1))

    def test_inherits_files_that_were_meant_for_it(self, program: Program, tmp_path: Path) -> None:
        read, write = os.pipe()
        process = program.start(
            "run", "job", "--", "sh", "-c", f"echo through > /dev/fd/{write}", pass_fds=[write]
        )
        os.close(write)
        assert finished(process)[0] == 0
        with os.fdopen(read) as stream:
            assert stream.read() == "through\n"

    def test_leaves_a_daemon_running_when_it_ends_by_itself(self, program: Program) -> None:
        """As under any shell: what was started to stay, stays."""
        pid = program.folder / "pid"
        script = f"sleep 60 >/dev/null 2>&1 & echo $! > '{pid}'"
        assert program.call("run", "job", "--", "sh", "-c", script).returncode == 0
        daemon = int(written(pid)[0])
        assert alive(daemon)
        os.kill(daemon, signal.SIGKILL)


class TestExclusion:
    def test_two_runs_of_one_name_never_overlap(self, program: Program) -> None:
        script = "test ! -e inside && touch inside && sleep 0.05 && rm inside"
        runs = [program.start("run", "job", "--", "sh", "-c", script) for _ in range(6)]
        ended = [finished(run) for run in runs]
        assert [code for code, _, _ in ended] == [0] * 6, ended

    def test_a_command_that_had_to_wait_has_the_whole_ttl_from_its_start(self, program: Program) -> None:
        """A lease that is handed over lives as long as a place in the queue, 10 s: less than the margin and this grace."""
        holder = program.hold("job", "--ttl", "60")
        waiter = program.start("run", "--ttl", "60", "--grace", "9.7", "job", "--", "sh", "-c", "sleep 0.5")
        until(lambda: program.queue("job")["waiters"])
        holder.terminate()
        ended = finished(waiter)
        assert ended[0] == 0, ended

    def test_shared_runs_overlap(self, program: Program) -> None:
        program.hold("job", "-s")
        assert program.call("run", "-s", "-n", "job", "--", "true").returncode == 0

    def test_an_exclusive_run_waits_for_shared_ones_and_the_other_way_round(self, program: Program) -> None:
        reader = program.hold("job", "-s")
        assert program.call("run", "-n", "job", "--", "true").returncode == 75
        reader.terminate()
        finished(reader)
        program.hold("job")
        assert program.call("run", "-s", "-n", "job", "--", "true").returncode == 75

    def test_a_semaphore_lets_in_as_many_as_it_has_permits(self, program: Program) -> None:
        program.hold("pool", "--capacity", "3", "--permits", "2")
        assert program.call("run", "-n", "--capacity", "3", "pool", "--", "true").returncode == 0
        two = program.call("run", "-n", "--capacity", "3", "--permits", "2", "pool", "--", "true")
        assert two.returncode == 75

    def test_contenders_that_disagree_on_the_capacity_are_told(self, program: Program) -> None:
        program.hold("pool", "--capacity", "3")
        told = program.call("run", "--capacity", "4", "pool", "--", "true")
        assert told.returncode == 64
        assert "capacity 3" in told.stderr

    def test_programs_that_use_the_library_are_kept_out_too(self, program: Program) -> None:
        import interlock

        with interlock.connect(program.url) as client, client.lock("job"):
            assert program.call("run", "-n", "job", "--", "true").returncode == 75

    def test_min_hold_keeps_the_resource_after_the_command_has_ended(self, program: Program) -> None:
        assert program.call("run", "--min-hold", "60", "job", "--", "true").returncode == 0
        assert program.call("run", "-n", "job", "--", "true").returncode == 75

    def test_the_lease_is_renewed_while_the_command_runs(self, program: Program) -> None:
        ttl = stretched(1.5)
        holder = program.hold("job", "--ttl", f"{ttl:g}")
        began = boot_time()
        until(lambda: boot_time() > began + 1.7 * ttl)
        assert holder.poll() is None
        assert [standing["pid"] for standing in program.queue("job")["holders"]] == [holder.pid]


class TestEventsAsJson:
    def events(self, text: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in text.splitlines()]

    def test_tell_the_life_of_a_run(self, program: Program) -> None:
        told = program.call("run", "--json", "job", "--", "sh", "-c", "exit 5")
        events = self.events(told.stderr)
        assert [event["event"] for event in events] == ["acquired", "started", "released", "exited"]
        assert events[0]["resource"] == "job"
        assert events[3]["code"] == events[3]["command"] == told.returncode == 5
        assert told.stdout == ""

    def test_tell_that_it_was_not_acquired(self, program: Program) -> None:
        program.hold("job")
        told = program.call("--json", "run", "-n", "job", "--", "true")
        assert [event["event"] for event in self.events(told.stderr)] == ["timed_out", "error"]
        assert self.events(told.stderr)[1]["code"] == told.returncode == 75


def test_a_run_leaves_no_process_and_no_claim_behind(program: Program) -> None:
    process = program.start("run", "job", "--", "sh", "-c", "echo $PPID; true")
    code, out, _ = finished(process)
    assert code == 0
    until(lambda: not alive(int(out)))  # the warden
    assert program.queue("job")["kind"] == "idle"


@pytest.mark.slow
def test_a_release_that_is_not_answered_does_not_change_the_code(program: Program) -> None:
    script = "touch ready; while [ ! -e stop ]; do sleep 0.02; done; exit 6"
    process = program.start("run", "job", "--", "sh", "-c", script)
    until((program.folder / "ready").exists)
    blocker = sqlite3.connect(program.file)
    blocker.execute("begin immediate")
    (program.folder / "stop").touch()
    code, _, errors = finished(process)
    blocker.close()
    assert code == 6
    assert "lapses by itself" in errors


def test_standard_error_that_nobody_reads_does_not_break_a_run(program: Program) -> None:
    read, write = os.pipe()
    os.close(read)
    process = program.start("run", "--json", "job", "--", "sh", "-c", "exit 4", stderr=write)
    os.close(write)
    assert process.wait(PATIENCE) == 4


def test_the_command_is_what_python_m_interlock_runs(program: Program) -> None:
    assert (
        subprocess.run(program.argv("version"), env=program.environment(), timeout=PATIENCE).returncode == 0
    )
