"""Questions for the two stores that need no server: memory and SQLite, and for the package itself."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from benchmarks import ours, sqlite_pair
from benchmarks.pace import middle, timed
from benchmarks.process import ROOT, in_another
from benchmarks.question import Case, Measure, Question


def questions() -> list[Question]:
    return [
        Question(
            "pair-memory",
            "uncontended acquire+release in one process, memory store",
            [Case("threading.Lock", _bare_lock), Case("interlock", in_memory(ours.pair))],
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
                Case("interlock", in_file(ours.pair)),
            ],
            goal=1.5,
            note="bare: two `begin immediate` with the reads and rows a lock needs; a fresh lock object per pair",
        ),
        Question(
            "pair-sqlite-bare",
            "uncontended acquire+release, SQLite store, against one bare insert and one bare delete",
            [
                Case("bare insert, bare delete", in_folder(sqlite_pair.two_statements)),
                Case("interlock, the store alone", in_folder(sqlite_pair.store)),
                Case("interlock", in_file(ours.pair)),
            ],
            goal=1.5,
            note="the limit has neither token nor queue: it is what SQLite costs, not what a lock costs",
        ),
        Question(
            "handoff-sqlite",
            "hand-off to a waiter in another process, SQLite store (release called -> waiter has it)",
            [
                Case("bare delete, datagram, insert", in_folder_of(_bare_doorbell)),
                Case("pipe between processes", _bare_pipe),
                Case("interlock", in_file(ours.handoff)),
            ],
            goal=2.0,
            rounds=9,
            cores=(2, 1),
        ),
        Question(
            "held-memory",
            "1,000 leases held for 8 s, renewed every 4 s, memory store: share of a core",
            [Case("nothing held", ours.idle), Case("interlock", in_memory(ours.hold))],
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
            [Case("nothing held", ours.idle), Case("interlock", in_file(ours.hold))],
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


def in_memory(make: Callable[[str], Iterator[Measure]]) -> Callable[[], AbstractContextManager[Measure]]:
    """A case on the memory of this process."""
    return lambda: contextmanager(make)("memory://bench")


def in_folder(make: Callable[[str], Callable[[], None]]) -> Callable[[], AbstractContextManager[Measure]]:
    """Pairs in a fresh folder."""

    @contextmanager
    def open() -> Iterator[Measure]:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            pair = make(folder)
            yield lambda: timed(pair)

    return open


def in_folder_of(make: Callable[[str], Iterator[Measure]]) -> Callable[[], AbstractContextManager[Measure]]:
    """A case with a fresh folder."""

    @contextmanager
    def open() -> Iterator[Measure]:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            yield from make(folder)

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

DOORBELL = """
import socket, sys, time
from benchmarks.sqlite_pair import statements
bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
bell.bind(sys.argv[1] + "/bell")
enter, _ = statements(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    bell.recv(64)
    enter()
    print(time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
"""


def _bare_doorbell(folder: str) -> Iterator[Measure]:
    """The holder deletes its row and rings; the waiter inserts its own."""
    _, leave = sqlite_pair.statements(folder)
    with in_another(DOORBELL, folder) as other, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.connect(f"{folder}/bell")

        def once() -> float:
            other.tell()
            time.sleep(ours.SETTLE)
            released = time.clock_gettime(time.CLOCK_MONOTONIC)
            leave()
            bell.send(b"!")
            return float(other.hear()) - released

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
