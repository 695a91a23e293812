"""The pairs and local hand-overs of an older commit beside those of this one, in one run: is it slower now?

    python -m benchmarks.compare e3b3860
    python -m benchmarks.compare main~20 --rounds 21 --only redis-pair

Each question has one process of either commit, on servers of its own. They take turns of a quarter of a second, so whatever
else the machine does hits both. What counts is the median of the ratios of neighbouring turns.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from benchmarks.process import ROOT, Another, in_another
from benchmarks.redis_server import served, servers

TURN = 0.25  # seconds

SYNC = """
import sys, time, interlock
client = interlock.connect(sys.argv[1])
def pair():
    lock = client.lock("compare")
    lock.acquire()
    lock.release()
for _ in range(200): pair()
print("ready", flush=True)
for line in sys.stdin:
    pairs, began = 0, time.perf_counter()
    while (now := time.perf_counter()) < began + float(line):
        for _ in range(10): pair()
        pairs += 10
    print((now - began) / pairs, flush=True)
"""

TASKS = """
import asyncio, sys, time, interlock.aio
async def main():
    async with interlock.aio.connect(sys.argv[1]) as client:
        async def pair(name, count):
            for _ in range(count):
                lock = client.lock(name)
                await lock.acquire()
                await lock.release()
        tasks = int(sys.argv[2])
        async def batch(count):
            await asyncio.gather(*(pair(f"compare:{n}", count) for n in range(tasks)))
        await batch(20)
        print("ready", flush=True)
        while line := sys.stdin.readline():
            pairs, began = 0, time.perf_counter()
            while (now := time.perf_counter()) < began + float(line):
                await batch(5)
                pairs += 5 * tasks
            print((now - began) / pairs, flush=True)
asyncio.run(main())
"""

LOCAL = """
import sys, time
from statistics import median
from benchmarks import local
measured = getattr(local, "once_between_" + sys.argv[2])(sys.argv[1])
once = next(measured)
for _ in range(50): once()
print("ready", flush=True)
for line in sys.stdin:
    times, began = [], time.perf_counter()
    while time.perf_counter() < began + float(line): times.append(once())
    print(median(times), flush=True)
"""


@contextmanager
def source(commit: str) -> Iterator[Path]:
    """The package as it was at that commit."""
    packed = subprocess.run(
        ["git", "archive", commit, "src"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    ).stdout
    with tempfile.TemporaryDirectory(prefix="interlock-compare-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        yield Path(folder) / "src"


def turn(another: Another) -> float:
    another.tell(str(TURN))
    return float(another.hear())


def compared(old: Another, new: Another, rounds: int) -> tuple[float, float, float]:
    """Medians before and after, in seconds, and the median of the ratios."""
    turns = [(turn(old), turn(new)) for _ in range(rounds)]
    return (
        median(one for one, _ in turns),
        median(two for _, two in turns),
        median(two / one for one, two in turns),
    )


@contextmanager
def urls() -> Iterator[dict[str, str]]:
    """Stores of one side's own: the commits need not understand each other's records."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="interlock-compare-"))
        nodes = ",".join(f"127.0.0.1:{port}" for port in stack.enter_context(servers(5)()))
        yield {
            "memory": "memory://compare",
            "sqlite": f"sqlite:///{folder}/locks.db",
            "redis": f"redis://127.0.0.1:{stack.enter_context(served()).port}",
            "redlock": f"redlock://{nodes}",
        }


QUESTIONS: dict[str, tuple[str, str, str]] = {
    "pair-memory": (SYNC, "memory", ""),
    "pair-sqlite": (SYNC, "sqlite", ""),
    "redis-pair": (SYNC, "redis", ""),
    "redis-pair-async": (TASKS, "redis", "1"),
    "redis-pair-64-tasks": (TASKS, "redis", "64"),
    "redlock-pair": (SYNC, "redlock", ""),
    "redlock-pair-16-tasks": (TASKS, "redlock", "16"),
    "redis-handoff-threads": (LOCAL, "redis", "threads"),
    "redis-handoff-tasks": (LOCAL, "redis", "tasks"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("commit", help="the older one")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="", help="questions whose name contains this")
    options = parser.parse_args()
    with source(options.commit) as before, urls() as theirs, urls() as ours:
        sys.stdout.write(f"{'':24}{'before':>10}{'after':>10}   after / before\n")
        for name, (program, store, kind) in QUESTIONS.items():
            if options.only in name:
                with (
                    in_another(program, theirs[store], kind, source=before) as old,
                    in_another(program, ours[store], kind) as new,
                ):
                    one, two, ratio = compared(old, new, options.rounds)
                sys.stdout.write(f"{name:24}{1e6 * one:7.1f} us{1e6 * two:7.1f} us   {ratio:.2f}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
