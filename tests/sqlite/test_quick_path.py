"""The quick path: one statement where nobody else stands, and not tried in vain where somebody does."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

import interlock
from interlock._core.drive import drive
from interlock._core.states import State
from interlock.backends.sql.sqlite.file.database import Database
from interlock.backends.sql.sqlite.store import CROWDED_S, MAX_CROWDED_RESOURCES, SqliteStore
from interlock.errors import ClientClosed
from interlock.model import Busy, Claim, Granted
from tests.patience import until
from tests.sqlite.common import ManualClock, claim
from tests.sqlite.conftest import Open


class Tries:
    """Counts how often a store has tried the quick path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        single = Database.single

        def counted(*args, **options):
            self.count += 1
            return single(*args, **options)

        monkeypatch.setattr(Database, "single", counted)

    def of(self, store: SqliteStore, turn: str) -> int:
        """How many tries one claim and one release take."""
        before = self.count
        assert isinstance(drive(store.claim(claim(id=turn))), Granted)
        assert drive(store.release("r", turn))
        return self.count - before


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> Tries:
    return Tries(monkeypatch)


def test_a_claim_and_a_release_where_nobody_stands_are_one_statement_each(opened: Open, tries: Tries) -> None:
    store = opened(clock=ManualClock().clock)
    assert [tries.of(store, f"{turn}") for turn in range(3)] == [2, 2, 2]


def test_where_somebody_was_met_the_quick_path_is_not_tried_for_a_while(opened: Open, tries: Tries) -> None:
    manual = ManualClock()
    store, other = opened(clock=manual.clock), opened(clock=manual.clock)
    drive(store.claim(claim(id="holder")))
    before = tries.count
    assert isinstance(drive(other.claim(claim(id="waiter"))), Busy)  # this one finds out
    assert drive(store.release("r", "holder"))  # and so does this one
    assert tries.count == before + 2
    assert isinstance(drive(other.claim(claim(id="waiter"))), Granted)
    assert drive(other.release("r", "waiter"))
    assert tries.count == before + 2
    assert tries.of(store, "soon") == tries.of(other, "soon, too") == 0
    manual.now += CROWDED_S
    assert tries.of(store, "later") == tries.of(other, "later, too") == 2


def test_a_newcomer_tries_the_quick_path_only_once(opened: Open, tries: Tries) -> None:
    manual = ManualClock()
    store, newcomer = opened(clock=manual.clock), claim(id="newcomer")
    assert isinstance(drive(store.claim(claim(id="holder"))), Granted)
    before = tries.count
    assert store.claim_idle(newcomer) is None
    assert isinstance(drive(store.claim(newcomer)), Busy)
    assert tries.count == before + 1


def test_a_lock_that_nobody_wants_takes_no_coroutine_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with interlock.connect(f"sqlite:///{tmp_path}/locks.db") as client:
        with client.lock("r"):
            pass  # the first one opens the file
        refused = []
        monkeypatch.setattr(SqliteStore, "claim", lambda *_: refused.append("claim"))
        monkeypatch.setattr(SqliteStore, "release", lambda *_: refused.append("release"))
        lock = client.lock("r")
        assert lock.acquire()
        lock.release()
        with client.lock("r") as lease:
            assert lease.state is State.HELD
        monkeypatch.undo()
        assert not refused
        assert not client.inspect("r").standings


def test_a_client_that_is_closed_in_the_middle_of_a_claim_takes_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    client = interlock.connect(url)
    with client.lock("r"):
        pass
    claim_idle = SqliteStore.claim_idle
    closer = Thread(target=client.close)

    def closed_meanwhile(store: SqliteStore, wanted: Claim) -> Granted | None:
        granted = claim_idle(store, wanted)
        assert granted is not None
        closer.start()
        until(lambda: client._core.closed)
        closer.join(0.3)  # it waits for us; or else it closes the file, and nobody can take the claim back
        return granted

    monkeypatch.setattr(SqliteStore, "claim_idle", closed_meanwhile)
    with pytest.raises(ClientClosed):
        client.lock("r").acquire()
    closer.join()
    with interlock.connect(url) as other:
        assert not other.inspect("r").standings


def test_what_is_remembered_of_crowded_resources_is_bounded(opened: Open) -> None:
    store = opened(clock=ManualClock().clock)
    for number in range(MAX_CROWDED_RESOURCES + 5):
        store._met_others(f"r{number}", 0.0)
    assert len(store._crowded) <= MAX_CROWDED_RESOURCES
