"""`python3 dev.py demo --fast`, as a user runs it: true, plain in a pipe, and gone without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.house.source import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="needs signals of POSIX")]

DEADLINE = 60.0
PROC = os.path.isdir("/proc/self")


class Run:
    """One demo in a temporary folder of its own."""

    def __init__(self, folder: Path, out: int, **extra: str) -> None:
        self.folder = folder
        env = {**os.environ, "TMPDIR": str(folder), **extra}
        command = [sys.executable, str(ROOT / "dev.py"), "demo", "--fast"]
        self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, text=True)

    def descendants(self) -> list[int]:
        """Processes that know our folder by name: the workers' arguments do."""
        return [pid for pid in everybody() if str(self.folder).encode() in words(pid)]

    def director(self) -> int:
        """The demo itself: dev.py's child."""
        return next(pid for pid in everybody() if parent(pid) == self.process.pid)

    def leftovers(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]


def everybody() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def eventually(fact: Callable[[], object]) -> None:
    until = time.monotonic() + DEADLINE
    while not fact():
        assert time.monotonic() < until, f"did not happen within {DEADLINE} s"
        time.sleep(0.02)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def begin(out: int = subprocess.PIPE, **extra: str) -> Run:
        runs.append(Run(tmp_path, out, **extra))
        return runs[-1]

    yield begin
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()
        if run.process.stdout is not None:
            run.process.stdout.close()
        for pid in run.descendants() if PROC else []:  # only a failed test leaves some
            os.kill(pid, signal.SIGKILL)


needs_proc = pytest.mark.skipif(not PROC, reason="sees processes through /proc")


def test_in_a_pipe_it_tells_the_story_in_plain_lines_and_all_its_claims_are_true(
    start: Callable[..., Run],
) -> None:
    run = start(TERM="xterm")
    text, _ = run.process.communicate(timeout=DEADLINE)
    assert run.process.returncode == 0, text
    assert "\x1b" not in text
    assert "FALSE" not in text
    assert "0 overlaps" in text
    assert "was killed (kill -9)" in text
    assert "REFUSED" in text
    assert run.leftovers() == []


def test_on_a_terminal_it_is_redrawn_in_place_and_the_cursor_comes_back(start: Callable[..., Run]) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    run = start(theirs, TERM="xterm", COLUMNS="80", LINES="24")
    os.close(theirs)
    text = b""
    while True:
        try:
            text += os.read(ours, 65536)
        except OSError:  # the last writer has gone
            break
    os.close(ours)
    assert run.process.wait(DEADLINE) == 0
    assert b"\x1b[22A" in text
    assert b"PAUSED" in text  # one that was killed holds nothing by the time it could be drawn
    assert text.rstrip().endswith(b"\x1b[?25h")


def test_when_nobody_reads_on_it_ends_quietly_and_leaves_nothing(start: Callable[..., Run]) -> None:
    run = start()
    assert run.process.stdout is not None
    run.process.stdout.readline()
    run.process.stdout.close()
    assert run.process.wait(DEADLINE) == 141
    assert run.leftovers() == []


@needs_proc
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_all_workers_and_leaves_nothing(start: Callable[..., Run], ending: int) -> None:
    run = start()
    eventually(lambda: len(run.descendants()) == 6)
    os.kill(run.director(), ending)
    text, _ = run.process.communicate(timeout=DEADLINE)
    assert run.process.returncode == 130, text
    assert "Traceback" not in text
    eventually(lambda: not run.descendants())  # one that was just being started dies with its parent
    assert run.leftovers() == []


@needs_proc
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a paused worker cannot notice")
def test_workers_do_not_outlive_a_killed_director(start: Callable[..., Run]) -> None:
    run = start()
    assert run.process.stdout is not None
    while "act 1" not in run.process.stdout.readline():  # all workers are at work from here on
        assert run.process.poll() is None
    os.kill(run.descendants()[0], signal.SIGSTOP)
    os.kill(run.director(), signal.SIGKILL)
    eventually(lambda: not run.descendants())
