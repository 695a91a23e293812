"""Signals, exceptions thrown into threads, and threads that cannot be started lose nothing between client and server."""

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
from interlock.backends.redis.transport import pool
from interlock.errors import StoreUnavailable
from interlock.testing.lag import at_most
from interlock.testing.servers.redis import running
from tests.attacks.strike import strikes
from tests.environment import environment
from tests.patience import PATIENCE, until


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
    monkeypatch.setattr(pool, "MAX_CONNECTIONS", 1)
    with interlock.connect(url) as client:
        client.inspect("x")
        store: Any = client._core.store
        where: list[str] = []

        def look() -> None:
            if cold:
                store._transport._drain()
            client.inspect("x")

        for strike in strikes(look, pool.__file__):
            where.append(strike.where)
            with at_most(3, strike.where):
                client.inspect("x")
    assert len(where) > 10 or sys.version_info >= (
        3,
        12,
    )  # where functions that ran before are not traced by step


def test_exceptions_thrown_into_threads_leave_the_connections_to_the_others(url: str) -> None:
    words = [sys.executable, "-m", "tests.redis.throwing", url, "2"]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=100)
    told = json.loads(done.stdout)
    assert told["struck"] > 20
    assert told["done"] == 20, "connections were lost"
    assert told["took"] < 8


@pytest.mark.parametrize("part", ["_transport", "_listener"])
def test_a_release_in_the_midst_of_a_change_is_left_to_the_keeper(url: str, part: str) -> None:
    """As a signal handler or a garbage collector would call it, there."""
    with interlock.connect(url) as client:
        lease = client.lock("x").acquire()
        assert lease
        store: Any = client._core.store
        assert not store.inside()
        with getattr(store, part)._mutex:
            assert store.inside()
            lease.release()
        until(lambda: not client.inspect("x").standings)


def test_a_release_in_the_midst_of_delivering_a_message_is_left_to_the_keeper(url: str) -> None:
    """The reader of a subscription has locks of its own, and delivers while it has them."""
    with interlock.connect(url) as client, interlock.connect(url) as other:
        held, lease = other.lock("y").acquire(), client.lock("x").acquire()
        assert held
        assert lease
        waiter = threading.Thread(target=lambda: client.lock("y", timeout=PATIENCE).acquire())
        waiter.start()
        store: Any = client._core.store
        until(lambda: store._listener.reader is not None)
        for lock in (store._listener._reader._mutex, store._listener._reader._lock):
            assert not store.inside()
            with lock:
                assert store.inside()
        with store._listener._reader._mutex:
            lease.release()
        until(lambda: not client.inspect("x").standings)
        held.release()
        waiter.join(PATIENCE)


def test_threads_are_not_inside_what_another_thread_changes(url: str) -> None:
    with interlock.connect(url) as client:
        store: Any = client._core.store
        seen: list[bool] = []
        with store._transport._mutex:
            thread = threading.Thread(target=lambda: seen.append(store.inside()))
            thread.start()
            thread.join(PATIENCE)
        assert seen == [False]


def never(thread: threading.Thread) -> None:
    if thread.name == "interlock-redis":
        raise RuntimeError("can't start new thread")
    START(thread)


START = threading.Thread.start


def wait(client: interlock.Client, got: list[float]) -> None:
    with client.lock("x", timeout=PATIENCE):
        got.append(time.monotonic())


def test_a_thread_that_could_not_be_started_is_started_for_the_next(url: str, monkeypatch: Any) -> None:
    with interlock.connect(url) as holder, interlock.connect(url) as waiter:
        for spoilt in (True, False):
            lease = holder.lock("x").acquire()
            assert lease
            if spoilt:
                monkeypatch.setattr(threading.Thread, "start", never)
            got: list[float] = []
            thread = threading.Thread(target=wait, args=(waiter, got))
            thread.start()
            while len(holder.inspect("x").standings) < 2:
                time.sleep(0.005)
            time.sleep(0.1)
            with at_most(3.0, "nobody woke the waiter, and it did not look for itself"):
                lease.release()
                thread.join(PATIENCE)
            monkeypatch.undo()
            assert got


def test_an_event_is_seen_although_no_thread_can_be_started(url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(threading.Thread, "start", never)
    with interlock.connect(url) as one, interlock.connect(url) as other:
        timer = threading.Timer(0.2, one.event("e").set)
        timer.start()
        assert other.event("e").wait(timeout=PATIENCE)
        timer.join()
