"""Messages of strangers: they may wake a waiter, but only the store lets it in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

import interlock
from interlock import State
from interlock.errors import LeaseLost
from interlock.testing.lag import stretched
from tests.patience import PATIENCE, until

NAME = "forged"
TTL = 30.0  # seconds: no lease ends by its own clock during a test
OFTEN = 5  # messages, one after the other

Forge = Callable[[bytes], None]
"""Sends a message for the waiter of NAME as somebody who may only read and send: its id, its token and what is appended."""


class Acquiring:
    """Waits for the lock on a thread of its own."""

    def __init__(self, client: interlock.Client, judge: interlock.Client) -> None:
        self.lock = client.lock(NAME, timeout=PATIENCE)
        self.lease: interlock.Lease | None = None
        self.came = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        until(lambda: judge.inspect(NAME).waiters)

    def _run(self) -> None:
        self.lease = self.lock.acquire()
        self.came.set()
        self._done.wait(PATIENCE)  # a lease whose owner has ended is renewed no more

    def __enter__(self) -> Acquiring:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._done.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


class Forged:
    """Each runs on every store whose waiters are told by messages; `url` and `forge` are fixtures of the file that names the store."""

    believed = False  # whether the store takes a message for the grant, until the first renewal

    def test_a_forged_grant_makes_no_second_holder(self, url: str, forge: Forge) -> None:
        with interlock.connect(url, ttl=TTL) as client, interlock.connect(url, ttl=TTL) as other:
            held = client.lock(NAME).acquire()
            assert held
            with Acquiring(other, client) as waiting:
                for _ in range(OFTEN):
                    forge(b"")
                    if waiting.came.wait(stretched(0.2)):
                        break
                assert waiting.came.is_set() <= self.believed
                if (lease := waiting.lease) is not None:
                    # It was believed for one round trip: nobody has asked for anything, and it is lost.
                    until(lambda: lease.state is State.LOST, stretched(2.0))
                    with pytest.raises(LeaseLost):
                        lease.renew()
                    with suppress(LeaseLost):
                        lease.release()
                    until(lambda: not client.inspect(NAME).waiters)
                held.check()
                assert [one.token for one in client.inspect(NAME).holders] == [held.token]
                held.release()
                if lease is None:
                    assert waiting.came.wait(PATIENCE)
                    assert waiting.lease
                    waiting.lease.renew()
                    waiting.lease.release()

    def test_a_message_that_is_none_hurts_nobody(self, url: str, forge: Forge) -> None:
        with interlock.connect(url, ttl=TTL) as client, interlock.connect(url, ttl=TTL) as other:
            held = client.lock(NAME).acquire()
            assert held
            with Acquiring(other, client) as waiting:
                for junk in (b"x", b" ", b"9" * 1000, b"9" * 5000):
                    with suppress(Exception):  # some are too long for the server to send
                        forge(junk)
                held.release()
                assert waiting.came.wait(PATIENCE)
                assert waiting.lease
                waiting.lease.release()
