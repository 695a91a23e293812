"""A program whose standard streams are closed: whatever is written to their numbers never reaches a file of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
from interlock._support import standard_streams
from tests.sqlite.contender import surroundings

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")

HEADER = b"SQLite format 3\0"
NAMES = {0: "<&-", 1: ">&-", 2: "2>&-"}

# Waits once as well, for the sockets of the doorbell; then writes, as C code does that knows nothing of Python's streams.
WRITER = """
import os, sys
import interlock

url, report, *closed = sys.argv[1:]
with interlock.connect(url) as client, interlock.connect(url) as other:
    client.lock("r").acquire()
    other.lock("r").acquire(timeout=0.01)
    found = []
    for number in map(int, closed):
        try:
            os.write(number, b"a line that a C library writes to the standard stream" * 20)
            found += ["written"] * (number > 0)  # standard input is there to be read
        except OSError:
            pass
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            pass
    with open(report, "w") as file:
        file.write(" ".join(found))
"""

# What every daemon does with its standard streams once it has started.
DAEMON = """
import os, sys
import interlock

url, = sys.argv[1:]
client = interlock.connect(url)
lease = client.lock("r").acquire()
null = os.open(os.devnull, os.O_RDWR)
for number in range(3):
    os.dup2(null, number)
with interlock.connect(url) as other:
    assert other.lock("q").acquire(blocking=False)
child = os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", "import interlock, sys\\n"
    "sys.exit(interlock.connect(sys.argv[1]).lock('r').acquire(blocking=False) is not None)", url])
os._exit(child)
"""


def run(program: str, closed: tuple[int, ...], *words: str) -> subprocess.CompletedProcess[str]:
    redirections = " ".join(NAMES[number] for number in closed)
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirections}', "sh", sys.executable, "-c", program, *words],
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_a_line_written_to_a_closed_stream_does_not_reach_the_lock_file(
    path: str, tmp_path: Path, closed: tuple[int, ...]
) -> None:
    report = tmp_path / "report"
    done = run(WRITER, closed, f"sqlite:///{path}", str(report), *map(str, closed))
    assert done.returncode == 0, done.stderr
    assert Path(path).read_bytes()[: len(HEADER)] == HEADER
    # The write fails as it does on a closed stream, and nothing of ours has the number.
    assert report.read_text().split() == ["/dev/null"] * len(closed)
    with interlock.connect(f"sqlite:///{path}") as client:
        assert client.lock("after").acquire(timeout=5)


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_a_daemon_that_replaces_its_streams_keeps_its_lock(path: str, closed: tuple[int, ...]) -> None:
    assert run(DAEMON, closed, f"sqlite:///{path}").returncode == 0, "another process took the lock as well"


def test_streams_that_are_open_are_left_alone() -> None:
    before = set(os.listdir("/proc/self/fd"))
    standard_streams.occupy()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_closed_stream_stays_closed_for_programs_that_are_started(path: str) -> None:
    started = "import os, sys; sys.exit(os.path.exists('/proc/self/fd/2'))"
    program = (
        f"import interlock, os, sys; interlock.connect('sqlite:///{path}').lock('r').acquire()\n"
        f"os.execv(sys.executable, [sys.executable, '-S', '-c', {started!r}])"
    )
    assert run(program, (2,)).returncode == 0
