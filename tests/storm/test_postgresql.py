"""PostgreSQL under faults: the classic row is convicted when a standby takes over, interlock is acquitted, and a short storm finds nothing."""

from __future__ import annotations

import pytest

from interlock.testing.lag import stretched
from tests.storm import schedules
from tests.storm.faults import FAULTS
from tests.storm.naive import ASIDE, told
from tests.storm.schedules import Cast, X, played
from tests.storm.storm import rage, scene

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


def standby_promoted(cast: Cast) -> None:
    """A's grant reached no standby, and the standby is the primary now."""
    field = cast.scene.field
    a, b = cast.hire(), cast.hire()
    schedules._once(a)
    with cast.scene.suffering("standby promoted, writes lost", "f"):
        standby = field.server.copied()
        assert a.acquire(X, 20.0) is not None
        value = a.tell("read", resource=X)["value"]
        field.server.promote(standby)
    schedules._second(cast, a, b, value)


def test_the_classic_row_repeats_its_token_when_a_standby_takes_over() -> None:
    with scene("postgresql", stretched(2.0)) as made:
        verdict = played(Cast(made, "naiverow"), standby_promoted, [X])
        assert {"N2", "N9"} <= verdict.rules, told(verdict)
        assert verdict.rules <= {"N2", "N9"} | ASIDE, told(verdict)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_interlock_is_acquitted_when_a_standby_takes_over(face: str) -> None:
    with scene("postgresql", stretched(2.0)) as made:
        verdict = played(Cast(made, face), standby_promoted, [X])
        assert not verdict.violations, told(verdict)
        assert verdict.numbers["accepted"] > 0, "nobody counted: the schedule shows nothing"


@pytest.mark.slow
def test_nothing_that_must_never_be_in_a_short_storm() -> None:
    with scene("postgresql", ttl=stretched(0.8)) as made:
        verdict = rage(made, seed=1, grants=60, faults=len(FAULTS["postgresql"]), once=True)
        assert not verdict.rules, str(verdict)
        assert verdict.numbers["faults"] == len(FAULTS["postgresql"])
