"""Hand-overs that arrive by a subscription, for tests of who reads it (decision 0013)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock.backends.kit.reader import SubscriptionReader
from interlock.testing.lag import Lag
from tests.patience import PATIENCE, until

SOON = 2.0  # seconds: much less than after which a waiter looks by itself, with the default ttl


def idle_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the listener's thread connects and subscribes, and reads nothing while somebody waits."""
    attend = SubscriptionReader.wait_for_news

    def attend_once(self: SubscriptionReader, timeout: float) -> bool:
        if self._waiting:
            time.sleep(0.05)
            return True
        return attend(self, min(timeout, 0.05))

    monkeypatch.setattr(SubscriptionReader, "wait_for_news", attend_once)


def listening(client: interlock.Client | aio.Client) -> Any:
    store: Any = client._core.store
    return store._listener


def borrower(client: interlock.Client | aio.Client) -> Any:
    """Who has borrowed the reading: a loop, or the signal of a thread; None if the listener's thread reads."""
    return getattr(listening(client).reader, "_borrower", None)


def waits(other: interlock.Client, name: str, count: int = 1) -> Callable[[], bool]:
    return lambda: len(other.inspect(name).waiters) >= count


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def handed_over(
    client: interlock.Client,
    other: interlock.Client,
    name: str,
    meanwhile: Callable[[], object] = lambda: None,
) -> float:
    """Seconds from the release until the thread that waited has it, the machine's own lag not counted."""
    lease = other.lock(name).acquire()
    assert lease is not None
    got: list[float] = []

    def take() -> None:
        with client.lock(name):
            got.append(time.monotonic())

    thread = in_thread(take)
    until(waits(other, name))
    meanwhile()
    with Lag() as lag:
        released = time.monotonic()
        lease.release()
        thread.join(PATIENCE)
    return got[0] - released - lag.seconds
