"""Ctrl-C at any moment leaves no lock of ours taken, no transaction open and no claim behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from interlock._core.drive import drive
from interlock.backends.sql.sqlite import SqliteStore
from interlock.backends.sql.sqlite.tables.statements import CLAIMS
from interlock.backends.sql.sqlite.tables.transaction import Transaction
from interlock.model import Claim, Granted
from interlock.testing.lag import at_most
from tests.patience import PATIENCE
from tests.sqlite.common import claim
from tests.sqlite.conftest import Open

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs signals"),
    # What is interrupted between being made and being used is collected, with a warning.
    pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Striker:
    """Strikes the main thread like Ctrl-C, once each time it is armed, at moments of its own choosing."""

    def __init__(self) -> None:
        self.armed = False
        self._ordered = self._struck = 0
        self._go = threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        delay = 0.0
        while True:
            self._go.acquire()
            time.sleep(delay)
            delay = (delay + 0.000_003) % 0.000_25
            os.kill(os.getpid(), signal.SIGUSR1)
            self._struck += 1

    def order(self) -> None:
        self._ordered += 1
        self._go.release()

    def rest(self) -> None:
        """Wait until the last strike is over: nobody else would know what to do with it."""
        until = time.monotonic() + PATIENCE
        while self._struck < self._ordered:
            assert time.monotonic() < until, "a strike is missing"
            time.sleep(0.001)

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    def strikes(self, store: SqliteStore, mine: Claim) -> bool:
        """Claim and release a few times; whether that was interrupted."""
        try:
            try:
                self.armed = True
                self.order()
                for _ in range(5):
                    drive(store.claim(mine))
                    drive(store.release("r", mine.id))
            finally:
                self.armed = False
        except KeyboardInterrupt:
            return True
        return False


@pytest.fixture
def striker() -> Iterator[Striker]:
    striker = Striker()
    before = signal.signal(signal.SIGUSR1, striker.handle)
    yield striker
    striker.rest()
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("crowded", [False, True])
def test_an_interrupt_at_any_moment_leaves_the_file_usable(
    opened: Open, striker: Striker, crowded: bool
) -> None:
    store, other = opened(), opened()
    if crowded:
        drive(other.claim(claim("r", "other", capacity=2, ttl=600.0)))  # so that the long way is taken
    struck = 0
    for turn in range(400):
        mine = claim("r", f"{turn}", capacity=2)
        struck += striker.strikes(store, mine)
        drive(store.release("r", mine.id))  # as the core does, to the end
        with at_most(0.5):
            assert isinstance(drive(other.claim(claim("free", f"{turn}"), timeout=PATIENCE)), Granted)
            drive(other.release("free", f"{turn}"))
    assert struck > 50
    assert [standing.id for standing in drive(other.inspect("r")).standings] == ["other"] * crowded


def test_a_statement_that_is_interrupted_before_its_rows_are_fetched_keeps_no_old_snapshot(
    opened: Open,
) -> None:
    store, other = opened(), opened()
    assert isinstance(drive(store.claim(claim(id="a"))), Granted)

    def read_and_be_struck(tx: Transaction) -> None:
        tx.execute(CLAIMS["standings"], ("r",))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store._database.write(store.now() + PATIENCE, read_and_be_struck)
    assert drive(other.release("r", "a"))
    assert not drive(store.inspect("r")).standings


def test_a_look_for_a_grant_that_is_interrupted_keeps_no_old_snapshot(opened: Open) -> None:
    store, other = opened(), opened()
    assert isinstance(drive(store.claim(claim(id="a"))), Granted)
    database = store._database
    read = database._read_verified

    def be_struck(connection: Any, statement: str, values: tuple[object, ...]) -> None:
        connection.execute(statement, values)  # and before it fetches:
        raise KeyboardInterrupt

    database._read_verified = be_struck  # type: ignore[assignment,method-assign]
    with pytest.raises(KeyboardInterrupt):
        drive(store._look_for_grant(claim(id="a"), store.now() + PATIENCE))
    database._read_verified = read  # type: ignore[method-assign]
    assert drive(other.release("r", "a"))
    assert not drive(store.inspect("r")).standings
