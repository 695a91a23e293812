"""What a storm adds to the judges: who is excused and when, who was robbed, and who stood still."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.lab.storm.verdict import StormTerms, verdict
from interlock.testing.history import Kind, Record


def record(time: float, process: str, call: str, kind: Kind = "ok", **rest: Any) -> Record:
    return Record(time, process, call, kind, **rest)


def grant(time: float, process: str, token: int, until: float) -> Record:
    said: dict[str, Any] = {"attempt": f"{process}-{token}", "resource": "r", "began": time - 0.1}
    return record(time, process, "grant", token=token, deadline=until, **said)


def end(time: float, process: str, token: int, error: str = "", until: float = 0.0) -> Record:
    kind: Kind = "info" if error else "ok"
    return record(time, process, "end", kind, attempt=f"{process}-{token}", error=error, deadline=until)


def fault(began: float, healed: float, name: str) -> list[Record]:
    said: dict[str, Any] = {"attempt": f"fault-{began}", "error": name}
    return [
        record(began, "director", "fault", "invoke", **said),
        record(healed, "director", "fault", "ok", **said),
    ]


OVERLAP = [grant(2.0, "a", 1, 2.9), grant(2.5, "b", 2, 3.4), end(2.6, "a", 1), end(2.7, "b", 2)]
LATER = [grant(4.0, "c", 3, 4.9), end(4.1, "c", 3)]
ROBBED = [grant(2.0, "a", 1, 2.9), end(2.5, "a", 1, "refused", 2.9)]
TOLD_LATE = [grant(2.0, "a", 1, 2.9), end(3.0, "a", 1, "refused", 2.9)]

BETTER = [grant(2.5, "b", 20, 3.4), end(2.6, "b", 20)]
HEIR = [
    record(
        2.8, "a", "grant", attempt="a-2", resource="r", began=2.7, token=2, deadline=3.4, error="passed on"
    ),
    end(2.9, "a", 2),
]

CASES: dict[str, tuple[set[str], list[Record]]] = {
    "two holders in peace": ({"E"}, [*OVERLAP, *LATER]),
    "two holders after a flush": (set(), [*fault(2.2, 2.3, "L: flushall"), *OVERLAP, *LATER]),
    "two holders long after a flush": ({"E"}, [*fault(1.0, 1.1, "L: flushall"), *OVERLAP, *LATER]),
    "two holders after a client was killed": ({"E"}, [*fault(2.2, 2.3, "E: kill client"), *OVERLAP, *LATER]),
    "two holders after a node of five was emptied": (
        {"E"},
        [*fault(2.2, 2.3, "E: node restarted empty"), *OVERLAP, *LATER],
    ),
    "a lease that was taken away": ({"N4"}, [*ROBBED, *LATER]),
    "a lease that ended with its majority": (
        set(),
        [*fault(2.2, 2.3, "E: node restarted empty"), *ROBBED, *LATER],
    ),
    "a lease that had lapsed when the store said no": (set(), [*TOLD_LATE, *LATER]),
    "passed on though forgotten": (
        {"N3"},
        [*fault(2.2, 2.3, "L: flushall"), *BETTER, *HEIR, grant(4.0, "c", 30, 4.9), end(4.1, "c", 30)],
    ),
    "passed on in peace": ({"N3"}, [*BETTER, *HEIR, grant(4.0, "c", 30, 4.9), end(4.1, "c", 30)]),
    "nobody got on after a fault": (
        {"N7"},
        [*LATER, *fault(5.0, 5.1, "E: crash"), *fault(20, 20.1, "E: crash")],
    ),
    "somebody got on after a fault": (set(), [*fault(2.0, 2.1, "E: crash"), *LATER]),
}


@pytest.mark.parametrize("what", CASES)
def test_the_verdict_on(what: str) -> None:
    rules, records = CASES[what]
    terms = StormTerms(ttl=1.0, progress=5.0, tolerance=0.75, resources=["r"])
    assert verdict(sorted(records, key=lambda record: record.time), terms).rules == rules
