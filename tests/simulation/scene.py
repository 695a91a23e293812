"""A scene of a directed simulation: a cluster, jobs on it, and how long they may take."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from interlock.testing.faults import Faults
from interlock.testing.simulated_cluster import ClientProcess, SimulatedCluster
from interlock.testing.world import SimulatedJob

TTL = 3.0
SCENES: list[Scene] = []


class Scene:
    """A cluster, and jobs on it. `exclusive`: no two leases may be valid at once."""

    def __init__(
        self,
        seed: int = 1,
        ttl: float = TTL,
        faults: Faults = Faults(),  # noqa: B008  (frozen)
        *,
        exclusive: bool = True,
    ) -> None:
        self.cluster = SimulatedCluster(seed, ttl=ttl, faults=faults)
        self.world = self.cluster.world
        self.exclusive = exclusive
        SCENES.append(self)

    def start(self, node: ClientProcess, work: Coroutine[Any, Any, None]) -> SimulatedJob:
        return node.runtime.spawn("work", work)

    def play(self, seconds: float, *jobs: SimulatedJob) -> None:
        """Let time pass; with jobs, until they have ended."""
        until = self.world.time + seconds
        self.world.run(until, (lambda: not any(job.alive() for job in jobs)) if jobs else None)
        assert not any(job.alive() for job in jobs), f"still at work after {seconds} s"
        assert not self.world.failures, self.world.failures
