"""Ctrl-C at any moment leaves no lock of ours taken, no transaction open and no claim behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from interlock._core.drive import drive
from interlock.backends.sql.sqlite import SqliteStore
from interlock.backends.sql.sqlite.file.inodes import UnmovedFunction
from interlock.backends.sql.sqlite.tables import reading
from interlock.backends.sql.sqlite.tables.statements import CLAIMS
from interlock.backends.sql.sqlite.tables.transaction import Transaction
from interlock.model import Busy, Claim, Granted
from interlock.testing.lag import at_most
from tests.patience import PATIENCE, until
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


def test_a_look_for_a_grant_that_is_interrupted_keeps_no_old_snapshot(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = opened(), opened()
    assert isinstance(drive(store.claim(claim(id="a"))), Granted)

    def be_struck(tx: Transaction, resource: str, id: str) -> None:
        tx.execute(CLAIMS["admitted"], (resource, id))  # and before it fetches:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(reading, "admitted", be_struck)
        with pytest.raises(KeyboardInterrupt):
            drive(store._look_for_grant(claim(id="a"), store.now() + PATIENCE))
    assert drive(other.release("r", "a"))
    # A write from an old snapshot is refused, before anything else is read.
    assert store.claim_idle(claim(id="b"))
    assert [standing.id for standing in drive(store.inspect("r")).standings] == ["b"]


# ---- errors that stay, in the question whether the files are still there -----------------------------


@pytest.mark.timeout(30)
@pytest.mark.parametrize("error", [RecursionError, MemoryError, KeyboardInterrupt])
def test_an_error_that_stays_ends_the_statement_and_is_raised(
    opened: Open, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """The statement holds the write lock of the file while it asks."""
    store, other = opened(), opened()
    drive(store.claim(claim("warm", "w")))
    database, deadline = store._database, store.now() + PATIENCE

    def fail(_: int) -> os.stat_result:
        raise error

    def release() -> bool | None:
        values = ("warm", "w", 0, "warm", "w", "q")
        return database.single(deadline, store.now(), CLAIMS["release_alone"], values)

    assert database._identity is not None
    assert database._connection is not None
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", fail)
        database._unmoved = UnmovedFunction(database._identity)
    database._connection.create_function("unmoved", 0, database._unmoved.ask)
    database._identity.changed, database._verify_at = 1, deadline
    with pytest.raises(error):
        release()
    assert isinstance(drive(other.claim(claim("r", "b"))), Granted)
    database._unmoved, database._verify_at, database._identity.changed = None, 0.0, -1
    assert release()


@pytest.mark.timeout(30)
def test_a_program_that_closes_the_descriptor_of_the_directory_keeps_its_locks(opened: Open) -> None:
    """Daemons close every descriptor that they do not know."""
    store, other = opened(), opened()
    identity = None

    def dated() -> bool:
        nonlocal identity
        drive(store.claim(claim("warm", "w")))
        drive(store.release("warm", "w"))
        identity = store._database._identity
        return identity is not None and identity.changed >= 0

    until(dated)
    assert identity is not None
    os.close(identity.directory)
    for number in range(3):
        assert isinstance(drive(store.claim(claim("r", f"{number}"))), Granted)
        assert isinstance(drive(other.claim(claim("r", "b", queued=False))), Busy)
        assert drive(store.release("r", f"{number}"))
        store._database._verify_at = 0.0


def test_an_interrupt_is_not_lost_with_the_function_that_kept_it(opened: Open) -> None:
    """A second Ctrl-C can end the generator while it keeps the first: SQLite tells only of an error in a function."""
    store = opened()
    drive(store.claim(claim("warm", "w")))
    database = store._database
    connection = database._connection
    assert connection is not None
    assert database._unmoved is not None

    def die() -> bool:
        raise KeyboardInterrupt

    connection.create_function("unmoved", 0, die)
    database._unmoved._struck = KeyboardInterrupt("the first")
    with pytest.raises(KeyboardInterrupt, match="the first"):
        drive(store.release("warm", "w"))
    assert drive(store.release("warm", "w"))
