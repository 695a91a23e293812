"""MariaDB under faults: the classic row is convicted when its holder is stopped, interlock is acquitted, and a short storm finds nothing."""

from __future__ import annotations

import pytest

from interlock.testing.lag import stretched
from tests.storm import schedules
from tests.storm.faults import FAULTS
from tests.storm.naive import ASIDE, told
from tests.storm.schedules import Cast, X, played
from tests.storm.storm import rage, scene

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


def test_the_classic_row_accepts_the_late_write_of_a_stopped_holder() -> None:
    with scene("mysql", stretched(1.0)) as made:
        verdict = played(Cast(made, "naivemysql"), schedules.stopped_past_its_ttl, [X])
        assert "N9" in verdict.rules, told(verdict)
        assert verdict.rules <= {"N9"} | ASIDE, told(verdict)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_interlock_is_acquitted_when_a_holder_is_stopped(face: str) -> None:
    with scene("mysql", stretched(1.0)) as made:
        verdict = played(Cast(made, face), schedules.stopped_past_its_ttl, [X])
        assert not verdict.violations, told(verdict)
        assert verdict.numbers["accepted"] > 0, "nobody counted: the schedule shows nothing"


@pytest.mark.slow
def test_nothing_that_must_never_be_in_a_short_storm() -> None:
    with scene("mysql", ttl=stretched(0.8)) as made:
        verdict = rage(made, seed=1, grants=60, faults=len(FAULTS["mysql"]), once=True)
        assert not verdict.rules, str(verdict)
        assert verdict.numbers["faults"] == len(FAULTS["mysql"])
