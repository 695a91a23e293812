"""The -shm of a lock file is removed again and again while processes contend for locks in it.

Each process notes when it began and ended a hold, by the clock that all processes of a machine share; the judge looks for
two holds of one lock that overlap, and for tokens that do not rise.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import interlock

NAMES = 3


def contend(url: str, seconds: float) -> None:
    """One process; prints its holds."""
    chance, ends = random.Random(os.getpid()), time.monotonic() + seconds
    with interlock.connect(url, ttl=30) as client:
        while time.monotonic() < ends:
            name = f"r{chance.randrange(NAMES)}"
            try:
                with client.lock(name, timeout=5) as lease:
                    began = time.monotonic_ns()
                    time.sleep(chance.choice((0.0, 0.0, 0.001, 0.01)))
                    lease.check()
                    print(name, lease.token, began, time.monotonic_ns())
            except interlock.InterlockError as error:
                print("!", type(error).__name__)


def judged(lines: list[list[str]]) -> tuple[int, int]:
    """How many holds overlap another one of the same lock, and how many tokens are not above the last one."""
    overlaps = low = 0
    for name in {line[0] for line in lines}:
        holds = sorted((int(b), int(e), int(t)) for n, t, b, e in lines if n == name)
        for before, after in pairwise(holds):
            overlaps += after[0] < before[1]
            low += after[2] <= before[2]
    return overlaps, low


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.long.removed", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--every", type=float, default=0.1, help="seconds between two removals")
    parser.add_argument("--contend", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contend:
        contend(options.contend, options.seconds)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "locks.db")
        words = [sys.executable, "-m", "tests.attacks.long.removed", "--contend", f"sqlite:///{path}"]
        words += ["--seconds", str(options.seconds)]
        crew = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(options.processes)]
        ends, removals = time.monotonic() + options.seconds, 0
        while time.monotonic() < ends:
            with suppress(FileNotFoundError):
                os.unlink(f"{path}-shm")
                removals += 1
            time.sleep(options.every)
        lines = [line.split() for each in crew for line in each.communicate()[0].splitlines()]
    holds = [line for line in lines if line[0] != "!"]
    errors: dict[str, int] = {}
    for line in lines:
        if line[0] == "!":
            errors[line[1]] = errors.get(line[1], 0) + 1
    overlaps, low = judged(holds)
    print(f"{removals} removals under {options.processes} processes: {len(holds)} holds, errors {errors};")
    print(f"{overlaps} overlaps, {low} tokens that do not rise")
    return 1 if overlaps or low or not holds else 0


if __name__ == "__main__":
    sys.exit(main())
