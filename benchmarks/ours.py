"""What interlock itself is asked, on any store: a question about a new store needs only its URL and its bare limit."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import interlock
import interlock.aio
from benchmarks import pace
from benchmarks.counting import calls_of
from benchmarks.pace import middle, timed
from benchmarks.process import busy, in_another
from benchmarks.question import Figure, Measure
from benchmarks.tasks import Opened

Served = Callable[[], AbstractContextManager[str]]
"""Starts the servers of one case, and gives their URL."""


def on(
    served: Served, make: Callable[[str], Iterator[Measure]]
) -> Callable[[], AbstractContextManager[Measure]]:
    """A case with servers of its own: `Case("interlock", on(etcd, ours.pair))`."""

    @contextmanager
    def open() -> Iterator[Measure]:
        with served() as url:
            yield from make(url)

    return open


def pair(url: str) -> Iterator[Measure]:
    """Uncontended acquire and release, with a fresh lock object for each pair."""
    with interlock.connect(url) as client:

        def once() -> None:
            lock = client.lock("bench")
            lock.acquire()
            lock.release()

        calls = calls_of(once)
        yield lambda: Figure(timed(once), python_calls=calls)


async def in_tasks(url: str) -> Opened:
    """The same, awaited: for `benchmarks.tasks.in_tasks`, with any number of tasks."""
    client = interlock.aio.connect(url)

    async def once(name: str) -> None:
        lock = client.lock(name)
        await lock.acquire()
        await lock.release()

    return once, client.close


# ---- hand-off to another process ------------------------------------------------------------

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
SETTLE = 0.004  # seconds in which a waiter that stands in the queue has come to wait


def handoff(url: str, settle: float = SETTLE) -> Iterator[Measure]:
    """From the call of release to the instant at which a waiter in another process has the lock."""
    with interlock.connect(url) as client, in_another(WAITER, url) as other:
        lock = client.lock("handoff")

        def once() -> float:
            lock.acquire()
            other.tell()
            deadline = time.monotonic() + 10
            while not client.inspect("handoff").waiters:
                assert time.monotonic() < deadline, "the waiter never came"
            time.sleep(settle)
            released = time.clock_gettime(time.CLOCK_MONOTONIC)
            lock.release()
            return float(json.loads(other.hear())) - released

        yield lambda: middle(once, 60)


# ---- many leases held -------------------------------------------------------------------------


def _share(seconds: float) -> float:
    began = busy()
    time.sleep(seconds)
    return max(1e-6, busy() - began) / seconds


@contextmanager
def idle() -> Iterator[Measure]:
    """The limit of `hold`: the share of a core that this process takes with nothing held."""
    yield lambda: _share(pace.seconds(1.0))


def hold(url: str) -> Iterator[Measure]:
    """The share of a core that 1,000 leases take that are held for 8 s and renewed every 4 s, with one thread more."""
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
