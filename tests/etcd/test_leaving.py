"""When a member is left for another one, and how far away it counts: rules about times, so the clock is the test's own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from interlock.backends.etcd.address import Address, Endpoint
from interlock.backends.etcd.errors import timeout_error
from interlock.backends.etcd.transport.blocking import BlockingTransport
from interlock.backends.etcd.transport.cluster import UNSERVED_S
from interlock.backends.etcd.transport.connection import MemberConnection
from interlock.backends.etcd.transport.credentials import Credentials

NOBODY = Credentials("", "")
ENDPOINTS = (Endpoint("one", 1), Endpoint("other", 2))


class Silent(MemberConnection):
    """A member that says something all the time, and serves nothing."""

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint, NOBODY, tls=False)

    def end(self, why: str) -> None:
        self.ended = True

    async def call(self, *asked: object, **options: object) -> bytes:
        raise NotImplementedError

    def post(self, *asked: object) -> object:  # type: ignore[override]
        raise NotImplementedError

    async def open_watches(self, watched: Sequence[object], timeout: float) -> object:  # type: ignore[override]
        raise NotImplementedError

    async def changed(self, group: object, timeout: float) -> bool:
        raise NotImplementedError

    def close_watches(self, group: object) -> None:
        raise NotImplementedError


class Clock:
    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    yield clock
    monkeypatch.undo()


def test_a_member_that_serves_none_of_many_short_calls_is_left(clock: Clock) -> None:
    """Data of it arrive during each, so no single call shows that it is cut off."""
    transport, connection, seconds = BlockingTransport(Address(ENDPOINTS), NOBODY), Silent(ENDPOINTS[0]), 0.3
    calls = 0
    while not connection.ended:
        calls += 1
        assert calls * seconds < UNSERVED_S + 2 * seconds
        sent = clock.now
        connection.note_request(sent)
        clock.now += seconds
        connection.heard = clock.now
        transport.leave(connection, timeout_error(connection.label, seconds), sent)
    assert calls * seconds >= UNSERVED_S, "a member that is slow for a moment is not left"


def test_a_member_that_was_slow_once_is_near_again_after_a_quick_answer(clock: Clock) -> None:
    """Otherwise every call on that connection might be late by as much."""
    connection = Silent(ENDPOINTS[0])
    connection.least = 2.0
    connection.note_answer(clock.now - 0.25)
    assert connection.least == pytest.approx(0.5)
    connection.note_answer(clock.now - 0.75)
    assert connection.least == pytest.approx(0.5), "a busy moment does not move it away"
