"""A wrapper that is killed: its lock is free at once on the embedded store, but never while its command runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock._support import bytelock
from tests.cli.program import Program
from tests.patience import PATIENCE

pytestmark = [
    pytest.mark.skipif(not bytelock.AVAILABLE, reason="this kernel cannot tell who lives"),
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes in /proc"),
]

COMMAND = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"


def children(process: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def start(program: Program, *options: str) -> tuple[subprocess.Popen[str], int]:
    """A run that holds `job` for its ttl of 60 s if nobody helps, and the process of its command."""
    wrapper = program.start("run", "--ttl", "60", *options, "job", "--", sys.executable, "-c", COMMAND)
    assert wrapper.stdout is not None
    return wrapper, int(wrapper.stdout.readline())


def test_a_killed_wrapper_takes_its_command_and_its_lock_with_it(program: Program) -> None:
    wrapper, command = start(program)
    with interlock.connect(program.url) as client:
        wrapper.kill()
        assert client.lock("job").acquire(timeout=PATIENCE / 2)
        assert not running(command)


def test_the_lock_of_a_killed_wrapper_is_not_free_while_its_command_runs(program: Program) -> None:
    wrapper, command = start(program)
    (warden,) = children(wrapper.pid)
    os.kill(warden, signal.SIGSTOP)  # so that it cannot end the command
    try:
        wrapper.kill()
        wrapper.wait()
        with interlock.connect(program.url) as client:
            assert client.lock("job").acquire(timeout=0.5) is None
            assert running(command)
            os.kill(warden, signal.SIGCONT)
            assert client.lock("job").acquire(timeout=PATIENCE / 2)
            assert not running(command)
    finally:
        for process in (warden, command):
            if running(process):
                os.kill(process, signal.SIGKILL)


def test_a_command_can_read_and_write_nothing_through_what_it_inherits(program: Program) -> None:
    """It may run as another user, to whom the lock file would tell the names of all locks."""
    look = (
        "import fcntl, os\n"
        "for number in map(int, os.listdir('/proc/self/fd')):\n"
        "    if '.db' in (path := os.path.realpath(f'/proc/self/fd/{number}')):\n"
        "        mode = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE\n"
        "        print(os.path.basename(path), number >= 100, mode == os.O_RDONLY, os.pread(number, 100, 0))\n"
    )
    done = program.call("run", "job", "--", sys.executable, "-c", look)
    assert done.stdout == "locks.db-run True True b''\n"


def test_the_lock_is_not_free_while_anything_runs_that_the_command_has_started(program: Program) -> None:
    """The wrapper and the warden are killed at once, so that nobody is left to end it."""
    script = "setsid sh -c 'echo $$; exec sleep 600' & wait"
    wrapper = program.start("run", "--ttl", "60", "job", "--", "sh", "-c", script)
    assert wrapper.stdout is not None
    left = int(wrapper.stdout.readline())
    (warden,) = children(wrapper.pid)
    for process in (wrapper.pid, warden):
        os.kill(process, signal.SIGSTOP)
    for process in (warden, wrapper.pid):
        os.kill(process, signal.SIGKILL)
    wrapper.wait()
    try:
        with interlock.connect(program.url) as client:
            assert client.lock("job").acquire(timeout=0.5) is None
            assert running(left)
            os.kill(left, signal.SIGKILL)
            assert client.lock("job").acquire(timeout=PATIENCE / 2)
    finally:
        if running(left):
            os.kill(left, signal.SIGKILL)


def test_what_lingers_for_min_hold_outlives_a_run(program: Program) -> None:
    assert program.call("run", "--min-hold", "60", "job", "--", "true").returncode == 0
    with interlock.connect(program.url) as client:
        assert client.lock("job").acquire(blocking=False) is None


def test_a_run_that_may_open_only_few_files_works(program: Program) -> None:
    words = ["sh", "-c", 'ulimit -n 32; exec "$@"', "sh", *program.argv("run", "job", "--", "echo", "done")]
    done = subprocess.run(words, env=program.environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def test_a_command_that_cannot_be_tied_to_the_lock_is_not_started(program: Program) -> None:
    """Its lock would be free while it runs, if the wrapper were killed."""
    warden = (
        "import os, sys\n"
        "from interlock.cli.command import Command\n"
        "from interlock.cli.warden import Duty\n"
        "command = Command.prepare(Duty(['touch', 'ran'], 'job', 60.0, 1.0))\n"
        "command.start(1, 1e9, ('/nowhere/locks.db', 2**41))\n"
        "print([report for report in command.reports(60)])\n"
        "command.dismiss()\n"
    )
    done = program.start_program([sys.executable, "-c", warden])
    assert done.communicate(timeout=PATIENCE)[0] == "[['failed', '2']]\n"
    assert not (program.folder / "ran").exists()
