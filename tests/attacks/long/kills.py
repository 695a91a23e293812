"""`kill -9` of the process that holds a lock in a file: how long the next in line waits, although the ttl is a minute."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
import time
from statistics import median

import interlock
from interlock.testing.lag import Lag

HOLD = """
import sys, time, interlock
client = interlock.connect(sys.argv[1], ttl=60)
lease = client.lock("x").acquire()
print("held", flush=True)
time.sleep(600)
"""
BOUND = 0.1
ENDING = 0.5  # seconds for `interlock run`: its command must be killed first, by a process that notices


def waited(url: str, command: bool) -> tuple[float, float]:
    """Seconds from the kill to the grant, and how many of them the machine was late."""
    words = [sys.executable, "-c", HOLD, url]
    if command:
        words = [sys.executable, "-m", "interlock", "run", "--url", url, "--ttl", "60", "x", "--", "sh", "-c"]
        words += ["echo held; exec sleep 600"]
    granted: list[float] = []
    with (
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder,
        interlock.connect(url, ttl=60) as client,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        def wait() -> None:
            with client.lock("x"):
                granted.append(time.monotonic())

        waiter = threading.Thread(target=wait)
        waiter.start()
        while len(client.inspect("x").standings) < 2:
            time.sleep(0.005)
        time.sleep(0.1)
        with Lag() as lag:
            began = time.monotonic()
            holder.send_signal(signal.SIGKILL)
            waiter.join()
    return granted[0] - began, lag.seconds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.long.kills", description=__doc__)
    parser.add_argument("--tries", type=int, default=20)
    options = parser.parse_args()
    late = 0
    with tempfile.TemporaryDirectory() as folder:
        for command in (False, True):
            seen = [waited(f"sqlite:///{folder}/locks.db", command) for _ in range(options.tries)]
            took = [each for each, _ in seen]
            late += sum(each - lag > (ENDING if command else BOUND) for each, lag in seen)
            what = "a run and its command" if command else "a program"
            print(
                f"{what}: {len(took)} kills; the next holder came after {min(took) * 1000:.1f} ms at best, "
                f"{median(took) * 1000:.1f} in the median, {max(took) * 1000:.1f} at worst; "
                f"less the lag of the machine, {max(each - lag for each, lag in seen) * 1000:.1f} at worst",
                flush=True,
            )
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
