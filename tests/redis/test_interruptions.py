"""Signals, exceptions thrown into threads, and threads that cannot be started: between client and server nothing is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import interlock
from interlock.backends.redis import pool
from interlock.errors import StoreUnavailable
from interlock.testing.lag import at_most
from tests.attacks.strike import strikes
from tests.patience import PATIENCE
from tests.redis.server import Server, running
from tests.redis.test_connecting import environment


@contextmanager
def ticking(every: float, at_most: float) -> Iterator[None]:
    """A harmless signal, again and again, for a while."""
    end = time.monotonic() + at_most

    def tick(number: int, frame: object) -> None:
        if time.monotonic() > end:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, every, every)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_a_periodic_signal_does_not_stretch_a_timeout() -> None:
    with running() as server, interlock.connect(server.url()) as client:
        with client.lock("warm"):
            pass
        with server.frozen(), ticking(0.05, at_most=12):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                client.lock("x").acquire(timeout=0.3)
            took = time.monotonic() - began
    assert took < 5


def test_a_periodic_signal_does_not_stretch_the_time_to_connect() -> None:
    with running() as server, server.frozen(), ticking(0.05, at_most=12):
        with interlock.connect(server.url(), connect_timeout=0.3) as client:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable):
                client.lock("x").acquire(timeout=0.1)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("cold", [False, True], ids=["a kept connection", "a new connection"])
def test_a_thread_struck_anywhere_in_the_pool_leaves_its_place_to_the_others(
    url: str, monkeypatch: Any, cold: bool
) -> None:
    monkeypatch.setattr(pool, "MOST", 1)
    with interlock.connect(url) as client:
        client.inspect("x")
        leaf: Any = client._core.store
        where: list[str] = []

        def look() -> None:
            if cold:
                leaf._leaf._drain()
            client.inspect("x")

        for strike in strikes(look, pool.__file__):
            where.append(strike.where)
            with at_most(3, strike.where):
                client.inspect("x")
    assert len(where) > 10


def test_exceptions_thrown_into_threads_leave_the_connections_to_the_others(url: str) -> None:
    words = [sys.executable, "-m", "tests.redis.throwing", url, "2"]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=100)
    told = json.loads(done.stdout)
    assert told["struck"] > 20
    assert told["done"] == 20, "connections were lost"
    assert told["took"] < 8


def wait(client: interlock.Client, got: list[float]) -> None:
    with client.lock("x", timeout=PATIENCE):
        got.append(time.monotonic())


def test_a_thread_that_could_not_be_started_is_started_for_the_next(
    server: Server, url: str, monkeypatch: Any
) -> None:
    start, failed = threading.Thread.start, [0]

    def start_or_not(thread: threading.Thread) -> None:
        if thread.name == "interlock-redis" and failed[0] < 1:
            failed[0] += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_not)
    with interlock.connect(url) as holder, interlock.connect(url) as waiter:
        for number in range(2):
            lease = holder.lock("x").acquire()
            assert lease
            got: list[float] = []
            thread = threading.Thread(target=wait, args=(waiter, got))
            thread.start()
            while len(holder.inspect("x").standings) < 2:
                time.sleep(0.005)
            time.sleep(0.2)
            released = time.monotonic()
            lease.release()
            thread.join(PATIENCE)
            assert got, f"the waiter was left alone, round {number}"
            assert got[0] - released < 3
    assert failed == [1]
