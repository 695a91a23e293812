"""The pairs and hand-overs of an older commit beside those of this one, in one run: is it slower now?

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
from importlib import import_module
from pathlib import Path
from statistics import median

from benchmarks.ours import SETTLE
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

BETWEEN = """
import sys, threading, time, interlock
from statistics import median
first, second = interlock.connect(sys.argv[1]), interlock.connect(sys.argv[1])
lock, go, got, instants = first.lock("between"), threading.Semaphore(0), threading.Semaphore(0), []
def wait():
    while True:
        go.acquire()
        with second.lock("between"):
            instants.append(time.perf_counter())
        got.release()
threading.Thread(target=wait, daemon=True).start()
def once():
    lock.acquire()
    go.release()
    time.sleep(float(sys.argv[2]))
    released = time.perf_counter()
    lock.release()
    got.acquire()
    return instants.pop() - released
for _ in range(10): once()
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


class Stores:
    """Stores of one side's own, since the commits need not understand each other's records; each starts when it is asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self._urls = stack, dict[str, str]()

    def url(self, store: str) -> str:
        if store not in self._urls:
            self._urls[store] = self._opened(store)
        return self._urls[store]

    def _opened(self, store: str) -> str:
        enter = self._stack.enter_context
        if store == "memory":
            return "memory://compare"
        if store == "sqlite":
            return f"sqlite:///{enter(tempfile.TemporaryDirectory(prefix='interlock-compare-'))}/locks.db"
        if store == "redis":
            return f"redis://127.0.0.1:{enter(served()).port}"
        if store == "redlock":
            return "redlock://" + ",".join(f"127.0.0.1:{port}" for port in enter(servers(5)()))
        url: str = enter(import_module(f"benchmarks.{store}").served())
        return url


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
    **{f"pair-{store}": (SYNC, store, "") for store in ("etcd", "zookeeper", "postgresql", "mysql")},
    **{
        f"handoff-{store}": (BETWEEN, store, str(SETTLE))
        for store in ("sqlite", "redis", "redlock", "etcd", "zookeeper", "postgresql", "mysql")
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("commit", help="the older one")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="", help="questions whose name contains this")
    options = parser.parse_args()
    with source(options.commit) as before, ExitStack() as stack:
        theirs, ours = Stores(stack), Stores(stack)
        sys.stdout.write(f"{'':24}{'before':>10}{'after':>10}   after / before\n")
        for name, (program, store, kind) in QUESTIONS.items():
            if options.only in name:
                with (
                    in_another(program, theirs.url(store), kind, source=before) as old,
                    in_another(program, ours.url(store), kind) as new,
                ):
                    one, two, ratio = compared(old, new, options.rounds)
                sys.stdout.write(f"{name:24}{1e6 * one:7.1f} us{1e6 * two:7.1f} us   {ratio:.2f}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
