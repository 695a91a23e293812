"""The judge of scenarios: what it reads from a history."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from interlock.lab.judge import Run, plain_number, runs, seconds
from interlock.lab.spans import covers, intersect, subtract, total, union
from interlock.testing.history import Kind, Record


def record(time: float, process: str, call: str, kind: Kind = "ok", **rest: Any) -> Record:
    return Record(time, process, call, kind, **rest)


def held(time: float, holder: str, until: float, store: str = "store") -> Record:
    return record(time, store, "hold", holder=holder, deadline=until)


def wrote(time: float, holder: str, value: int, kind: Kind = "ok") -> Record:
    return record(time, "resource", "accept", kind, holder=holder, value=value)


def rounded(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(round(start, 6), round(end, 6)) for start, end in spans]


A_IS_PAUSED_AND_WRITES = [
    record(10.0, "A", "acquire", "invoke"),
    held(10.1, "A", 11.1),
    record(10.1, "A", "grant"),
    record(10.2, "A", "fault", "invoke", attempt="1", error="paused"),
    record(10.3, "B", "acquire", "invoke"),
    held(11.1, "B", 13.0),
    record(11.1, "B", "grant"),
    wrote(11.5, "B", 1),
    record(12.0, "A", "fault", "ok", attempt="1", error="paused"),
    wrote(12.1, "A", 1),
    record(12.2, "A", "body"),
    record(12.2, "A", "end"),
    record(12.5, "B", "body"),
    record(12.5, "B", "end"),
    record(12.5, "store", "hold", "fail", holder="B", error="released"),
]


def test_a_late_write_beside_a_newer_holder_is_harm() -> None:
    run = Run("naive", A_IS_PAUSED_AND_WRITES, 1.0)
    assert [write.holder for write in run.late_writes()] == ["A"]
    assert rounded(run.two_at_work) == [(2.0, 2.2)]
    assert rounded(run.harm) == [(2.0, 2.2)]
    assert run.lost_updates == 1
    assert run.verdict().en == "Two at work at once for 0.20 s; 1 late write accepted."


def test_a_paused_body_beside_a_new_holder_is_no_harm_yet() -> None:
    run = Run("naive", [one for one in A_IS_PAUSED_AND_WRITES if one.time < 11.9], 1.0)
    assert run.harm == []
    assert rounded(run.wrong_without_harm) == [(1.1, 1.5)]
    assert rounded(run.mistaken("A")) == [(1.1, 1.5)]


def test_a_late_write_is_seen_without_an_overlap() -> None:
    """A wakes up after B has finished."""
    late = [
        *(one for one in A_IS_PAUSED_AND_WRITES if one.time < 11.9 and one.process != "director"),
        record(11.6, "B", "body"),
        record(11.6, "B", "end"),
        record(11.6, "store", "hold", "fail", holder="B", error="released"),
        record(12.0, "A", "fault", "ok", attempt="1", error="paused"),
        wrote(12.1, "A", 1),
        record(12.2, "A", "body"),
    ]
    run = Run("naive", late, 1.0)
    assert run.two_at_work == []
    assert len(run.late_writes()) == 1
    assert rounded(run.harm) == [(2.0, 2.2)]


def test_a_holder_that_is_told_knew_before_the_store_let_go() -> None:
    run = Run(
        "ours",
        [
            record(0.0, "A", "acquire", "invoke"),
            held(0.1, "A", 1.1),
            record(0.1, "A", "grant", deadline=1.05),
            record(2.0, "A", "body", "fail", error="LeaseLost"),
            record(2.0, "A", "end", "info", error="LeaseLost (lapsed)"),
            record(2.1, "store", "hold", "fail", holder="A", error="lapsed"),
        ],
        1.0,
    )
    assert run.told == [("A", 1.05)]
    assert run.knew_before() == [("A", (1.05, 1.1))]
    assert run.belief["A"] == [(0.1, 1.05)]
    assert "it was told" in run.verdict().en


def test_a_client_that_asks_for_two_ttls_and_never_gets_in_is_stuck() -> None:
    asked = [record(0.0, "B", "acquire", "invoke"), record(2.5, "director", "note")]
    assert Run("naive", asked, 1.0).stuck("B")
    assert not Run("naive", asked, 2.0).stuck("B")
    assert Run("naive", asked, 1.0).verdict().en == "Nobody got in for 2.50 s."
    granted = [*asked, record(2.6, "B", "grant")]
    assert not Run("naive", granted, 1.0).stuck("B")


def test_two_bodies_that_undo_each_other_do_harm_without_any_lock() -> None:
    run = Run(
        "naive",
        [
            record(0.0, "A", "grant"),
            record(0.1, "B", "grant"),
            wrote(0.5, "A", 1),
            wrote(0.6, "B", 1),
            record(0.7, "A", "body"),
            record(0.8, "B", "body"),
        ],
        1.0,
    )
    assert [write.holder for write in run.lost_writes] == ["B"]
    assert rounded(run.harm) == [(0.1, 0.7)]
    assert run.verdict().en == "Two at work at once for 0.60 s; 1 update lost."


def test_a_lock_of_a_client_that_died_keeps_everybody_out() -> None:
    killed = [
        held(0.0, "A", 0.0),  # a key without a ttl
        record(0.0, "A", "grant"),
        record(0.1, "B", "acquire", "invoke"),
        record(0.5, "A", "fault", "invoke", attempt="1", error="killed"),
        record(3.5, "director", "note"),
    ]
    run = Run("naive", killed, 1.0)
    assert rounded(run.abandoned("A")) == [(0.5, 3.5)]
    assert rounded(run.nobody_in) == [(0.5, 3.5)]
    assert run.verdict().en == "Nobody got in for 3.00 s: the lock belonged to a client that was gone."
    let_in = Run("ours", [*killed[:-1], held(1.5, "B", 2.5), record(1.5, "B", "grant"), killed[-1]], 1.0)
    assert let_in.nobody_in == []
    assert let_in.verdict().en == "Never two at work; the next one got in 1.00 s after the death of A."


def test_a_lock_that_is_renewed_for_nobody_keeps_everybody_out() -> None:
    run = Run(
        "naive",
        [
            held(0.0, "A", 0.0),
            record(0.0, "A", "grant"),
            record(0.1, "B", "acquire", "invoke"),
            record(0.5, "A", "body", "fail", error="a bug"),
            record(3.5, "director", "note"),
        ],
        1.0,
    )
    assert rounded(run.nobody_in) == [(0.5, 3.5)]
    assert run.verdict().en == "Nobody got in for 3.00 s, although nobody was at work."


def test_a_slow_holder_keeps_others_out_rightly() -> None:
    waiting = [held(0.0, "A", 0.0), record(0.0, "A", "grant"), record(0.1, "B", "acquire", "invoke")]
    assert Run("ours", [*waiting, record(3.5, "director", "note")], 1.0).nobody_in == []


def test_a_client_that_enters_again_has_a_belief_for_each_time() -> None:
    twice = [
        record(0.0, "A", "grant"),
        record(0.2, "A", "body"),
        record(1.0, "A", "grant"),
        record(1.3, "A", "body"),
        record(1.3, "A", "end"),
    ]
    assert rounded(Run("ours", twice, 1.0).belief["A"]) == [(0.0, 0.2), (1.0, 1.3)]


def test_a_number_belongs_to_the_process_that_measured_it() -> None:
    run = Run(
        "naive",
        [
            record(0.0, "no lock", "measure", attempt="sold", amount=732.0),
            record(0.1, "blind", "measure", attempt="sold", amount=246.0),
        ],
        1.0,
    )
    assert run.measures() == {"sold": 246.0}
    assert run.measures("no lock") == {"sold": 732.0}


def test_each_store_has_a_truth_of_its_own() -> None:
    run = Run("naive", [held(0.0, "A", 9.0, "left"), held(1.0, "B", 9.0, "right")], 1.0)
    assert run.stores == ["left", "right"]
    assert [(lease.store, lease.holder) for lease in run.leases] == [("left", "A"), ("right", "B")]


def test_a_killed_client_believes_no_more() -> None:
    run = Run(
        "naive",
        [
            record(0.0, "A", "grant"),
            record(0.5, "A", "fault", "invoke", attempt="1", error="killed"),
            record(3.0, "director", "note"),
        ],
        1.0,
    )
    assert run.belief["A"] == run.body["A"] == [(0.0, 0.5)]


def test_the_runs_of_a_history_are_told_apart() -> None:
    first, second = record(0.0, "A", "grant", run="naive"), record(5.0, "A", "grant", run="ours")
    found = runs([first, second], 1.0)
    assert list(found) == ["naive", "ours"]
    assert found["ours"].records[0].time == 0.0


def test_spans() -> None:
    assert union([(0.0, 1.0), (2.0, 3.0)], [(0.5, 2.0)]) == [(0.0, 3.0)]
    assert subtract([(0.0, 3.0)], [(1.0, 2.0)]) == [(0.0, 1.0), (2.0, 3.0)]
    assert intersect([(0.0, 2.0)], [(1.0, 3.0)]) == [(1.0, 2.0)]
    assert total([(0.0, 1.0), (2.0, 2.5)]) == pytest.approx(1.5)
    assert covers([(0.0, 1.0)], 1.0)
    assert not covers([], 1.0)


@pytest.mark.parametrize("seed", range(200))
def test_spans_are_cut_as_their_definition_says(seed: int) -> None:
    chance = Random(seed)

    def some() -> list[tuple[float, float]]:
        starts = [float(chance.randrange(20)) for _ in range(chance.randrange(6))]
        return [(start, start + chance.randint(1, 5)) for start in starts]

    left, right = some(), some()
    middles = [moment + 0.5 for moment in range(26)]
    for moment in middles:
        one, other = covers(left, moment), covers(right, moment)
        assert covers(intersect(left, right), moment) == (one and other)
        assert covers(subtract(left, right), moment) == (one and not other)


@pytest.mark.parametrize(
    ("value", "said"), [(0.0002, "< 1 ms"), (0.022, "22 ms"), (1.5, "1.50 s"), (12.34, "12.3 s")]
)
def test_a_duration_is_said_as_people_read_it(value: float, said: str) -> None:
    assert seconds(value) == said


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00298, "0.00298"), (2.9848, "2.98"), (40.0, "40"), (2062.0, "2,062"), (1234.56, "1,235")],
)
def test_a_number_is_written_as_people_read_it(value: float, text: str) -> None:
    assert plain_number(value) == text


def test_two_believe_at_once_only_if_both_beliefs_run() -> None:
    """A body that ends at its next look is not a belief: its lease was over by its own clock."""
    run = Run(
        "ours",
        [
            record(0.0, "A", "grant", deadline=1.0),
            record(1.1, "B", "grant", deadline=2.1),
            record(1.2, "A", "body", "fail"),
            record(1.2, "A", "end", "info"),
            record(1.9, "B", "body"),
            record(1.9, "B", "end"),
        ],
        1.0,
    )
    assert rounded(run.two_at_work) == [(1.1, 1.2)]
    assert run.two_believe == []
