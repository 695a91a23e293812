"""One small bank in each database for a test, and the desks at which it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import get_ident

import pytest

import interlock
from tests.guards.desks import DESKS, PLACES, Desk, Place

OpenDesk = Callable[[], Desk]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[interlock.Client]:
    with interlock.connect(f"sqlite:///{tmp_path}/locks.db") as client:
        yield client


@pytest.fixture(params=DESKS, ids=lambda each: f"{each[0]}-{each[1].__name__}")
def open_desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenDesk]:
    """Opens desks of one library at one new bank."""
    database, kind = request.param
    place: Place = PLACES[database](tmp_path)
    opened: list[Desk] = []

    def open_desk() -> Desk:
        opened.append(kind(place))
        return opened[-1]

    yield open_desk
    for desk in opened:
        if desk.thread == get_ident():  # sqlite3 and Django want a connection to be used in one thread
            desk.rollback()
            desk.close()
