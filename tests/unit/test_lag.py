"""The machine's own lag, which tests about time do not count."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from interlock.testing import lag
from interlock.testing.lag import Lag, at_most
from tests.patience import until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

SPINNING = "while True: pass"
SERVING = """
import sys
for line in sys.stdin:
    sum(range(2_000_000))
    print(flush=True)
"""


def test_a_bound_is_still_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "_programs", dict)  # other tests' servers, which may be late as well
    with pytest.raises(AssertionError, match="too long"), at_most(0.01):
        end = time.thread_time() + 0.15
        while time.thread_time() < end:  # computing is no lag
            pass


def test_a_server_that_shares_its_processor_is_late_and_its_caller_is_not_blamed() -> None:
    """Server and spinners share one processor, from which the caller stays away."""
    everywhere = os.sched_getaffinity(0)
    one = {min(everywhere)}
    programs: list[subprocess.Popen[str]] = []
    os.sched_setaffinity(0, one)  # inherited
    try:
        pipe = subprocess.PIPE
        server = subprocess.Popen(
            [sys.executable, "-c", SERVING], stdin=pipe, stdout=pipe, text=True, bufsize=1
        )
        programs.append(server)
        assert server.stdin
        assert server.stdout
        server.stdin.write("\n")
        server.stdout.readline()  # it runs
        programs += [subprocess.Popen([sys.executable, "-c", SPINNING], text=True) for _ in range(3)]
        os.sched_setaffinity(0, everywhere - one or everywhere)
        until(lambda: all(_computed(spinner.pid) > 0.02 for spinner in programs[1:]))
        computing = _computed(server.pid)
        began = time.monotonic()
        with Lag() as found:
            server.stdin.write("\n")
            server.stdout.readline()
            of_servers = found._servers_late()  # alone: on a busy machine, the caller is late as well
        took = time.monotonic() - began
        computing = _computed(server.pid) - computing
    finally:
        os.sched_setaffinity(0, everywhere)
        for program in programs:
            program.kill()
            program.communicate()
    assert of_servers > (took - computing) / 2
    assert found.seconds >= of_servers


def _computed(pid: int) -> float:
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9
