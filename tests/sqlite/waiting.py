"""Claims that stand in a file, and a thread that waits for one of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from interlock._core.drive import drive
from interlock.backends.sql.sqlite import SqliteStore
from interlock.backends.sql.sqlite.bell_reader import BellReader
from interlock.model import Claim
from interlock.testing.lag import Lag
from tests.patience import PATIENCE

SOON = 1.0  # seconds; far less than the net where only a ring may have done it


@contextmanager
def waiting(wait: Callable[[], Coroutine[Any, Any, object]]) -> Iterator[list[float]]:
    """Wait on another thread during the block; afterwards the list has how long after it the wait ended.

    The machine's own lag is not counted.
    """
    ended: list[float] = []
    done: list[float] = []

    def run() -> None:
        drive(wait())
        ended.append(time.monotonic())

    thread = threading.Thread(target=run)
    thread.start()
    yield done
    with Lag() as lag:
        left = time.monotonic()
        thread.join(PATIENCE)
    assert ended, "still waiting"
    done.append(ended[0] - left - lag.seconds)


def listening(store: SqliteStore) -> Callable[[], bool]:
    return lambda: bool(store._notifier._waiters)


def reading(store: SqliteStore) -> bool:
    """Whether a waiter of this store reads for itself, and is in its poll: the look after it began to listen is over."""
    readers = [getattr(waiter.wake, "__self__", None) for waiter in store._notifier._listening()]
    return any(isinstance(reader, BellReader) and reader._awaiting for reader in readers)


def stand(store: SqliteStore, *claims: Claim) -> list[Any]:
    return [drive(store.claim(each)) for each in claims]
