"""The director's records of what it does to workers are as exact as the judge takes them."""

from __future__ import annotations

import time

import pytest

import interlock
from interlock.lab.storm.director import scene
from interlock.lab.storm.workers.crew import Worker
from interlock.testing.patience import PATIENCE, until

pytestmark = pytest.mark.chaos


def test_whoever_comes_after_a_killed_holder_comes_after_the_record_of_its_death(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On SQLite the next one is let in as soon as the holder is dead, also while the director is still slow."""
    close = Worker.close

    def slow(worker: Worker) -> None:
        close(worker)
        time.sleep(0.3)

    with scene("sqlite", 5.0) as made:
        a, b = made.hire(), made.hire()
        assert a.acquire("x") is not None
        b.send("acquire", resource="x", timeout=PATIENCE)
        with interlock.connect(made.field.places()[0], log=False) as client:
            until(lambda: client.inspect("x").waiters)
        monkeypatch.setattr(Worker, "close", slow)
        made.crew.kill(a)
        assert b.answer()["token"] is not None
        assert not made.verdict(["x"], progress=PATIENCE).violations
