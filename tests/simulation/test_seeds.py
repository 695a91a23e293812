"""Every scenario in every weather under many seeds: nothing that must never happen does."""

from __future__ import annotations

import pytest

from interlock.testing.scenarios import SCENARIOS
from interlock.testing.simulation import RunSpec, campaign, simulate
from interlock.testing.weather import WEATHERS
from tests.full import FULL

EACH = 11 if FULL else 4  # seeds for each pair of 14 scenarios and 14 weathers


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_that_must_never_happen_does(scenario: str) -> None:
    specs = [
        RunSpec(scenario, weather, 1000 * list(WEATHERS).index(weather) + number)
        for weather in WEATHERS
        for number in range(EACH)
    ]
    verdicts = campaign(specs)
    guilty = [str(verdict) for verdict in verdicts if verdict.violations]
    assert not guilty, "\n" + "\n".join(guilty)
    assert sum(verdict.faults for verdict in verdicts) > 8 * EACH
    if scenario not in ("register", "latch", "event", "barrier"):  # which have no leases
        assert sum(verdict.grants for verdict in verdicts) > 80 * EACH


# Seeds that once found a bug stay here, each with what it found.
FOUND = [
    RunSpec("register", "slow", 33),  # a lost reply, another's write, and the change was applied twice
    RunSpec("condition", "lossy", 5567),  # a late copy of its own claim hid the notification from a waiter
    RunSpec("condition", "wall", 1139),  # likewise
    RunSpec("rlock", "wall", 966),  # a grant told with the wake-up, but of a place that had lapsed since
    RunSpec("lock", "lossy", 852),  # a call overran its timeout by a whole second, looking at the holders
    RunSpec("multilock", "cut", 1927),  # a grace for each lock instead of one for the call
    RunSpec("rwlock", "cut", 1924),  # a debt that was still owed after close
]


@pytest.mark.parametrize("spec", FOUND, ids=lambda spec: f"{spec.scenario}-{spec.weather}-{spec.seed}")
def test_what_a_seed_has_found_stays_fixed(spec: RunSpec) -> None:
    verdict = simulate(spec)
    assert not verdict.violations, str(verdict)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_same_seed_gives_the_same_run(scenario: str) -> None:
    runs = [RunSpec(scenario, "tempest", 7).world() for _ in range(2)]
    for run in runs:
        run.execute()
    first, second = ([record.pack() for record in run.cluster.history] for run in runs)
    assert first == second
    assert runs[0].cluster.world.steps == runs[1].cluster.world.steps
