"""A program that has no file descriptor left: every call answers, or raises one error of ours, the first time too."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.patience import PATIENCE
from tests.sqlite.contender import surroundings

pytest.importorskip("resource", reason="nothing limits descriptors here")

PROGRAM = """
import resource, sys
import interlock

url = sys.argv[1]
client, holder = interlock.connect(url), interlock.connect(url)
lease = holder.lock("busy").acquire()
once = client.once("o")(lambda: 1)
calls = {
    "acquire": lambda: client.lock("busy").acquire(timeout=0.1),
    "with": lambda: client.lock("busy", timeout=0.1).__enter__(),
    "event": lambda: client.event("e").wait(0.1),
    "register": lambda: client.register("r").update(lambda _: "x"),
    "latch": lambda: client.latch("l", 2).wait(0.1),
    "barrier": lambda: client.barrier("b", 2).wait(0.1),
    "condition": lambda: client.condition("c").acquire(timeout=0.1),
    "election": lambda: client.election("el").campaign("me", timeout=0.1),
    "multilock": lambda: client.multilock(["a", "b"], timeout=0.1).acquire(),
    "scan": lambda: list(client.scan("")),
    "inspect": lambda: client.inspect("busy"),
    "evict": lambda: client.evict("none", reason="a test"),
    "once": once,
    "guard": lambda: client.guard("g").accept(7),
    "connect": lambda: interlock.connect(url),
    "renew": lease.renew,
}
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
wrong = []
for name, call in calls.items():
    try:
        call()
    except interlock.InterlockError as error:
        if isinstance(error, interlock.StoreUnfit):
            wrong.append(f"{name}: {error}")
    except BaseException as error:
        wrong.append(f"{name}: {type(error).__name__} {error}")
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
lease.release()
with client.lock("busy", timeout=60):
    print(*wrong, sep="\\n", end="")
"""


def test_every_call_raises_errors_of_ours_and_works_again_afterwards(path: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"sqlite:///{path}"],
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
