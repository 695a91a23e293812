"""The history of a run: what a witness saw is dated by what the clients say."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.lab.crowd_scenario import hand_overs, overtakings
from interlock.lab.scenario import OURS
from interlock.lab.scenarios import load
from interlock.lab.stage import Stage
from interlock.lab.witness import Held, Look, first_of
from interlock.testing.history import Record


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage(load("gc-pause"), OURS, 1.0, None, 1)
    yield made
    made.close()


def seen(stage: Stage, kind: Any, asked: float, answered: float, holder: str) -> None:
    """A witness asked and was answered; the change that it saw lies in between."""
    stage.add("hold", kind, at=answered, began=asked, process="store", holder=holder)


def told(stage: Stage, process: str, call: str, at: float, claim: str = "") -> None:
    stage.add(call, "ok", at=at, process=process, attempt=claim)


def holds(stage: Stage) -> list[tuple[float, str, str]]:
    return [(round(one.time, 2), one.holder, one.kind) for one in stage.history() if one.call == "hold"]


class TestWhatAWitnessSaw:
    def test_a_holder_stands_in_the_store_before_it_knows(self, stage: Stage) -> None:
        seen(stage, "ok", 1.0, 1.5, "claim")
        told(stage, "A", "grant", 1.2, "claim")
        assert holds(stage) == [(1.2, "A", "ok")]

    def test_a_holder_that_was_seen_late_is_dated_back(self, stage: Stage) -> None:
        told(stage, "A", "grant", 1.0, "claim")
        seen(stage, "ok", 1.4, 1.5, "claim")
        assert holds(stage) == [(1.0, "A", "ok")]

    def test_a_release_comes_after_the_work(self, stage: Stage) -> None:
        """Else the last write of a holder would count as late: it lay between the question and the answer."""
        told(stage, "A", "grant", 1.0, "claim")
        seen(stage, "ok", 1.0, 1.1, "claim")
        told(stage, "A", "body", 2.2)
        seen(stage, "fail", 2.0, 2.5, "claim")
        assert holds(stage)[-1] == (2.2, "A", "fail")

    def test_a_lock_that_another_has_freed_is_gone_from_the_question_on(self, stage: Stage) -> None:
        told(stage, "A", "grant", 1.0, "claim")
        seen(stage, "ok", 1.0, 1.1, "claim")
        seen(stage, "fail", 2.0, 2.1, "claim")
        told(stage, "A", "body", 3.0)
        assert holds(stage)[-1] == (2.0, "A", "fail")

    def test_a_claim_that_was_never_granted_keeps_its_own_name(self, stage: Stage) -> None:
        seen(stage, "ok", 1.0, 1.1, "claim")
        assert holds(stage) == [(1.0, "claim", "ok")]


class TestSeveralServersOfWhichOneDecides:
    def named(self, holder: str) -> Look:
        return lambda: Held(holder)

    def silent(self) -> Held | None:
        raise TimeoutError

    def test_the_first_that_names_a_holder_counts(self) -> None:
        assert first_of([lambda: None, self.silent, self.named("A")])() == Held("A")

    def test_that_nobody_holds_is_said_by_all(self) -> None:
        assert first_of([lambda: None, lambda: None])() is None

    def test_one_that_is_silent_may_know_a_holder(self) -> None:
        with pytest.raises(TimeoutError):
            first_of([lambda: None, self.silent])()


class TestACrowd:
    def played(self, *entered: str) -> Any:
        records = list[Record]()
        for number, name in enumerate(entered):
            records.append(Record(number + 0.0, name, "grant", "ok"))
            records.append(Record(number + 0.9, name, "body", "ok"))
        return SimpleNamespace(records=records)

    def test_nobody_overtakes_in_the_order_of_coming(self) -> None:
        assert overtakings(self.played("first", "g1.01", "g1.02", "g2.01")) == 0

    def test_a_later_group_that_enters_first_has_overtaken_each(self) -> None:
        assert overtakings(self.played("first", "g2.01", "g1.01", "g1.02")) == 2

    def test_within_a_group_there_is_no_order(self) -> None:
        assert overtakings(self.played("first", "g1.02", "g1.01")) == 0

    def test_a_hand_over_lasts_from_the_end_of_the_work_to_the_grant(self) -> None:
        assert hand_overs(self.played("first", "g1.01", "g1.02")) == [pytest.approx(0.1)] * 2
