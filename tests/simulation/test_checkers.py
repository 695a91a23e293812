"""The judges convict who is guilty and acquit who is not, from records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock.testing.checkers import Terms, judge
from interlock.testing.history import History, Kind, Record, read


def record(time: float, process: str, call: str, kind: Kind = "ok", **rest: Any) -> Record:
    return Record(time, process, call, kind, **rest)


def grant(time: float, process: str, token: int, until: float, **rest: Any) -> Record:
    rest = {"attempt": f"{process}-{token}", "resource": "r", "began": time - 0.1, **rest}
    return record(time, process, "grant", token=token, deadline=until, **rest)


def end(time: float, process: str, token: int, kind: Kind = "ok") -> Record:
    return record(time, process, "end", kind, attempt=f"{process}-{token}")


def rules(*records: Record, **terms: Any) -> list[str]:
    return [violation.rule for violation in judge(records, Terms(**terms))]


def call(
    time: float, took: float | None, limit: float | None, process: str = "a", name: str = "c1"
) -> list[Record]:
    begun = record(time, process, "acquire", "invoke", attempt=name, limit=limit)
    return [begun] if took is None else [begun, record(time + took, process, "acquire", attempt=name)]


FIRST = [grant(1, "a", 1, 4), end(2, "a", 1)]

ACQUITTED: dict[str, list[Record]] = {
    "one after the other": [*FIRST, grant(2, "b", 2, 5), end(3, "b", 2)],
    "a killed holder, then another": [
        grant(1, "a", 1, 4),
        record(2, "a", "fault", "invoke", error="kill"),
        grant(3, "b", 2, 6),
        end(4, "b", 2),
    ],
    "a lapsed one, told at once": [
        grant(1, "a", 1, 4),
        end(4.1, "a", 1, "info"),
        grant(5, "b", 2, 8),
        end(6, "b", 2),
    ],
    "a paused one, told when it runs again": [
        grant(1, "a", 1, 4),
        record(2, "a", "fault", "invoke", error="pause"),
        record(60, "a", "fault", "invoke", error="resume"),
        end(60.1, "a", 1, "info"),
    ],
    "two readers": [
        grant(1, "a", 1, 9, permits=1, capacity=2),
        grant(2, "b", 2, 9, permits=1, capacity=2),
        end(3, "a", 1),
        end(3, "b", 2),
    ],
    "a writer that became a reader": [
        grant(1, "a", 1, 9, permits=2, capacity=2),
        record(2, "a", "shrink", attempt="a-1", permits=1),
        grant(3, "b", 2, 9, permits=1, capacity=2),
        end(4, "a", 1),
        end(4, "b", 2),
    ],
    "one that was stopped while it let go": [
        grant(1, "a", 1, 4),
        record(3.9, "a", "fault", "invoke", error="pause"),
        record(9, "a", "fault", "invoke", error="resume"),
        end(9, "a", 1),
    ],
    "one that came too late, told at once": [grant(9, "a", 1, 4), end(9.1, "a", 1, "info")],
    "a call in time": call(1, 0.9, 1.0),
    "a call of a paused process": [
        *call(1, 5.0, 1.0),
        record(1.5, "a", "fault", "invoke", error="pause"),
        record(5.9, "a", "fault", "invoke", error="resume"),
    ],
    "tokens in the order of entry, granted out of order": [
        grant(1, "a", 2, 1.5, began=0),
        end(1.4, "a", 2),
        grant(2, "b", 1, 3, began=0),
        end(3, "b", 1),
    ],
    "a counter that counts": [
        record(1, "guard", "accept", resource="n", token=1, value=1),
        record(2, "guard", "accept", "fail", resource="n", token=0, value=1),
        record(3, "guard", "accept", resource="n", token=2, value=2),
    ],
}


@pytest.mark.parametrize("what", ACQUITTED)
def test_the_innocent_are_acquitted(what: str) -> None:
    assert rules(*ACQUITTED[what]) == []


GUILTY: dict[str, tuple[str, list[Record]]] = {
    "two holders": ("E", [grant(1, "a", 1, 4), grant(2, "b", 2, 5), end(3, "a", 1), end(3, "b", 2)]),
    "a reader beside a writer": (
        "E",
        [
            grant(1, "a", 1, 9, permits=2, capacity=2),
            grant(2, "b", 2, 9, permits=1, capacity=2),
            end(3, "a", 1),
            end(3, "b", 2),
        ],
    ),
    "renewed into another's time": (
        "E",
        [
            grant(1, "a", 1, 4),
            record(3, "a", "renew", attempt="a-1", deadline=9),
            grant(5, "b", 2, 7),
            end(6, "b", 2),
            end(8, "a", 1),
        ],
    ),
    "one token twice": ("N2", [*FIRST, grant(3, "b", 1, 5), end(4, "b", 1)]),
    "a token that falls": ("N3", [*FIRST, grant(3, "b", 0, 5), end(4, "b", 0)]),
    "a stale token accepted": (
        "N1",
        [
            record(1, "guard", "accept", resource="n", token=2, value=1),
            record(2, "guard", "accept", resource="n", token=1, value=2),
        ],
    ),
    "a lost update": (
        "N9",
        [
            record(1, "guard", "accept", resource="n", token=1, value=1),
            record(2, "guard", "accept", resource="n", token=2, value=1),
        ],
    ),
    "another's lease touched": ("N4", [record(1, "server", "touch", "fail", attempt="x", error="released")]),
    "valid after its deadline": ("N5", [record(5, "a", "check", attempt="x", deadline=4.0)]),
    "back from the dead": (
        "N5",
        [grant(1, "a", 1, 4), record(5, "a", "renew", attempt="a-1", deadline=9), end(6, "a", 1)],
    ),
    "released as if held": ("N5", [grant(1, "a", 1, 4), end(4.5, "a", 1)]),
    "too late": ("N6", call(1, 1.3, 1.0)),
    "never": ("N7", [*call(1, None, None), record(99, "b", "heal")]),
    "slow though all is well": ("N7", [record(1, "n", "heal"), *call(2, 40.0, None)]),
    "nobody told": ("N8", [grant(1, "a", 1, 4), end(6, "a", 1, "info")]),
    "left behind": ("N10", [record(1, "server", "left", "fail", error="a claim")]),
}


@pytest.mark.parametrize("what", GUILTY)
def test_the_guilty_are_convicted(what: str) -> None:
    rule, records = GUILTY[what]
    assert rules(*records) == [rule]


def test_overlap_is_excused_where_the_store_cannot_promise_it() -> None:
    both = [grant(1, "a", 1, 4), grant(2, "b", 2, 5), end(3, "a", 1), end(3, "b", 2)]
    assert rules(*both, exclusive=False) == []


def test_overlap_is_excused_for_as_long_as_the_store_could_not_promise_it() -> None:
    both = [grant(1, "a", 1, 4), grant(2, "b", 2, 5), end(3, "a", 1), end(3, "b", 2)]
    assert rules(*both, excused=[(0.5, 0.6), (0.7, 2.5), (1.0, 1.1)]) == []
    assert rules(*both, excused=[(0.5, 1.9), (2.1, 3.0)]) == ["E"]


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    history = History(lambda: 2.5)
    history.add(
        "p1", "grant", "ok", attempt="x", resource="ü/{}", token=2**60, deadline=5.25, capacity=2**31 - 1
    )
    history.add("p1", "acquire", "invoke", attempt="y", limit=0.0)
    other = History(lambda: 1.5)
    other.add("p2", "fault", "invoke", error="kill")
    history.write(tmp_path / "one.jsonl")
    other.write(tmp_path / "two.jsonl")
    found = read([tmp_path / "one.jsonl", tmp_path / "two.jsonl"])
    assert found == [*other.records, *history.records]


def test_ten_times_as_many_grants_are_judged_in_about_ten_times_as_long() -> None:
    import time

    def judged(grants: int) -> float:
        records: list[Record] = []
        for number in range(1, grants + 1):
            records += [grant(number, "a", number, number + 0.9), end(number + 0.5, "a", number)]
        began = time.process_time()
        assert judge(records) == []
        return time.process_time() - began

    # The best of three: the caches of a busy machine are cold now and then.
    assert min(judged(50_000) for _ in range(3)) < 30 * judged(5_000)
