"""Who waits for a connection of a bounded pool, and for how long."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.pool import LinkPool
from interlock.errors import Unreached
from interlock.ports import IO_TIMEOUT
from tests.patience import PATIENCE

TIMEOUT = 0.4  # for connecting


class Link:
    """A connection to nowhere."""

    async def open(self, timeout: float) -> None: ...
    def stale(self) -> bool:
        return False

    def discard(self) -> None: ...
    def abandon(self) -> None: ...


@pytest.fixture
def pool() -> LinkPool:
    make: Any = Link
    return LinkPool(make, Threads(), place="nowhere", most=1, connect_timeout=TIMEOUT)


def borrow(pool: LinkPool, seconds: float, timeout: float = IO_TIMEOUT, patient: bool = True) -> None:
    """Use a connection for so long, as a call does."""
    link, _ = drive(pool.borrow(Threads().now() + timeout, patient))
    time.sleep(seconds)
    drive(pool.give_back(link, True))


def test_a_crowd_waits_for_as_long_as_its_queue_moves(pool: LinkPool) -> None:
    served: list[int] = []

    def call(number: int) -> None:
        borrow(pool, TIMEOUT / 4)
        served.append(number)

    crowd = [
        threading.Thread(target=call, args=[number]) for number in range(60)
    ]  # 6 s: longer than any one call
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(PATIENCE)
    assert len(served) == len(crowd)


def test_a_queue_that_does_not_move_is_an_error(pool: LinkPool) -> None:
    link, _ = drive(pool.borrow(Threads().now() + IO_TIMEOUT, True))
    with pytest.raises(Unreached, match="in use"):
        borrow(pool, 0.0, 0.1)  # connecting may take longer than this, so waiting for a connection may
    with pytest.raises(Unreached, match="in use"):
        borrow(pool, 0.0, 0.1, patient=False)
    drive(pool.give_back(link, True))


def test_a_caller_in_a_hurry_does_not_wait_for_a_crowd(pool: LinkPool) -> None:
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            borrow(pool, 0.05)

    crowd = [threading.Thread(target=work) for _ in range(40)]  # each waits two seconds for its turn
    for thread in crowd:
        thread.start()
    try:
        with pytest.raises(Unreached, match="in use"):
            borrow(pool, 0.0, 0.1, patient=False)
    finally:
        over.set()
        for thread in crowd:
            thread.join(PATIENCE)
