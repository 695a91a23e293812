"""Attacks on what the keeper shares with its holders: each adds to it and takes from it at any moment."""

from __future__ import annotations

import threading

import pytest

from interlock._core.drive import drive
from interlock._core.keeper import Keeper
from interlock._core.removal import PendingRelease
from tests.attacks.stage import Stage, eventually


class Slow(PendingRelease):
    """A pending release whose look at the clock takes so long that another becomes pending meanwhile."""

    def __init__(self, keeper: Keeper, other: PendingRelease) -> None:
        self._keeper, self._other = keeper, other
        self.looked = threading.Event()
        PendingRelease.__init__(self, "x", "1", 0.0, due=0.0, until=float("inf"))

    @property
    def due(self) -> float:
        if not self.looked.is_set():
            caller = threading.Thread(target=lambda: self._keeper.release_later(self._other), daemon=True)
            caller.start()
            caller.join(0.2)  # it cannot while the keeper has the guard
            self.looked.set()
        return 0.0

    @due.setter
    def due(self, due: float) -> None: ...


def test_a_release_that_becomes_pending_while_others_are_looked_at_does_not_trip_the_keeper() -> None:
    stage = Stage()
    keeper = stage.core.keeper
    other = PendingRelease("y", "2", 0.0, due=0.0, until=float("inf"))
    slow = Slow(keeper, other)
    keeper._pending[slow] = None
    drive(keeper._release_pending())
    assert slow.looked.is_set()
    eventually(lambda: other in keeper._pending or "release" in stage.store.asked[1:])
    stage.client.close()


def test_a_lease_that_is_given_back_while_its_verdict_is_passed_does_not_trip_the_keeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its holder drops it between the keeper's look at the first deadline and what follows from it."""
    stage = Stage()
    lease = stage.client.lock("x").acquire()
    assert lease is not None
    keeper = stage.core.keeper
    keeper.stop_soon()  # the test does its work
    assert keeper.kept() == [lease]
    looked = Keeper._first_deadline
    dropped = threading.Event()

    def drop() -> None:
        keeper.drop(lease)
        dropped.set()

    def look(keeper: Keeper) -> float:
        first = looked(keeper)
        threading.Thread(target=drop, daemon=True).start()
        dropped.wait(0.2)  # it cannot while the keeper has the guard
        return first

    monkeypatch.setattr(Keeper, "_first_deadline", look)
    lease._deadline = 0.0
    keeper._pass_verdicts()
    eventually(dropped.is_set)
    stage.client.close()
