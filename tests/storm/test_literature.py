"""The failures of the literature on real servers: the naive lock is convicted, interlock is acquitted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from interlock.lab.storm import literature
from interlock.lab.storm.director import scene
from interlock.lab.storm.literature import Cast, Schedule, played
from interlock.lab.storm.verdict import Verdict
from interlock.lab.storm.workers.naive import ASIDE
from interlock.testing.lag import stretched
from tests.full import FULL

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


class Case(NamedTuple):
    """A schedule, the servers it is played on, the naive lock, and the rules that convict it."""

    schedule: Schedule
    servers: str
    naive: str
    rules: set[str]
    ttl: float = 1.0

    def __str__(self) -> str:
        return f"{self.schedule.__name__}-{self.naive}"


CASES = [
    Case(literature.stopped_past_its_ttl, "durable", "naive", {"N9"}),
    Case(literature.stopped_past_its_ttl, "durable", "careless", {"N4", "N9", "E"}),
    Case(literature.killed_while_it_holds, "durable", "twosteps", {"N7"}),
    Case(literature.two_buyers, "durable", "nolock", {"N9", "E"}),
    Case(literature.entered_twice, "durable", "earlyunlock", {"N9", "E"}),
    Case(literature.server_forgets, "forgetful", "counting", {"N2", "N9"}),
    Case(literature.master_lost_with_its_last_write, "sentinel", "counting", {"N2", "N9"}),
    Case(literature.node_restarted_empty, "redlock", "counting", {"E", "N2", "N9"}),
    Case(literature.first_node_restarted_empty, "redlock", "onecounter", {"N3"}),
    Case(literature.node_clock_jumps, "redlock", "naive", {"N9"}),
    Case(literature.stopped_past_its_ttl, "etcd", "naiveetcd", {"N9"}),
    Case(literature.stopped_past_its_ttl, "etcd", "carelessetcd", {"N4", "N9", "E"}),
    Case(literature.stopped_past_its_ttl, "zookeeper", "naivezookeeper", {"N9"}, 1.5),
    Case(literature.follower_that_answers_pings, "zookeeper", "pinged", {"E"}, 1.5),
    Case(literature.standby_promoted, "postgresql", "naiverow", {"N2", "N9"}, 2.0),
    Case(literature.stopped_past_its_ttl, "mysql", "naivemysql", {"N9"}),
    Case(literature.killed_while_it_holds, "mysql", "rowforever", {"N7"}),
]
LONG = [literature.follower_that_answers_pings]  # played with --full


def played_by(case: Case, kind: str) -> Verdict:
    # A session of ZooKeeper is longer than the ttl, and is stretched by itself.
    ttl = case.ttl if case.servers == "zookeeper" else stretched(case.ttl)
    with scene(case.servers, ttl) as made:
        return played(Cast(made, kind), case.schedule)


def told(verdict: Verdict) -> str:
    return "\n".join(str(violation) for violation in verdict.violations)


@contextmanager
def unless_long(case: Case) -> Iterator[None]:
    if case.schedule in LONG and not FULL:
        pytest.skip("takes long: dev.py test --full")
    yield


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_naive_lock_is_convicted(case: Case) -> None:
    with unless_long(case):
        verdict = played_by(case, case.naive)
        assert case.rules <= verdict.rules, told(verdict)
        if case.naive != "pinged":  # which also shows what follows from two believers
            assert verdict.rules <= case.rules | ASIDE, told(verdict)


FACES = {"async": 0, "sync": 1}  # each schedule under one face, in turn: both is for long runs
ACQUITTED = list({(case.schedule, case.servers): case for case in CASES}.values())


@pytest.mark.parametrize(
    ("case", "face"),
    [(case, list(FACES)[number % 2]) for number, case in enumerate(ACQUITTED)],
    ids=[f"{case.schedule.__name__}-{case.servers}" for case in ACQUITTED],
)
def test_interlock_is_acquitted_under_the_same_fault(case: Case, face: str) -> None:
    with unless_long(case):
        verdict = played_by(case, face)
        assert not verdict.violations, told(verdict)
        assert verdict.numbers["accepted"] > 0, "nobody counted: the schedule shows nothing"


def test_fifty_of_a_hundred_waiters_killed_at_once_delay_nobody_for_long() -> None:
    with scene("durable", stretched(1.0)) as made:
        verdict = played(Cast(made, "async"), literature.crowd_killed)
        assert not verdict.violations, told(verdict)
        assert verdict.numbers["longest pause"] < made.ttl + stretched(2.0)
