"""Signals to `interlock run`: in the queue they end it, later they are the command's."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from interlock.testing.lag import at_most
from tests.cli.program import Program, alive, finished, parent, stopped, until, written

LOGS_SIGNALS = """
for name in TERM INT HUP QUIT USR1 USR2 WINCH; do trap "echo $name >> log" $name; done
echo $$ > ready
while [ ! -e stop ]; do sleep 0.02; done
exit 3
"""


class TestWhileTheCommandRuns:
    def test_each_signal_reaches_the_command_once(self, program: Program) -> None:
        process = program.start("run", "job", "--", "sh", "-c", LOGS_SIGNALS)
        written(program.folder / "ready")
        log = program.folder / "log"
        sent = ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH"]
        for count, name in enumerate(sent, 1):
            process.send_signal(getattr(signal, f"SIG{name}"))
            written(log, count)
        (program.folder / "stop").touch()
        assert finished(process)[0] == 3
        assert log.read_text().split() == sent

    def test_a_signal_to_the_whole_group_reaches_the_command_once(self, program: Program) -> None:
        """As Ctrl-C does: many programs take a second one as the order to drop everything."""
        process = program.start("run", "job", "--", "sh", "-c", LOGS_SIGNALS, start_new_session=True)
        written(program.folder / "ready")
        log = program.folder / "log"
        os.killpg(process.pid, signal.SIGINT)
        written(log, 1)
        process.send_signal(signal.SIGUSR1)  # behind it in the same pipe: a second INT would come first
        written(log, 2)
        (program.folder / "stop").touch()
        assert finished(process)[0] == 3
        assert log.read_text().split() == ["INT", "USR1"]

    @pytest.mark.parametrize("whole_group", [False, True])
    def test_a_signal_that_comes_before_the_command_has_started_reaches_it(
        self, program: Program, whole_group: bool
    ) -> None:
        """It came between the grant and the start: dropped, a Ctrl-C would have no effect."""
        script = f"""
import os, signal
from interlock._support import clock
from interlock.cli.command import Command
from interlock.cli.warden import Duty
command = Command.prepare(Duty(["sleep", "60"], "job", 30.0, 1.0))
signal.signal(signal.SIGINT, lambda number, frame: command.relay(number))
os.kill({0 if whole_group else "os.getpid()"}, signal.SIGINT)
command.start(1, clock.now() + 30)
reports = []
while not reports or reports[-1][0] != "exited":
    reports += command.reports(1.0)
print(*reports[-1])
"""
        process = program.start_program([sys.executable, "-c", script], start_new_session=True)
        code, out, _ = finished(process)
        assert (code, out) == (0, f"exited {int(signal.SIGINT)} 0\n")

    def test_the_code_tells_that_the_command_died_of_it(self, program: Program) -> None:
        holder = program.hold("job")
        holder.send_signal(signal.SIGTERM)
        assert finished(holder)[0] == 143
        assert program.queue("job")["kind"] == "idle"

    def test_a_stop_stops_the_command_and_a_continue_continues_it(self, program: Program) -> None:
        # In a group of its own, as a shell starts a job: the kernel stops nobody in a group that no shell could continue,
        # and without a terminal (CI, setsid) the group of the test run is such a one.
        process = program.start("run", "job", "--", "sh", "-c", LOGS_SIGNALS, process_group=0)
        command = int(written(program.folder / "ready")[0])
        process.send_signal(signal.SIGTSTP)
        until(lambda: stopped(process.pid) and stopped(command))
        process.send_signal(signal.SIGCONT)
        until(lambda: not stopped(process.pid) and not stopped(command))
        (program.folder / "stop").touch()
        assert finished(process)[0] == 3

    def test_a_stop_that_the_warden_meets_only_after_the_continue_stops_nobody(
        self, program: Program
    ) -> None:
        """As Ctrl-Z and `fg` on a busy machine: the kernel drops a pending stop when the continue comes, in the warden as well."""
        process = program.start("run", "job", "--", "sh", "-c", LOGS_SIGNALS, process_group=0)
        command = int(written(program.folder / "ready")[0])
        warden = parent(command)
        os.kill(warden, signal.SIGSTOP)
        until(lambda: stopped(warden))
        os.killpg(process.pid, signal.SIGTSTP)
        until(lambda: stopped(process.pid) and stopped(command))
        os.killpg(process.pid, signal.SIGCONT)
        process.send_signal(signal.SIGUSR1)  # behind the other two in the same pipe
        written(program.folder / "log", 1)
        (program.folder / "stop").touch()
        assert finished(process)[0] == 3

    @pytest.mark.parametrize(("wiped_out", "last"), [("SIGTSTP", "SIGCONT"), ("SIGCONT", "SIGTSTP")])
    def test_the_warden_knows_that_a_signal_which_another_wiped_out_went_to_the_whole_group(
        self, program: Program, wiped_out: str, last: str
    ) -> None:
        script = f"""
import os, signal
from interlock.cli.warden import BLOCKED_SIGNALS, _came_here_too
signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)
for number in (signal.{wiped_out}, signal.{last}):
    os.kill(os.getpid(), number)
for number in (signal.{wiped_out}, signal.{last}, signal.{wiped_out}, signal.{last}):
    print(_came_here_too(number))
"""
        code, out, _ = finished(program.start_program([sys.executable, "-c", script]))
        assert (code, out.split()) == (0, ["True", "True", "False", "False"])

    def test_a_stop_that_is_wiped_out_while_the_warden_looks_at_it_does_not_hang_it(
        self, program: Program
    ) -> None:
        """A warden that waited for it saw neither the end of its command nor that of the lease."""
        script = """
import os, signal
from interlock.cli.warden import BLOCKED_SIGNALS, Duty, Warden
signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)
look = signal.sigpending
def look_before_fg():
    pending = look()
    os.kill(os.getpid(), signal.SIGCONT)
    return pending
signal.sigpending = look_before_fg
os.kill(os.getpid(), signal.SIGTSTP)
Warden(Duty(["true"], "job", 30.0, 1.0), -1, -1, set(), None)._relay(signal.SIGTSTP)
print("went on")
"""
        code, out, _ = finished(program.start_program([sys.executable, "-c", script]))
        assert (code, out) == (0, "went on\n")

    def test_the_command_does_not_outlive_a_killed_run(self, program: Program) -> None:
        script = "trap '' TERM INT HUP; echo $$ > ready; sleep 60 & sleep 60 & wait"
        process = program.start("run", "job", "--", "sh", "-c", script)
        command = int(written(program.folder / "ready")[0])
        process.kill()
        process.wait()
        with at_most(2.0):
            until(lambda: not alive(command))

    def test_what_the_command_started_does_not_outlive_a_killed_run(self, program: Program) -> None:
        """Not even what tried to get away, into a session of its own."""
        script = (
            "setsid sh -c 'trap \"\" TERM HUP; echo $$ > away; sleep 60' & sleep 60 & echo $! > near; wait"
        )
        process = program.start("run", "job", "--", "sh", "-c", script)
        kin = [int(written(program.folder / name)[0]) for name in ("near", "away")]
        process.kill()
        process.wait()
        with at_most(2.0):
            until(lambda: not any(map(alive, kin)))

    def test_the_command_does_not_outlive_a_killed_warden(self, program: Program) -> None:
        script = "sleep 60 & echo $$ $! > ready; wait"
        process = program.start("run", "job", "--", "sh", "-c", script)
        command, kin = map(int, written(program.folder / "ready")[0].split())
        assert parent(command) != process.pid
        os.kill(parent(command), signal.SIGKILL)
        code, _, errors = finished(process)
        assert code == 137
        assert "killed the process that guards the command" in errors
        assert not alive(command)
        assert not alive(kin)
        assert program.queue("job")["kind"] == "idle"


def test_a_run_that_ends_touches_nobody_beside_it(program: Program) -> None:
    """A run once killed its whole process group, because a command that never started had the number 0."""
    holder = program.hold("job")
    argv = program.argv("run", "-n", "job", "--", "true")
    script = 'sleep 60 > /dev/null 2>&1 & echo $! > beside; "$@"; echo $?'
    process = program.start_program(["sh", "-c", script, "sh", *argv], start_new_session=True)
    code, out, _ = finished(process)
    assert (code, out) == (0, "75\n")
    beside = int(written(program.folder / "beside")[0])
    assert alive(beside)
    assert alive(holder.pid)
    os.kill(beside, signal.SIGKILL)


class TestInTheQueue:
    @pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1"])
    def test_a_signal_ends_the_wait_and_leaves_nothing_behind(self, program: Program, name: str) -> None:
        holder = program.hold("job")
        waiter = program.start("run", "-q", "job", "--", "touch", "ran")
        until(lambda: program.queue("job")["waiters"])
        number = getattr(signal, f"SIG{name}")
        waiter.send_signal(number)
        code, _, errors = finished(waiter)
        assert code == 128 + number
        assert errors == ""
        queue = program.queue("job")
        assert queue["waiters"] == []
        assert [standing["pid"] for standing in queue["holders"]] == [holder.pid]
        assert not (program.folder / "ran").exists()

    def test_a_waiter_that_is_killed_holds_up_nobody_for_long(self, program: Program) -> None:
        holder = program.hold("job", "--ttl", "2")
        waiter = program.start("run", "--ttl", "2", "job", "--", "true")
        until(lambda: program.queue("job")["waiters"])
        waiter.kill()
        waiter.wait()
        holder.terminate()
        finished(holder)
        assert program.call("run", "-w", "60", "job", "--", "true").returncode == 0

    def test_an_eviction_ends_the_wait(self, program: Program) -> None:
        program.hold("job")
        waiter = program.start("run", "job", "--", "true")
        (standing,) = until(lambda: program.queue("job")["waiters"])
        assert program.call("evict", "job", "--id", standing["id"], "--reason", "too many").returncode == 0
        code, _, errors = finished(waiter)
        assert code == 75
        assert "too many" in errors
