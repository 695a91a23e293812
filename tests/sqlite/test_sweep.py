"""Idle names leave nothing behind: released, lapsed, evicted or deleted."""

from __future__ import annotations

import asyncio

import pytest

from interlock._core.drive import drive
from interlock._runtime.tasks import Tasks
from interlock.backends.sql.sqlite import open_store
from interlock.backends.sql.sweep import MAX_SLICE_ROWS
from interlock.model import Gone, Granted, Renewal, Versioned
from tests.full import FULL
from tests.sqlite.common import ManualClock, claim, rows
from tests.sqlite.conftest import Open

FEW = 2 * MAX_SLICE_ROWS  # rows that may be left at any time, however many names there were
MANY = 100_000 if FULL else 15_000


@pytest.mark.slow
def test_many_distinct_names_leave_nothing_once_released(opened: Open, path: str) -> None:
    store = opened()
    for number in range(MANY):
        name = f"name-{number}"
        assert isinstance(drive(store.claim(claim(name, name))), Granted)
        assert drive(store.release(name, name))
    assert rows(path) == 0
    assert rows(path, "meta") == 1


@pytest.mark.slow
def test_many_distinct_names_leave_few_rows_when_nobody_releases_them(opened: Open, path: str) -> None:
    manual = ManualClock()
    store = opened(clock=manual.clock)
    for number in range(MANY):
        drive(store.claim(claim(f"name-{number}", f"{number}", ttl=1.0)))
        manual.now += 0.001  # so a thousand of them live at any time
        if number % 5_000 == 4_999:
            assert rows(path) < 1000 + FEW


def test_a_heap_of_lapsed_claims_is_gone_after_some_writes_on_other_names(opened: Open, path: str) -> None:
    manual = ManualClock()
    store = opened(clock=manual.clock)
    for number in range(5_000):
        drive(store.claim(claim(f"name-{number}", f"{number}", ttl=100.0)))
    assert rows(path) == 5_000
    manual.now += 101.0
    for number in range(64 + 20):
        drive(store.claim(claim("busy", f"b{number}")))
        drive(store.release("busy", f"b{number}"))
    assert rows(path) == 0


def test_an_eviction_is_remembered_for_a_minute_and_then_forgotten(opened: Open, path: str) -> None:
    manual = ManualClock()
    store = opened(clock=manual.clock)
    drive(store.claim(claim(id="a", ttl=5.0)))
    drive(store.evict("r", None, "maintenance"))
    manual.now += 59.0
    assert drive(store.renew([Renewal("r", "a", 5.0)])) == [Gone(True, "maintenance")]
    assert drive(store.claim(claim(id="a"))) == Gone(True, "maintenance")
    assert drive(store.scan("", "", 10)) == []
    manual.now += 2.0
    for number in range(130):
        drive(store.claim(claim("busy", f"{number}")))
        drive(store.release("busy", f"{number}"))
    assert rows(path) == 0


def test_an_eviction_is_remembered_as_long_as_the_ttl(opened: Open) -> None:
    manual = ManualClock()
    store = opened(clock=manual.clock)
    drive(store.claim(claim(id="a", ttl=500.0)))
    drive(store.evict("r", "a", "why"))
    manual.now += 499.0
    assert drive(store.claim(claim(id="a", ttl=500.0))) == Gone(True, "why")


def test_a_deleted_register_keeps_its_version_for_a_minute_and_is_then_forgotten(
    opened: Open, path: str
) -> None:
    manual = ManualClock()
    store = opened(clock=manual.clock)
    first = drive(store.compare_and_set("n", 0, "v", "1"))
    assert first
    gone = drive(store.compare_and_set("n", first.version, None, "2"))
    assert gone
    assert gone.version > first.version
    manual.now += 59.0
    assert drive(store.read("n")) == Versioned(None, gone.version)
    manual.now += 2.0
    assert drive(store.read("n")) == Versioned(None, 0)
    again = drive(store.compare_and_set("n", 0, "w", "3"))
    assert again
    assert again.version > gone.version
    drive(store.compare_and_set("n", again.version, None, "4"))
    manual.now += 61.0
    for number in range(130):
        drive(store.claim(claim("busy", f"{number}")))
        drive(store.release("busy", f"{number}"))
    assert rows(path, "register") == 0


def test_a_program_that_only_writes_registers_in_an_event_loop_sweeps_too(path: str) -> None:
    async def main() -> None:
        manual = ManualClock()
        store = open_store(path, Tasks(), asynchronous=True, clock=manual.clock)
        for number in range(10):
            written = await store.compare_and_set(f"n{number}", 0, "v", "1")
            assert written
            await store.compare_and_set(f"n{number}", written.version, None, "2")
        assert rows(path, "register") == 10
        manual.now += 62.0
        await store.compare_and_set("other", 0, "v", "3")
        assert rows(path, "register") == 1
        await store.close()

    asyncio.run(main())
