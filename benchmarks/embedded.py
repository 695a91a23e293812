"""Questions for the two stores that need no server: memory and SQLite, and for the package itself."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import interlock
from benchmarks import pace, sqlite_pair
from benchmarks.pace import middle, timed
from benchmarks.process import ROOT, in_another
from benchmarks.question import Case, Measure, Question


def questions() -> list[Question]:
    return [
        Question(
            "pair-memory",
            "uncontended acquire+release in one process, memory store",
            [Case("threading.Lock", _bare_lock), Case("interlock", _pairs("memory://bench"))],
            goal=40,
            absolute=True,
        ),
        Question(
            "pair-sqlite",
            "uncontended acquire+release, SQLite store",
            [
                Case("bare transactions", in_folder(sqlite_pair.bare)),
                Case("without token and reads", in_folder(sqlite_pair.minimal)),
                Case("interlock, the store alone", in_folder(sqlite_pair.store)),
                Case("interlock", in_file(_pair)),
            ],
            goal=1.5,
            note="bare: two `begin immediate` with the reads and rows a lock needs; a fresh lock object per pair",
        ),
        Question(
            "handoff-sqlite",
            "hand-off to a waiter in another process, SQLite store (release called -> waiter has it)",
            [Case("pipe between processes", _bare_pipe), Case("interlock", in_file(_handoff))],
            goal=1000,
            absolute=True,
            rounds=9,
            cores=(2, 1),
        ),
        Question(
            "held-memory",
            "1,000 leases held for 8 s, renewed every 4 s, memory store: share of a core",
            [Case("nothing held", idle), Case("interlock", _held("memory://held"))],
            goal=2.0,
            absolute=True,
            unit="%",
            scale=100,
            rounds=2,
            cores=(2,),
        ),
        Question(
            "held-sqlite",
            "1,000 leases held for 8 s, renewed every 4 s, SQLite store: share of a core",
            [Case("nothing held", idle), Case("interlock", in_file(lambda url: hold(url)))],
            goal=2.0,
            absolute=True,
            unit="%",
            scale=100,
            rounds=2,
            cores=(2,),
        ),
        Question(
            "import",
            "import of the package, beyond a bare interpreter",
            [
                Case("import socket", _imports("socket")),
                Case("import asyncio", _imports("asyncio")),
                Case(
                    "interlock", _imports("interlock; interlock.connect")
                ),  # or most of it would not be loaded yet
            ],
            goal=25,
            absolute=True,
            unit="ms",
            scale=1e3,
            cores=(2,),
        ),
    ]


# ---- uncontended pairs --------------------------------------------------------------


def _pair(url: str) -> Iterator[Measure]:
    with interlock.connect(url) as client:

        def pair() -> None:
            lock = client.lock("bench")
            lock.acquire()
            lock.release()

        yield lambda: timed(pair)


def _pairs(url: str) -> Callable[[], AbstractContextManager[Measure]]:
    return lambda: contextmanager(_pair)(url)


def in_folder(make: Callable[[str], Callable[[], None]]) -> Callable[[], AbstractContextManager[Measure]]:
    """Pairs in a fresh folder."""

    @contextmanager
    def open() -> Iterator[Measure]:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            pair = make(folder)
            yield lambda: timed(pair)

    return open


def in_file(make: Callable[[str], Iterator[Measure]]) -> Callable[[], AbstractContextManager[Measure]]:
    """A case on a fresh lock file."""

    @contextmanager
    def open() -> Iterator[Measure]:
        with tempfile.TemporaryDirectory() as folder:
            yield from make(f"sqlite:///{folder}/bench.db")

    return open


@contextmanager
def _bare_lock() -> Iterator[Measure]:
    def pair() -> None:
        lock = threading.Lock()
        lock.acquire()
        lock.release()

    yield lambda: timed(pair)


# ---- hand-off between two processes ---------------------------------------------------

WAITER = """
import json, sys, time, interlock
client = interlock.connect(sys.argv[1])
lock = client.lock("handoff")
print("ready", flush=True)
for line in sys.stdin:
    lock.acquire()
    print(json.dumps(time.clock_gettime(time.CLOCK_MONOTONIC)), flush=True)
    lock.release()
"""


def _handoff(url: str) -> Iterator[Measure]:
    with interlock.connect(url) as client, in_another(WAITER, url) as other:
        lock = client.lock("handoff")

        def once() -> float:
            lock.acquire()
            other.tell()
            deadline = time.monotonic() + 10
            while not client.inspect("handoff").waiters:
                assert time.monotonic() < deadline, "the waiter never came"
            released = time.clock_gettime(time.CLOCK_MONOTONIC)
            lock.release()
            return float(json.loads(other.hear())) - released

        yield lambda: middle(once, 60)


ECHO = """
import sys, time
print("ready", flush=True)
for line in sys.stdin:
    print(time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
"""


@contextmanager
def _bare_pipe() -> Iterator[Measure]:
    with in_another(ECHO) as other:

        def once() -> float:
            began = time.clock_gettime(time.CLOCK_MONOTONIC)
            other.tell()
            return float(other.hear()) - began

        yield lambda: middle(once, 60)


# ---- many leases held -------------------------------------------------------------------


def _busy() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _share(seconds: float) -> float:
    began = _busy()
    time.sleep(seconds)
    return max(1e-6, _busy() - began) / seconds


@contextmanager
def idle() -> Iterator[Measure]:
    yield lambda: _share(pace.seconds(1.0))


def hold(url: str) -> Iterator[Measure]:
    with interlock.connect(url, ttl=12.0) as client:
        threads = threading.active_count()
        locks = [client.lock(f"held/{number}") for number in range(1000)]
        for lock in locks:
            assert lock.acquire()

        def measure() -> float:
            share = _share(pace.seconds(8.0))
            assert all(lock.owned() for lock in locks), "a lease was lost"
            assert threading.active_count() <= threads + 1, "more than one thread"
            return share

        yield measure


def _held(url: str) -> Callable[[], AbstractContextManager[Measure]]:
    return lambda: contextmanager(hold)(url)


# ---- import --------------------------------------------------------------------------------


def _imports(what: str) -> Callable[[], AbstractContextManager[Measure]]:
    def run(code: str) -> float:
        began = time.perf_counter()
        path = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); "
        subprocess.run([sys.executable, "-I", "-c", path + code], check=True)
        return time.perf_counter() - began

    @contextmanager
    def open() -> Iterator[Measure]:
        yield lambda: max(1e-4, min(run(f"import {what}") for _ in range(5)) - min(run("") for _ in range(5)))

    return open
