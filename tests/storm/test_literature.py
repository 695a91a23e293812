"""The failures of the literature on real servers: the naive lock is convicted, interlock is acquitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from interlock.testing.lag import stretched
from tests.storm import schedules
from tests.storm.naive import ASIDE, told
from tests.storm.schedules import Cast, Schedule, X, played
from tests.storm.storm import scene

pytestmark = pytest.mark.chaos

# schedule, servers, the naive lock, what convicts it
CASES: list[tuple[Schedule, str, str, set[str]]] = [
    (schedules.stopped_past_its_ttl, "durable", "naive", {"N9"}),
    (schedules.stopped_past_its_ttl, "durable", "careless", {"N4", "N9", "E"}),
    (schedules.killed_while_it_holds, "durable", "twosteps", {"N7"}),
    (schedules.server_forgets, "forgetful", "counting", {"N2", "N9"}),
    (schedules.master_lost_with_its_last_write, "sentinel", "counting", {"N2", "N9"}),
    (schedules.node_restarted_empty, "redlock", "counting", {"E", "N2", "N9"}),
    (schedules.first_node_restarted_empty, "redlock", "onecounter", {"N3"}),
    (schedules.node_clock_jumps, "redlock", "naive", {"N9"}),
    (schedules.stopped_past_its_ttl, "etcd", "naiveetcd", {"N9"}),
    (schedules.stopped_past_its_ttl, "etcd", "carelessetcd", {"N4", "N9", "E"}),
]
NAMES = [f"{schedule.__name__}-{naive}" for schedule, _, naive, _ in CASES]


@contextmanager
def cast(servers: str, kind: str) -> Iterator[Cast]:
    with scene(
        "redlock-nodes" if servers == "redlock" and kind not in ("sync", "async") else servers, stretched(1.0)
    ) as made:
        yield Cast(made, kind)


@pytest.mark.parametrize(("schedule", "servers", "naive", "rules"), CASES, ids=NAMES)
def test_the_naive_lock_is_convicted(schedule: Schedule, servers: str, naive: str, rules: set[str]) -> None:
    with cast(servers, naive) as made:
        verdict = played(made, schedule, [X])
        assert rules <= verdict.rules, told(verdict)
        assert verdict.rules <= rules | ASIDE, told(verdict)


FACES = {"async": 0, "sync": 1}  # each schedule under one face, in turn: both is for long runs
ACQUITTED = list(dict.fromkeys((schedule, servers) for schedule, servers, _, _ in CASES))


@pytest.mark.parametrize(
    ("schedule", "servers", "face"),
    [(schedule, servers, list(FACES)[n % 2]) for n, (schedule, servers) in enumerate(ACQUITTED)],
    ids=[f"{schedule.__name__}-{servers}" for schedule, servers in ACQUITTED],
)
def test_interlock_is_acquitted_under_the_same_fault(schedule: Schedule, servers: str, face: str) -> None:
    with cast(servers, face) as made:
        verdict = played(made, schedule, [X])
        assert not verdict.violations, told(verdict)
        assert verdict.numbers["accepted"] > 0, "nobody counted: the schedule shows nothing"


def test_fifty_of_a_hundred_waiters_killed_at_once_delay_nobody_for_long() -> None:
    with cast("durable", "async") as made:
        verdict = played(made, schedules.crowd_killed, [X])
        assert not verdict.violations, told(verdict)
        assert verdict.numbers["longest pause"] < made.scene.ttl + stretched(2.0)
