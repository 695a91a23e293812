"""The demo's ledger checks tokens in the same step as it writes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from interlock import StaleToken
from interlock.lab.demo.ledger import Ledger, free


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(str(tmp_path / "ledger.db"))
    made.create()
    return made


def test_a_token_may_write_more_than_once_and_a_higher_one_after_it(ledger: Ledger) -> None:
    ledger.write("a", 5, 0, 1)
    ledger.write("a", 5, 1, 2)
    ledger.write("b", 6, 2, 3)
    assert ledger.balance() == 3
    assert [(write.token, write.accepted) for write in ledger.log()] == [(5, True), (5, True), (6, True)]


def test_a_lower_token_is_refused_changes_nothing_and_is_logged(ledger: Ledger) -> None:
    ledger.write("b", 6, 0, 1)
    with pytest.raises(StaleToken) as refusal:
        ledger.write("a", 5, 0, 1)
    assert (refusal.value.token, refusal.value.accepted) == (5, 6)
    assert ledger.balance() == 1
    (late,) = ledger.log(after=1)
    assert (late.worker, late.accepted, late.balance, late.highest) == ("a", False, 1, 6)


def test_a_file_is_free_unless_someone_is_in_the_middle_of_a_transaction(ledger: Ledger) -> None:
    assert free(ledger.path)
    other = sqlite3.connect(ledger.path, isolation_level=None)
    other.execute("begin immediate")
    assert not free(ledger.path)
    other.execute("rollback")
    other.close()
    assert free(ledger.path)
