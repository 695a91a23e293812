"""The short way of a release that hands a lock to the next does exactly what the long way does."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from interlock._core.drive import drive
from interlock.backends.sql import steps
from interlock.backends.sql.sqlite.store import SqliteStore
from interlock.backends.sql.sqlite.tables import claims
from interlock.model import Busy, Granted
from tests.sqlite.common import ManualClock, claim
from tests.sqlite.conftest import Open


class Pair:
    """Two files to which the same is done; in one of them, the short way is never taken."""

    def __init__(self, opened: Open, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.manual = ManualClock()
        self.paths = path, path + ".long"
        self.stores = [opened(at, clock=self.manual.clock) for at in self.paths]
        self.rings: list[dict[str, list[str]]] = [{}, {}]
        self.taken = 0
        self._patch = monkeypatch
        for number, store in enumerate(self.stores):
            monkeypatch.setattr(store._notifier, "hang", lambda: "@bell")
            monkeypatch.setattr(
                store._notifier, "ring", lambda rings, number=number: self._ring(number, rings)
            )

    def _ring(self, number: int, rings: dict[str, list[str]]) -> None:
        self.rings[number] = rings

    def do(self, act: Any) -> list[Any]:
        """What both answer, which is the same; so are the rings, and the rows."""
        short, hand_over = self.stores, claims._hand_over
        answers = []
        for number, store in enumerate(short):
            self.rings[number] = {}

            def way(*args: Any, number: int = number) -> bool:
                done = number == 0 and hand_over(*args)
                self.taken += done
                return done

            with self._patch.context() as patch:
                patch.setattr(claims, "_hand_over", way)
                answers.append(act(store))
        assert answers[0] == answers[1]
        assert self.rings[0] == self.rings[1]
        assert self._rows(0) == self._rows(1)
        return answers

    def _rows(self, number: int) -> list[Any]:
        columns = "resource, token, id, state, permits, capacity, ttl, lapses_at, since, rung, bell"
        with closing(sqlite3.connect(self.paths[number])) as connection:
            return connection.execute(f"select {columns} from claim order by resource, token").fetchall()


@pytest.mark.parametrize("seed", range(12))
def test_both_ways_do_the_same(opened: Open, path: str, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    pair, chance = Pair(opened, path, monkeypatch), random.Random(seed)
    capacity = chance.choice([1, 1, 3])
    ids: list[str] = []
    turn_of_eviction = 100  # from then on the row of the victim may stand in front

    def released(id: str, linger: float) -> Any:
        return lambda store: drive(store.release("r", id, linger))

    def watch(store: SqliteStore) -> Any:
        return drive(store._run(steps.WATCH, ("q", "r", "@watcher", 5.0), store.now() + 5.0))

    for turn in range(100):
        pair.manual.now += chance.choice([0.01] * 9 + [3.0])
        pair.manual.micros += 10
        what = chance.random()
        if what < 0.5 or not ids:
            wish = claim(
                id=f"{turn}",
                ttl=chance.choice([2.0, 30.0]),
                place_ttl=chance.choice([2.0, 10.0]),
                permits=chance.choice([capacity, 1]),
                capacity=capacity,
            )
            ids.append(wish.id)
            pair.do(lambda store, wish=wish: type(drive(store.claim(wish))))
        elif what < 0.51:
            victim, turn_of_eviction = chance.choice(ids), min(turn, turn_of_eviction)
            pair.do(lambda store, victim=victim: len(drive(store.evict("r", victim, "why"))))
        elif what < 0.54:
            pair.do(watch)
        else:
            id = ids[0] if chance.random() < 0.8 else chance.choice(ids)
            ids.remove(id)
            pair.do(released(id, chance.choice([0.0] * 9 + [0.5])))
    assert capacity > 1 or turn_of_eviction < 60 or pair.taken, "the short way was never taken"


@pytest.mark.parametrize(
    ("behind", "simple"), [("waits", True), ("nobody", True), ("reader", False), ("lapsed", False)]
)
def test_it_is_taken_only_where_at_most_one_is_to_be_let_in(
    opened: Open, path: str, monkeypatch: pytest.MonkeyPatch, behind: str, simple: bool
) -> None:
    pair = Pair(opened, path, monkeypatch)

    def enter(store: SqliteStore) -> None:
        assert isinstance(drive(store.claim(claim(id="a", permits=3, capacity=3))), Granted)
        if behind != "nobody":
            width = 1 if behind == "reader" else 3
            wish = claim(id="b", permits=width, capacity=3, place_ttl=1.0)
            assert isinstance(drive(store.claim(wish)), Busy)

    pair.do(enter)
    if behind == "lapsed":
        pair.manual.now += 2.0
    pair.do(lambda store: store._met_others("r", store.now()))
    pair.do(lambda store: drive(store.release("r", "a")))
    assert bool(pair.taken) is simple


@pytest.mark.parametrize("short", [True, False])
def test_the_next_is_rung_before_the_bell_of_the_claim_that_goes(
    opened: Open, path: str, monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    store, rung = opened(path), list[dict[str, list[str]]]()
    monkeypatch.setattr(store._notifier, "ring", rung.append)
    if not short:
        monkeypatch.setattr(claims, "_hand_over", lambda *_: False)
    for id in "abc":
        monkeypatch.setattr(store._notifier, "hang", lambda id=id: f"@{id}")
        drive(store.claim(claim(id=id)))
    drive(store.release("r", "a"))
    drive(store.release("r", "b"))  # it has waited, so a bell stands in its row
    assert [list(rings) for rings in rung] == [["@b"], ["@c", "@b"]]
