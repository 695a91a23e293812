"""A deliberate bug in the quorum's algorithm, planted while simulations run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.redlock.simulation.scenario_run import SCENARIOS, QuorumScenarioRun
from tests.redlock.simulation.schedules import SCHEDULES

Patch = tuple[object, str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug, whom it hurts, and where it must be noticed: by a schedule, or within so many seeds in a weather."""

    name: str
    victim: str
    patches: Callable[[], list[Patch]]
    rules: frozenset[str]  # one of these at least is found broken
    schedule: str = ""
    weather: str = ""
    scenario: str = "lock"
    workers: int = 1
    seeds: int = 60

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The bug is there until the end of the block."""
        kept: list[Patch] = []
        try:
            for owner, name, new in self.patches():
                kept.append((owner, name, getattr(owner, name)))
                setattr(owner, name, new)
            yield
        finally:
            for owner, name, old in reversed(kept):
                setattr(owner, name, old)

    def noticed(self) -> str:
        """Where a rule was found broken; "" if it was not."""
        with self.planted():
            if self.schedule:
                found = {violation.rule for violation in SCHEDULES[self.schedule]()}
                return self.schedule if found & self.rules else ""
            scenario = replace(SCENARIOS[self.scenario], workers=self.workers)
            for seed in range(self.seeds):
                found = {
                    violation.rule for violation in QuorumScenarioRun(scenario, self.weather, seed).execute()
                }
                if found & self.rules:
                    return f"{self.weather}, seed {seed}: {sorted(found & self.rules)}"
        return ""
