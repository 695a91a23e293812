"""A client that follows its master can be closed, whatever the master does meanwhile."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.redis.sentinel.failover import FailoverTransport
from interlock.errors import ClientClosed
from interlock.testing.lag import at_most
from tests.patience import PATIENCE


class Route:
    place = "Redis master 'x'"
    changes = 0

    def after_fork(self) -> None: ...


class Transport:
    def __init__(self, during: Any = None) -> None:
        self.closed = False
        self._during = during

    async def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Any:
        if self._during is not None:
            self._during()
        if self.closed:
            raise ClientClosed("this client was closed")
        return b"OK"

    def after_fork(self) -> None: ...

    async def close(self) -> None:
        self.closed = True


def asked(following: FailoverTransport, again: bool = True) -> list[BaseException]:
    """What a request raised that was asked on a thread of its own; the test fails if it never ends."""
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            drive(following.ask(b"PING", 0.5, 1, again))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it asks for ever"
    return raised


def test_a_request_to_a_closed_client_ends_although_the_master_has_changed() -> None:
    route: Any = Route()
    make: Any = Transport
    following = FailoverTransport(make, route, Threads(), several=True)
    drive(following.close())
    route.changes += 1
    (error,) = asked(following)
    assert isinstance(error, ClientClosed)


@pytest.mark.parametrize("again", [True, False])
def test_a_request_that_meets_the_close_and_a_change_of_master_ends(again: bool) -> None:
    route: Any = Route()

    def close_and_change() -> None:
        drive(following.close())
        route.changes += 1

    make: Any = lambda: Transport(close_and_change)  # noqa: E731
    following = FailoverTransport(make, route, Threads(), several=True)
    with at_most(5):
        assert len(asked(following, again)) == 1


def test_no_connections_are_made_anew_once_it_is_closed() -> None:
    route: Any = Route()
    made: list[Transport] = []

    def make() -> Any:
        if made:  # the old one is being replaced: close in the middle of that
            closer = threading.Thread(target=lambda: drive(following.close()))
            closer.start()
            closing.append(closer)
            time.sleep(0.05)
        made.append(Transport())
        return made[-1]

    closing: list[threading.Thread] = []
    following = FailoverTransport(make, route, Threads(), several=True)
    route.changes += 1
    asked(following)
    for closer in closing:
        closer.join(PATIENCE)
    assert all(transport.closed for transport in made)
