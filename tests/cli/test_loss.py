"""A lease that is lost costs the command its life: TERM, then KILL, and all is over before the lease ends."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys

import pytest

import interlock
from interlock.testing.lag import Lag, stretched
from tests.cli.program import Program, alive, boot_time, finished, parent, until, written

TTL, GRACE = stretched(4.0), 0.6
LONG = ("--ttl", "30")  # a third of it is longer than any of these tests: what happens, happens at once

STUBBORN = """
exec 2> /dev/null  # or the shell would tell there whom it lost
trap 'echo term >> log' TERM
sh -c 'trap "" TERM; echo $$ > kin; while :; do sleep 1; done' &
echo $$ $INTERLOCK_DEADLINE > ready
while :; do sleep 0.02; done
"""
OBEDIENT = """
exec 2> /dev/null
trap 'echo term >> log; exit 0' TERM
echo $$ $INTERLOCK_DEADLINE > ready
while :; do sleep 0.02; done
"""


def start(program: Program, script: str, *options: str) -> tuple[subprocess.Popen[str], int, float]:
    """The run, the process of its command, and when its lease would end."""
    timing = ("--ttl", f"{TTL:g}", "--grace", f"{GRACE:g}")
    process = program.start("run", *timing, *options, "job", "--", "sh", "-c", script)
    pid, deadline = written(program.folder / "ready")[0].split()
    return process, int(pid), float(deadline)


def ended(*pids: int) -> float:
    """When the last of these processes was over, the machine's own lag not counted."""
    with Lag() as lag:
        until(lambda: not any(map(alive, pids)))
        return boot_time() - lag.seconds


class TestByEviction:
    def test_the_command_gets_term_at_once_and_76_tells_of_it(self, program: Program) -> None:
        process, _, deadline = start(program, OBEDIENT, *LONG)
        assert program.call("evict", "job", "--reason", "disk is full").returncode == 0
        code, _, errors = finished(process)
        assert code == 76
        assert boot_time() < deadline - 20.0  # not at the next renewal
        assert (program.folder / "log").read_text() == "term\n"
        assert "disk is full" in errors
        assert errors.count("\n") == 1

    def test_what_does_not_end_is_killed_after_the_grace(self, program: Program) -> None:
        process, command, _ = start(program, STUBBORN, *LONG)
        kin = int(written(program.folder / "kin")[0])
        began = boot_time()
        program.call("evict", "job", "--reason", "test")
        assert finished(process)[0] == 76
        assert boot_time() - began >= GRACE
        assert not alive(command)
        assert not alive(kin)
        assert (program.folder / "log").read_text() == "term\n"

    def test_the_next_holder_is_not_touched(self, program: Program) -> None:
        process, _, _ = start(program, STUBBORN, *LONG)
        waiter = program.start("run", "-w", "60", "job", "--", "sh", "-c", "echo in > in; sleep 1")
        until(lambda: program.queue("job")["waiters"])
        program.call("evict", "job", "--reason", "test")
        assert finished(process)[0] == 76
        ended = finished(waiter)
        assert ended[0] == 0, ended

    def test_a_command_that_ends_without_knowing_is_told_of_by_76(self, program: Program) -> None:
        """Its work was done beside another's: an exit code of 0 would hide that."""
        script = "trap '' TERM; echo $$ $INTERLOCK_DEADLINE > ready; while [ ! -e log ]; do sleep 0.01; done"
        process, _, _ = start(program, script, *LONG)
        program.call("evict", "job", "--reason", "test")
        (program.folder / "log").touch()
        assert finished(process)[0] == 76

    def test_json_tells_it_in_order(self, program: Program) -> None:
        process, _, _ = start(program, STUBBORN, "--json", *LONG)
        program.call("evict", "job", "--reason", "test")
        events = [json.loads(line) for line in finished(process)[2].splitlines()]
        names = [event["event"] for event in events]
        assert names == ["acquired", "started", "lost", "ending", "killing", "error", "exited"]
        assert events[2]["cause"] == "evicted"
        assert events[2]["reason"] == "test"
        assert events[-1]["code"] == 76


class TestByAStoreThatDoesNotAnswer:
    def test_all_is_over_before_the_lease_ends(self, program: Program) -> None:
        process, command, deadline = start(program, STUBBORN)
        kin = int(written(program.folder / "kin")[0])
        blocker = sqlite3.connect(program.file)
        blocker.execute("begin immediate")  # before the first renewal, which comes after a second
        try:
            assert boot_time() < deadline - TTL * 0.7, "the machine was too slow for this test"
            written(program.folder / "log")
            termed = boot_time()
            killed = ended(command, kin)
            assert boot_time() > termed + GRACE * 0.9
        finally:
            blocker.close()
        assert deadline - TTL / 2 < termed, "renewals were not given the time they had"
        assert killed < deadline
        code, _, errors = finished(process)
        assert code == 76
        assert "the store does not answer" in errors

    def test_an_answer_in_time_and_the_command_never_knows(self, program: Program) -> None:
        process, _, deadline = start(program, OBEDIENT, "--json")
        blocker = sqlite3.connect(program.file)
        blocker.execute("begin immediate")
        until(lambda: boot_time() > deadline - TTL + TTL * 0.4)  # one renewal is overdue
        blocker.close()
        until(lambda: boot_time() > deadline + 0.1)
        assert process.poll() is None
        assert not (program.folder / "log").exists()

    @pytest.mark.slow
    def test_the_same_when_a_stopped_process_has_the_store(self, program: Program) -> None:
        process, command, deadline = start(program, STUBBORN)
        script = f"import sqlite3; c = sqlite3.connect({str(program.file)!r}); c.execute('begin immediate'); "
        owner = program.start_program(
            [sys.executable, "-c", script + "print('has it', flush=True); import time; time.sleep(60)"]
        )
        assert owner.stdout is not None
        assert owner.stdout.readline() == "has it\n"
        owner.send_signal(signal.SIGSTOP)
        assert ended(command) < deadline
        owner.kill()
        assert finished(process)[0] == 76


class TestByBeingStopped:
    def test_the_command_of_a_stopped_run_is_over_before_the_lease_ends(self, program: Program) -> None:
        process, command, deadline = start(program, STUBBORN)
        kin = int(written(program.folder / "kin")[0])
        process.send_signal(signal.SIGSTOP)
        with interlock.connect(program.url) as see, Lag() as lag:
            over = ended(command, kin)
            holders = see.inspect("job").holders
            assert holders or lag.seconds > 0.1, "the lease had ended before its command"
        assert over < deadline + TTL / 3 + 0.1  # one renewal may have come before the stop
        process.send_signal(signal.SIGCONT)
        assert finished(process)[0] == 76

    def test_the_command_of_a_stopped_warden_is_over_too(self, program: Program) -> None:
        process, command, _ = start(program, STUBBORN)
        kin = int(written(program.folder / "kin")[0])
        os.kill(parent(command), signal.SIGSTOP)
        program.call("evict", "job", "--reason", "test")
        until(lambda: not alive(command) and not alive(kin))
        assert finished(process)[0] == 76

    @pytest.mark.slow
    def test_a_stopped_warden_and_a_silent_store_do_not_outlast_the_lease(self, program: Program) -> None:
        process, command, deadline = start(program, STUBBORN)
        kin = int(written(program.folder / "kin")[0])
        os.kill(parent(command), signal.SIGSTOP)
        blocker = sqlite3.connect(program.file)
        blocker.execute("begin immediate")
        over = ended(command, kin)
        blocker.close()
        assert over < deadline
        assert finished(process)[0] == 76

    @pytest.mark.slow
    def test_a_short_stop_costs_nothing(self, program: Program) -> None:
        process, _, deadline = start(program, OBEDIENT)
        process.send_signal(signal.SIGSTOP)
        until(lambda: boot_time() > deadline - TTL + TTL * 0.4)
        process.send_signal(signal.SIGCONT)
        until(lambda: boot_time() > deadline + 0.1)
        assert process.poll() is None
