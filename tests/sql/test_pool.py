"""Who waits for a connection of a bounded pool, and for how long."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.pool import ConnectionPool
from interlock.errors import Unreached
from interlock.store import IO_TIMEOUT
from tests.patience import PATIENCE, until

TIMEOUT = 0.4  # for connecting


class Connection:
    """A connection to nowhere."""

    async def open(self, timeout: float) -> None: ...
    def stale(self) -> bool:
        return False

    def discard(self) -> None: ...
    def abandon(self) -> None: ...


@pytest.fixture
def pool() -> ConnectionPool:
    make: Any = Connection
    return ConnectionPool(make, Threads(), label="nowhere", most=1, connect_timeout=TIMEOUT)


def borrow(
    pool: ConnectionPool, seconds: float, timeout: float = IO_TIMEOUT, connecting_is_extra: bool = True
) -> None:
    """Use a connection for so long, as a call does."""
    connection, _ = drive(pool.borrow(Threads().now() + timeout, connecting_is_extra))
    time.sleep(seconds)
    drive(pool.give_back(connection, True))


def test_a_crowd_waits_for_as_long_as_its_queue_moves(pool: ConnectionPool) -> None:
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


def test_a_queue_that_does_not_move_is_an_error(pool: ConnectionPool) -> None:
    connection, _ = drive(pool.borrow(Threads().now() + IO_TIMEOUT, True))
    with pytest.raises(Unreached, match="in use"):
        borrow(pool, 0.0, 0.1)  # connecting may take longer than this, so waiting for a connection may
    with pytest.raises(Unreached, match="in use"):
        borrow(pool, 0.0, 0.1, connecting_is_extra=False)
    drive(pool.give_back(connection, True))


def test_an_urgent_caller_comes_before_a_crowd(pool: ConnectionPool) -> None:
    """It releases something, perhaps the very thing for which the crowd would ask."""
    served: list[str] = []
    first, _ = drive(pool.borrow(Threads().now() + IO_TIMEOUT, True))

    def call(who: str) -> None:
        connection, _ = drive(pool.borrow(Threads().now() + PATIENCE, who == "crowd"))
        served.append(who)
        drive(pool.give_back(connection, True))

    crowd = [threading.Thread(target=call, args=["crowd"]) for _ in range(40)]
    for thread in crowd:
        thread.start()
    until(lambda: len(pool._ordinary) == len(crowd))
    urgent = threading.Thread(target=call, args=["urgent"])
    urgent.start()
    until(lambda: len(pool._urgent) == 1)
    drive(pool.give_back(first, True))
    for thread in (*crowd, urgent):
        thread.join(PATIENCE)
    assert len(served) == 41
    assert served.index("urgent") < 5, served  # one of the crowd may have looked just then


def test_threads_that_call_back_to_back_do_not_keep_the_connection_to_themselves(
    pool: ConnectionPool,
) -> None:
    """Whoever gave a connection back took it again before the one whose turn it was had woken up: threads of a crowd waited for minutes."""
    ended, counts = threading.Event(), [0] * 12

    def work(number: int) -> None:
        while not ended.is_set():
            borrow(pool, 0.0, PATIENCE)
            counts[number] += 1

    threads = [threading.Thread(target=work, args=[number]) for number in range(len(counts))]
    for thread in threads:
        thread.start()
    until(lambda: max(counts) >= 400)
    ended.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert min(counts) > max(counts) / 10, counts
