"""A lock file for each test, and stores on it that are closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.sqlite import SqliteStore, open_store

Open = Callable[..., SqliteStore]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "locks.db")


@pytest.fixture
def opened(path: str) -> Iterator[Open]:
    """Opens blocking stores, by default on the test's own file; each stands for one process."""
    stores: list[SqliteStore] = []

    def opening(at: str | None = None, **options) -> SqliteStore:
        store = open_store(at or path, Threads(), asynchronous=False, **options)
        stores.append(store)
        return store

    yield opening
    for store in stores:
        drive(store.close())


@pytest.fixture
def store(opened: Open) -> SqliteStore:
    return opened()
