"""Runs of the quorum under seeds: who works, in which weather, and what is promised then.

python -m tests.redlock.simulation.play --seeds 2000
python -m tests.redlock.simulation.play --scenario lock --weather tempest --seed 1234      # replays one
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from interlock.errors import InterlockError
from interlock.testing.checkers import Terms, Violation
from interlock.testing.play import Play, Scenario
from interlock.testing.scenarios import SCENARIOS as ALL
from interlock.testing.stage import Node, Stage
from interlock.testing.weather import Nemesis
from tests.redlock.simulation.stage import QuorumStage
from tests.redlock.simulation.weather import WEATHERS, QuorumNemesis


async def long(play: Play, node: Node) -> None:
    """A lock that is held for several ttls: it lives by its renewals."""
    limit = play.patience()
    async with play.inside(node, node.client.lock("r", timeout=limit), "r", limit) as lease:
        for _ in range(play.random.randrange(1, 5)):
            await play.work(node, lease)
            await play.idle(node, 1.5)


SCENARIOS: dict[str, Scenario] = {
    "long": Scenario(long, workers=1),
    **{
        name: replace(ALL[name], workers=1)
        for name in ("lock", "plain", "rwlock", "downgrade", "rlock", "multilock", "election")
    },
}


class QuorumPlay(Play):
    """A scenario on five nodes."""

    stage_type: type[Stage] = QuorumStage
    nemesis_type: type[Nemesis] = QuorumNemesis

    def __init__(self, scenario: Scenario, weather: str, seed: int) -> None:
        super().__init__(scenario, WEATHERS[weather], seed)
        self.stage.tidy = False

    def _end(self) -> None:
        """Somebody goes on for a while, so that it is noticed who has no vote; then all is over."""
        world = self.stage.world
        living = [node for node in self.stage.nodes if not node.runtime.dead]
        job = living[0].runtime.spawn("last", self._go_on(living[0]))
        world.run(world.time + 60.0, lambda: not job.alive())
        super()._end()

    async def _go_on(self, node: Node) -> None:
        until = self.stage.world.time + 3.0 + 1.5 * self.stage.ttl
        while self.stage.world.time < until:
            try:
                async with node.client.lock("last", timeout=2.0):
                    await node.runtime.sleep(0.5)
            except InterlockError:  # it slept while too many clocks jumped: they do not count for a ttl
                await node.runtime.sleep(0.1)

    @property
    def terms(self) -> Terms:
        """After the last fault nodes are looked for, and the forgetful are in quarantine for more than a ttl."""
        return replace(super().terms, progress=super().terms.progress + 3.0 + 2 * self.stage.ttl)


@dataclass(frozen=True, slots=True)
class Plot:
    """Which run a seed means."""

    scenario: str
    weather: str
    seed: int

    @classmethod
    def of(cls, seed: int, scenario: str | None = None, weather: str | None = None) -> Plot:
        scenarios, weathers = list(SCENARIOS), list(WEATHERS)
        return cls(
            scenario or scenarios[seed % len(scenarios)],
            weather or weathers[seed // len(scenarios) % len(weathers)],
            seed,
        )

    def play(self) -> QuorumPlay:
        return QuorumPlay(SCENARIOS[self.scenario], self.weather, self.seed)

    @property
    def replay(self) -> str:
        return (
            f"python3 -m tests.redlock.simulation.play --scenario {self.scenario} --weather {self.weather} "
            f"--seed {self.seed}"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judges found in one run."""

    plot: Plot
    violations: Sequence[Violation]
    grants: int
    faults: int
    virtual: float

    def __str__(self) -> str:
        first = self.violations[0] if self.violations else "no violation"
        more = f" (and {len(self.violations) - 1} more)" if len(self.violations) > 1 else ""
        return f"{first}{more}\n    {self.plot.replay}"


def simulate(plot: Plot, *, trace: bool = False) -> Verdict:
    """Run one plot and judge it; with `trace`, print what happened, line by line."""
    play = plot.play()
    violations = play.run()
    history = play.stage.history
    if trace:
        for record in sorted(history, key=lambda record: record.time):
            print(record)
    grants = sum(record.call == "grant" for record in history)
    faults = sum(record.call == "fault" for record in history)
    return Verdict(plot, violations, grants, faults, play.stage.world.time)


def campaign(plots: Iterable[Plot]) -> list[Verdict]:
    """Run many; the verdicts, guilty or not."""
    return [simulate(plot) for plot in plots]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tests.redlock.simulation.play")
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone, with its trace")
    parser.add_argument("--scenario", choices=SCENARIOS)
    parser.add_argument("--weather", choices=WEATHERS)
    options = parser.parse_args(argv)
    if options.seed is not None:
        verdict = simulate(Plot.of(options.seed, options.scenario, options.weather), trace=True)
        print("\n".join(["", *map(str, verdict.violations), str(verdict)]))
        return 1 if verdict.violations else 0
    logging.disable(logging.WARNING)  # what a jumped clock is worth to an operator
    began = time.perf_counter()
    seeds = range(options.first, options.first + options.seeds)
    verdicts = campaign(Plot.of(seed, options.scenario, options.weather) for seed in seeds)
    took = time.perf_counter() - began
    guilty = [verdict for verdict in verdicts if verdict.violations]
    for verdict in guilty[:20]:
        print(str(verdict)[:600])
    print(
        f"{len(verdicts)} seeds, {sum(v.grants for v in verdicts)} grants, {sum(v.faults for v in verdicts)} faults, "
        f"{sum(v.virtual for v in verdicts) / 3600:.1f} h of virtual time in {took:.1f} s "
        f"({1000 * took / max(1, len(verdicts)):.1f} ms a seed); {len(guilty)} with violations"
    )
    rules = Counter(
        rule for verdict in guilty for rule in {violation.rule for violation in verdict.violations}
    )
    if rules:
        print("seeds that broke each rule:", dict(rules))
    return 1 if guilty else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
