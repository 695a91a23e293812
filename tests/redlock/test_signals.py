"""A periodic signal, as profilers and `signal.setitimer` send it: no wait begins anew because of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from uuid import uuid4

import pytest

import interlock
from interlock.errors import StoreUnavailable
from interlock.testing.lag import at_most
from interlock.testing.servers.redlock import quorum, steady

OFTEN = 0.005  # seconds: many times within every wait there is


@pytest.fixture
def interruptions() -> Iterator[list[None]]:
    """A handler that does no harm, called all the time on the main thread."""
    calls: list[None] = []
    before = signal.signal(signal.SIGALRM, lambda *_: calls.append(None))
    signal.setitimer(signal.ITIMER_REAL, OFTEN, OFTEN)
    yield calls
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


def test_a_waiter_is_back_in_time(interruptions: list[None]) -> None:
    url = steady().url(f"{uuid4().hex}:")
    with interlock.connect(url) as holder, interlock.connect(url) as client, holder.lock("x"):
        with at_most(0.5 + 0.25):
            assert client.lock("x").acquire(timeout=0.5) is None
    assert len(interruptions) > 10


def test_servers_that_hang_are_waited_for_no_longer(interruptions: list[None]) -> None:
    # The first lock needs two of them: the third may still have to be connected to.
    with quorum(3) as servers, interlock.connect(servers.url(connect_timeout=1)) as client:
        with client.lock("x"):
            pass
        with servers[0].frozen(), servers[1].frozen():
            with at_most(3.0), pytest.raises(StoreUnavailable, match="needs 2 of 3 nodes"):
                client.lock("x").acquire(timeout=1.0)


def test_connecting_to_servers_that_hang_takes_its_time_once(interruptions: list[None]) -> None:
    with quorum(3) as servers, interlock.connect(servers.url(connect_timeout=1)) as client:
        with servers[0].frozen(), servers[1].frozen():
            with at_most(3.0), pytest.raises(StoreUnavailable, match="needs 2 of 3 nodes"):
                client.lock("x").acquire(timeout=0.2)
