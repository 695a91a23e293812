"""Seeds by the thousand: every scenario of the shipped algorithms, in every weather, judged.

    python -m interlock.testing.simulation --seeds 2000
    python -m interlock.testing.simulation --store sessions --seeds 2000    # claims live with sessions
    python -m interlock.testing.simulation --scenario lock --weather tempest --seed 1234    # replays one

A seed names the scenario and the weather too, unless they are given. The same seed gives the same run, to the
last await.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from interlock.testing.checkers import Violation
from interlock.testing.scenario_run import RowRun, Scenario, ScenarioRun, SessionRun
from interlock.testing.scenarios import SCENARIOS, SESSION_SCENARIOS
from interlock.testing.weather import WEATHERS


@dataclass(frozen=True, slots=True)
class RunSpec:
    """The scenario, weather and seed that determine one run.

    Subclasses have other scenarios, weathers and commands.
    """

    scenarios: ClassVar[Mapping[str, Scenario]] = SCENARIOS
    weathers: ClassVar[Mapping[str, Any]] = WEATHERS
    command: ClassVar[str] = "python3 dev.py sim"

    scenario: str
    weather: str
    seed: int

    @classmethod
    def of(cls, seed: int, scenario: str | None = None, weather: str | None = None) -> Self:
        """All pairs of scenario and weather come up equally often over consecutive seeds."""
        scenarios, weathers = list(cls.scenarios), list(cls.weathers)
        return cls(
            scenario or scenarios[seed % len(scenarios)],
            weather or weathers[seed // len(scenarios) % len(weathers)],
            seed,
        )

    def world(self) -> ScenarioRun:
        return ScenarioRun(self.scenarios[self.scenario], self.weathers[self.weather], self.seed)

    @property
    def replay(self) -> str:
        """The command that shows this run again."""
        return f"{self.command} --scenario {self.scenario} --weather {self.weather} --seed {self.seed}"


class SessionSpec(RunSpec):
    """A run on a server whose claims live as long as their client's session."""

    __slots__ = ()
    scenarios = SESSION_SCENARIOS
    command = "python3 dev.py sim --store sessions"

    def world(self) -> ScenarioRun:
        return SessionRun(self.scenarios[self.scenario], self.weathers[self.weather], self.seed)


class RowSpec(RunSpec):
    """A run on a server that notices lapses only when it is asked, as a database does."""

    __slots__ = ()
    command = "python3 dev.py sim --store rows"

    def world(self) -> ScenarioRun:
        return RowRun(self.scenarios[self.scenario], self.weathers[self.weather], self.seed)


STORES: dict[str, type[RunSpec]] = {"claims": RunSpec, "sessions": SessionSpec, "rows": RowSpec}
"""By what lapses on the simulated server: each claim by itself, or all claims of a session; or each claim
when somebody asks.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judges' findings in one run."""

    spec: RunSpec
    violations: Sequence[Violation]
    grants: int
    faults: int
    virtual: float

    def __str__(self) -> str:
        first = self.violations[0] if self.violations else "no violation"
        more = f" (and {len(self.violations) - 1} more)" if len(self.violations) > 1 else ""
        return f"{first}{more}\n    {self.spec.replay}"


def simulate(spec: RunSpec, *, trace: bool = False) -> Verdict:
    """Run one spec and judge it; with `trace`, print what happened, line by line."""
    run = spec.world()
    violations = run.execute()
    history = run.cluster.history
    if trace:
        for record in sorted(history, key=lambda record: record.time):
            _say(str(record))
    grants = len({(record.attempt, record.token) for record in history if record.call == "grant"})
    faults = sum(record.call == "fault" for record in history)
    return Verdict(spec, violations, grants, faults, run.cluster.world.time)


def campaign(specs: Iterable[RunSpec]) -> list[Verdict]:
    """Run many; the verdicts, guilty or not."""
    return [simulate(spec) for spec in specs]


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def main(argv: Sequence[str], spec: type[RunSpec] = RunSpec) -> int:
    """Run the seeds that the command line names; 1 if any broke a promise."""
    parser = argparse.ArgumentParser(prog=spec.command, description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone, with its trace")
    if spec is RunSpec:
        parser.add_argument("--store", choices=STORES, default="claims", help="what lapses on the server")
        spec = STORES[parser.parse_known_args(argv)[0].store]
    parser.add_argument("--scenario", choices=spec.scenarios)
    parser.add_argument("--weather", choices=spec.weathers)
    options = parser.parse_args(argv)
    if options.seed is not None:
        verdict = simulate(spec.of(options.seed, options.scenario, options.weather), trace=True)
        _say("\n".join(["", *map(str, verdict.violations), str(verdict)]))
        return 1 if verdict.violations else 0
    began = time.perf_counter()
    seeds = range(options.first, options.first + options.seeds)
    verdicts = campaign(spec.of(seed, options.scenario, options.weather) for seed in seeds)
    took = time.perf_counter() - began
    guilty = [verdict for verdict in verdicts if verdict.violations]
    for verdict in guilty[:20]:
        _say(str(verdict)[:600])
    _say(
        f"{len(verdicts)} seeds, {sum(v.grants for v in verdicts)} grants, {sum(v.faults for v in verdicts)} "
        f"faults, {sum(v.virtual for v in verdicts) / 3600:.1f} h of virtual time in {took:.1f} s "
        f"({1000 * took / max(1, len(verdicts)):.1f} ms a seed); {len(guilty)} with violations"
    )
    rules = Counter(rule for verdict in guilty for rule in {found.rule for found in verdict.violations})
    if rules:
        _say(f"seeds that broke each rule: {dict(rules)}")
    return 1 if guilty else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
