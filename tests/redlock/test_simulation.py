"""The shipped algorithm of the quorum on five simulated nodes: scenarios, weathers and seeds, schedules, and mutants.

With `dev.py test --full` more than two thousand seeds are run, which takes minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from interlock.testing.simulation import campaign, simulate
from tests.full import FULL
from tests.redlock.simulation.mutant import Mutant
from tests.redlock.simulation.mutants import MUTANTS
from tests.redlock.simulation.scenario_run import SCENARIOS, QuorumRunSpec
from tests.redlock.simulation.schedules import SCHEDULES
from tests.redlock.simulation.weather import WEATHERS

EACH = 15 if FULL else 2  # seeds for each pair of 8 scenarios and 17 weathers


@pytest.fixture(autouse=True)
def _unlogged() -> Iterator[None]:
    """Jumped clocks are told to operators, by the thousand here."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.timeout(7200 if FULL else 600)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_that_must_never_happen_does(scenario: str) -> None:
    specs = [
        QuorumRunSpec(scenario, weather, 1000 * place + number)
        for place, weather in enumerate(WEATHERS)
        for number in range(EACH)
    ]
    verdicts = campaign(specs)
    guilty = [str(verdict) for verdict in verdicts if verdict.violations]
    assert not guilty, "\n" + "\n".join(guilty)
    assert sum(verdict.grants for verdict in verdicts) > 10 * len(verdicts)
    assert sum(verdict.faults for verdict in verdicts) > 5 * len(verdicts)


@pytest.mark.parametrize("name", SCHEDULES)
def test_nothing_that_must_never_happen_does_when(name: str) -> None:
    assert [str(violation) for violation in SCHEDULES[name]()] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_deliberate_bug_is_noticed(mutant: Mutant) -> None:
    assert mutant.noticed(), f"{mutant.victim}, and nobody noticed"


# Seeds that once found a bug stay here, each with what it found.
FOUND = [
    QuorumRunSpec("downgrade", "calm", 4),  # new nodes met several clients at once, and refused them
    QuorumRunSpec(
        "lock", "lossy", 25
    ),  # nodes were admitted one after the other on the time of a caller who had none
    QuorumRunSpec("election", "wall", 1),  # a claim between its rounds was shown as the leader, with token 0
    QuorumRunSpec("election", "wall", 5),  # ... with a token that was never granted
]


@pytest.mark.parametrize("spec", FOUND, ids=lambda spec: f"{spec.scenario}-{spec.weather}-{spec.seed}")
def test_what_a_seed_has_found_stays_fixed(spec: QuorumRunSpec) -> None:
    verdict = simulate(spec)
    assert not verdict.violations, str(verdict)


def test_the_same_seed_gives_the_same_run() -> None:
    runs = [QuorumRunSpec("long", "tempest", 7).world() for _ in range(2)]
    for run in runs:
        run.execute()
    first, second = ([record.pack() for record in run.cluster.history] for run in runs)
    assert first == second
    assert runs[0].cluster.world.steps == runs[1].cluster.world.steps
