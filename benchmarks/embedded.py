"""Questions for the two stores that need no server: memory and SQLite, and for the package itself."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import interlock
from benchmarks.question import Case, Measure, Question
from interlock.backends.sqlite.clock import Clock
from interlock.backends.sqlite.file import connect as open_file
from interlock.backends.sqlite.statements import CLAIMS

PAIRS = 400
ROOT = Path(__file__).resolve().parent.parent
WHO = '["worker-7",21133,"MainThread","billing/run.py:88"]'
COLUMNS = "resource, token, id, state, permits, capacity, ttl, lapses_at, since, rung, bell, note, who"


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
            [Case("bare transactions", _bare_sqlite), Case("interlock", _in_file(_pair))],
            goal=1.5,
            note="bare: two `begin immediate` with the reads and rows a lock needs; a fresh lock object per pair",
        ),
        Question(
            "handoff-sqlite",
            "hand-off to a waiter in another process, SQLite store (release called -> waiter has it)",
            [Case("pipe between processes", _bare_pipe), Case("interlock", _in_file(_handoff))],
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
            [Case("nothing held", idle), Case("interlock", _in_file(lambda url: hold(url)))],
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
                Case("interlock", _imports("interlock")),
            ],
            goal=25,
            absolute=True,
            unit="ms",
            scale=1e3,
            cores=(2,),
        ),
    ]


# ---- uncontended pairs --------------------------------------------------------------


def timed(pair: Callable[[], None], times: int = PAIRS) -> float:
    began = time.perf_counter()
    for _ in range(times):
        pair()
    return (time.perf_counter() - began) / times


def _pair(url: str) -> Iterator[Measure]:
    with interlock.connect(url) as client:

        def pair() -> None:
            lock = client.lock("bench")
            lock.acquire()
            lock.release()

        yield lambda: timed(pair)


def _pairs(url: str) -> Callable[[], AbstractContextManager[Measure]]:
    return lambda: contextmanager(_pair)(url)


def _in_file(make: Callable[[str], Iterator[Measure]]) -> Callable[[], AbstractContextManager[Measure]]:
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


@contextmanager
def _bare_sqlite() -> Iterator[Measure]:
    """What any store must do: read the queue, draw a token, insert; delete, read who is next."""
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        connection = open_file(f"{folder}/bare.db", clock)
        execute = connection.execute
        execute("drop trigger claim_numbered")  # the bare program draws its token with a statement
        insert = f"insert into claim ({COLUMNS}) values (?, ?, ?, 1, 1, 1, 30.0, ?, ?, 0, '', '', ?)"

        def pair() -> None:
            execute("begin immediate")
            execute(CLAIMS["queue"], ("bare",)).fetchall()
            (last,) = execute("select last from meta").fetchone()
            token, now = max(last + 1, clock.micros()), clock.now()
            execute("update meta set last = ?", (token,))
            execute(insert, ("bare", token, "0123456789abcdef0123-1", now + 30, now, WHO))
            execute("commit")
            execute("begin immediate")
            execute("delete from claim where resource = ? and id = ?", ("bare", "0123456789abcdef0123-1"))
            execute(CLAIMS["queue"], ("bare",)).fetchall()
            execute("commit")

        yield lambda: timed(pair)
        connection.close()


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
    with interlock.connect(url) as client, in_another(WAITER, url) as (ask, hear):
        lock = client.lock("handoff")

        def once() -> float:
            lock.acquire()
            ask()
            deadline = time.monotonic() + 10
            while not client.inspect("handoff").waiters:
                assert time.monotonic() < deadline, "the waiter never came"
            released = time.clock_gettime(time.CLOCK_MONOTONIC)
            lock.release()
            return float(json.loads(hear())) - released

        yield lambda: sorted(once() for _ in range(60))[30]


ECHO = """
import sys, time
print("ready", flush=True)
for line in sys.stdin:
    print(time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
"""


@contextmanager
def _bare_pipe() -> Iterator[Measure]:
    with in_another(ECHO, "") as (ask, hear):

        def once() -> float:
            began = time.clock_gettime(time.CLOCK_MONOTONIC)
            ask()
            return float(hear()) - began

        yield lambda: sorted(once() for _ in range(60))[30]


@contextmanager
def in_another(program: str, argument: str) -> Iterator[tuple[Callable[[], None], Callable[[], str]]]:
    """Another process that is told by a line and answers by a line."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with subprocess.Popen(
        [sys.executable, "-c", program, argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask() -> None:
            stdin.write("go\n")
            stdin.flush()

        assert stdout.readline() == "ready\n"
        try:
            yield ask, stdout.readline
        finally:
            process.kill()


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
    yield lambda: _share(1.0)


def hold(url: str) -> Iterator[Measure]:
    with interlock.connect(url, ttl=12.0) as client:
        threads = threading.active_count()
        locks = [client.lock(f"held/{number}") for number in range(1000)]
        for lock in locks:
            assert lock.acquire()

        def measure() -> float:
            share = _share(8.0)
            assert all(lock.owned() for lock in locks), "a lease was lost"
            assert threading.active_count() <= threads + 1, "more than one thread"
            return share

        yield measure


def _held(url: str) -> Callable[[], AbstractContextManager[Measure]]:
    return lambda: contextmanager(hold)(url)


# ---- import --------------------------------------------------------------------------------


def _imports(module: str) -> Callable[[], AbstractContextManager[Measure]]:
    def run(code: str) -> float:
        began = time.perf_counter()
        path = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); "
        subprocess.run([sys.executable, "-I", "-c", path + code], check=True)
        return time.perf_counter() - began

    @contextmanager
    def open() -> Iterator[Measure]:
        yield lambda: max(
            1e-4, min(run(f"import {module}") for _ in range(5)) - min(run("") for _ in range(5))
        )

    return open
