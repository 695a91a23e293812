"""A waiter of a semaphore that is let in says so, for the next one waits for that: however its message gets lost, it is repeated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import interlock
from interlock._core import waiter
from interlock._core.drive import drive
from interlock.backends.etcd.algorithm import queue_view
from interlock.backends.etcd.store import EtcdStore
from interlock.backends.etcd.transport.blocking import BlockingConnection
from interlock.model import Busy, Claim, Granted
from interlock.testing.lag import stretched
from tests.patience import until

SOON = 20.0  # seconds; a waiter that hears nothing asks again after a minute


@pytest.fixture(autouse=True)
def nobody_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter asks after a second, to name the holder, and after a minute. Most have waited for longer than a second."""
    monkeypatch.setattr(waiter, "LONG_WAIT_S", 0.0)
    monkeypatch.setattr(queue_view, "RECHECK_PERIOD_S", 3600.0)


@contextmanager
def queued(url: str, ttl: float) -> Iterator[tuple[list[interlock.Lease], interlock.Client, list[str]]]:
    """Two holders of a semaphore, and two waiters of other clients; who is let in is noted."""
    let_in: list[str] = []
    over = threading.Event()

    def stand(client: interlock.Client, name: str) -> None:
        with client.semaphore("x", 2, timeout=3 * SOON):
            let_in.append(name)
            over.wait(3 * SOON)

    with (
        interlock.connect(url, ttl=ttl) as holding,
        interlock.connect(url, ttl=ttl) as first,
        interlock.connect(url, ttl=ttl) as second,
    ):
        leases = [lease for _ in range(2) if (lease := holding.semaphore("x", 2).acquire())]
        threads: list[threading.Thread] = []
        for client, name in ((first, "first"), (second, "second")):
            threads.append(threading.Thread(target=stand, args=(client, name)))
            threads[-1].start()
            until(lambda: len(holding.inspect("x").waiters) == len(threads))
        try:
            yield leases, first, let_in
        finally:
            over.set()
            for thread in threads:
                thread.join(3 * SOON)


def losing_posts(client: interlock.Client, patch: pytest.MonkeyPatch) -> list[object]:
    """Lose what this client sends without waiting for an answer."""
    store = client._core.store
    assert isinstance(store, EtcdStore)
    ours, lost = store._side.transport, list[object]()
    post = BlockingConnection.post

    def lose(line: BlockingConnection, *args: Any, **options: Any) -> None:
        if line is ours.ready_connection():
            lost.append(args)
        else:
            post(line, *args, **options)

    patch.setattr(BlockingConnection, "post", lose)
    return lost


def test_the_keeper_repeats_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next waiter slept for 56 s beside a free permit."""
    with queued(url, stretched(3.0)) as (leases, first, let_in):
        lost = losing_posts(first, monkeypatch)
        leases[0].release()
        until(lambda: let_in == ["first"])
        assert lost
        leases[1].release()
        until(lambda: let_in == ["first", "second"], SOON)


def test_the_next_connection_repeats_it(url: str) -> None:
    """Long before the keeper would."""
    with queued(url, 300.0) as (leases, first, let_in):
        with pytest.MonkeyPatch.context() as patch:
            lost = losing_posts(first, patch)
            leases[0].release()
            until(lambda: let_in == ["first"])
        assert lost
        store = first._core.store
        assert isinstance(store, EtcdStore)
        line = store._side.transport.ready_connection()
        assert line is not None
        line.end("the test breaks it")
        leases[1].release()
        assert first.lock("another").locked() is False
        until(lambda: let_in == ["first", "second"], SOON)


def test_a_claim_says_it_that_has_never_heard_that_it_waits(url: str) -> None:
    """It was entered by a request whose answer was lost; when it was asked for again, it was let in at once, and said nothing."""
    with interlock.connect(url, ttl=60) as ours, interlock.connect(url, ttl=60) as theirs:
        store, others = ours._core.store, theirs._core.store
        assert isinstance(store, EtcdStore)
        claims = [Claim("x", f"{n:032}", ttl=60.0, capacity=2) for n in range(4)]
        granted = [drive(others.claim(claim), nested=True) for claim in claims[:2]]
        assert all(isinstance(one, Granted) for one in granted)
        assert isinstance(drive(store.claim(claims[2]), nested=True), Busy)
        store._side.sessions.places.clear()  # as if the answer had been lost
        assert isinstance(drive(others.claim(claims[3]), nested=True), Busy)
        found: list[object] = []
        waits = waiting(others, claims[3], found.append)
        assert drive(others.release("x", claims[0].id), nested=True)
        assert isinstance(drive(store.claim(claims[2]), nested=True), Granted)
        assert drive(others.release("x", claims[1].id), nested=True)
        waits.join(SOON)
        assert isinstance(found[0] if found else None, Granted)


def waiting(store: Any, claim: Claim, tell: Callable[[object], None]) -> threading.Thread:
    thread = threading.Thread(
        target=lambda: tell(drive(store.wait(claim, Busy(1, 1.0), 3 * SOON), nested=True))
    )
    thread.start()
    return thread
