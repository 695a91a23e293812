"""Runs of the quorum under seeds: who works, in which weather, and what is promised then.

python -m tests.redlock.simulation.scenario_run --seeds 2000
python -m tests.redlock.simulation.scenario_run --scenario lock --weather tempest --seed 1234      # replays one
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace

from interlock.errors import InterlockError
from interlock.testing.checkers import Terms
from interlock.testing.scenario_run import Scenario, ScenarioRun
from interlock.testing.scenarios import SCENARIOS as ALL
from interlock.testing.simulated_cluster import ClientProcess, SimulatedCluster
from interlock.testing.simulation import RunSpec, main
from interlock.testing.weather import Nemesis
from tests.redlock.simulation.quorum_cluster import QuorumCluster
from tests.redlock.simulation.weather import WEATHERS, QuorumNemesis


async def long(run: ScenarioRun, node: ClientProcess) -> None:
    """A lock that is held for several ttls: it lives by its renewals."""
    limit = run.acquire_timeout()
    async with run.inside(node, node.client.lock("r", timeout=limit), "r", limit) as lease:
        for _ in range(run.random.randrange(1, 5)):
            await run.work(node, lease)
            await run.idle(node, 1.5)


SCENARIOS: dict[str, Scenario] = {
    "long": Scenario(long, workers=1),
    **{
        name: replace(ALL[name], workers=1)
        for name in ("lock", "plain", "rwlock", "downgrade", "rlock", "multilock", "election")
    },
}


class QuorumScenarioRun(ScenarioRun):
    """A scenario on five nodes."""

    cluster_type: type[SimulatedCluster] = QuorumCluster
    nemesis_type: type[Nemesis] = QuorumNemesis

    def __init__(self, scenario: Scenario, weather: str, seed: int) -> None:
        super().__init__(scenario, WEATHERS[weather], seed)
        self.cluster.tidy = False

    def _end(self) -> None:
        """Somebody goes on for a while, so that it is noticed who has no vote; then all is over."""
        world = self.cluster.world
        living = [node for node in self.cluster.processes if not node.runtime.dead]
        job = living[0].runtime.spawn("last", self._go_on(living[0]))
        world.run(world.time + 60.0, lambda: not job.alive())
        super()._end()

    async def _go_on(self, node: ClientProcess) -> None:
        until = self.cluster.world.time + 3.0 + 1.5 * self.cluster.ttl
        while self.cluster.world.time < until:
            try:
                async with node.client.lock("last", timeout=2.0):
                    await node.runtime.sleep(0.5)
            except InterlockError:  # it slept while too many clocks jumped: they do not count for a ttl
                await node.runtime.sleep(0.1)

    @property
    def terms(self) -> Terms:
        """After the last fault nodes are looked for, and the forgetful are in quarantine for more than a ttl."""
        return replace(super().terms, progress=super().terms.progress + 3.0 + 2 * self.cluster.ttl)


class QuorumRunSpec(RunSpec):
    """Which run of the quorum a seed means."""

    __slots__ = ()
    scenarios = SCENARIOS
    weathers = WEATHERS
    command = "python3 -m tests.redlock.simulation.scenario_run"

    def world(self) -> QuorumScenarioRun:
        return QuorumScenarioRun(SCENARIOS[self.scenario], self.weather, self.seed)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # what a jumped clock is worth to an operator
    sys.exit(main(sys.argv[1:], QuorumRunSpec))
