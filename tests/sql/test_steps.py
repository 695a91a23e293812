"""SQLite answers the contract of the steps. PostgreSQL and MariaDB do in their own directories, beside their servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql import steps
from interlock.backends.sql.sqlite import SqliteStore, open_store
from interlock.backends.sql.sqlite.steps import READS, WRITES
from tests.sql import contract
from tests.sqlite.common import ManualClock


@pytest.fixture
def manual() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, manual: ManualClock) -> Iterator[SqliteStore]:
    made = open_store(str(tmp_path / "locks.db"), Threads(), asynchronous=False, clock=manual.clock)
    yield made
    drive(made.close())


def test_the_lock_file_answers_the_contract(store: SqliteStore) -> None:
    contract.check(contract.of(store))


def test_every_step_has_a_function() -> None:
    assert {*READS, *WRITES, steps.FIND} == set(steps.ALL)


def test_a_claim_under_another_capacity_still_lets_those_in_whom_it_finds_freed(
    store: SqliteStore, manual: ManualClock
) -> None:
    """Its answer is an error, but the lapsed claim that it removed is gone, and nobody else would notice."""
    run = contract.of(store)
    contract.ask(run, "a")
    manual.now += contract.TTL - 1
    place = contract.ask(run, "b")[1]
    manual.now += 1
    assert contract.ask(run, "c", capacity=2)[:3] == ("m", None, 1)
    assert contract.standing(run, "b") == (steps.IN, True, place)
