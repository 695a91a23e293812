"""The quick path: one statement where nobody else stands, and not tried in vain where somebody does."""

from __future__ import annotations

import pytest

from interlock._core.drive import drive
from interlock.backends.sql.sqlite.file.database import Database
from interlock.backends.sql.sqlite.store import CROWDED, MOST_CROWDED, SqliteStore
from interlock.model import Busy, Granted
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
    manual.now += CROWDED
    assert tries.of(store, "later") == tries.of(other, "later, too") == 2


def test_what_is_remembered_of_crowded_resources_is_bounded(opened: Open) -> None:
    store = opened(clock=ManualClock().clock)
    for number in range(MOST_CROWDED + 5):
        store._met_others(f"r{number}", 0.0)
    assert len(store._crowded) <= MOST_CROWDED
