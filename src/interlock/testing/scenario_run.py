"""One run of one scenario: its crew at work, the weather against it, then peace, then the judges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from interlock._core.lease import Lease
from interlock.errors import AcquireTimeout, InterlockError, StaleToken
from interlock.testing.checkers import Terms, Violation, judge
from interlock.testing.faults import Breakdown
from interlock.testing.simulated_cluster import ClientProcess, RowCluster, SessionCluster, SimulatedCluster
from interlock.testing.weather import Nemesis, Weather
from interlock.testing.world import Cancelled, SimulatedJob

RAGE_S = 5.0  # seconds of virtual time in which things go wrong
TTLS = (0.6, 1.0, 2.5)
PATIENCE = (0.15, 1.0)  # seconds after which a request without an answer is given up

Round = Callable[["ScenarioRun", ClientProcess], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """The round that each worker repeats, and how many workers there are."""

    round: Round
    processes: int = 3
    workers: int = 2  # in each process
    close: Round | None = None  # one last round, by one worker, when all has healed
    check: Callable[[ScenarioRun], None] | None = None  # what must hold in the end
    usual: tuple[type[Exception], ...] = (AcquireTimeout,)  # errors that need no bad weather


class ScenarioRun:
    """A scenario in a weather, under a seed."""

    cluster_type: type[SimulatedCluster] = SimulatedCluster
    nemesis_type: type[Nemesis] = Nemesis

    def __init__(self, scenario: Scenario, weather: Weather, seed: int) -> None:
        cluster = self.cluster_type(seed)
        cluster.ttl = cluster.random.choice(TTLS)
        cluster.faults = replace(weather.faults, timeout=cluster.random.choice(PATIENCE))
        cluster.tidy = cluster.server.fair = weather.mild
        self.cluster = cluster
        self.scenario = scenario
        self.weather = weather
        self.random = cluster.random
        self.memory: dict[str, Any] = {}  # what the workers of a scenario share, outside the store
        self.jobs: list[SimulatedJob] = []
        self.closing = False
        self._nemesis = self.nemesis_type(cluster, weather, lambda: self.jobs)

    # ---- running ------------------------------------------------------------------

    def execute(self) -> list[Violation]:
        """Run the scenario to its end and return every violation."""
        cluster, world = self.cluster, self.cluster.world
        for _ in range(self.scenario.processes):
            process = cluster.add_process()
            for number in range(self.scenario.workers):
                self.jobs.append(process.runtime.spawn(f"worker-{number + 1}", self._work(process)))
        self._nemesis.begin(RAGE_S)
        world.run(RAGE_S + 0.001)  # and healed
        self.closing = True
        if self.scenario.close is not None:
            self._close()
        world.run(RAGE_S + 2 * self.terms.progress, lambda: not any(job.alive() for job in self.jobs))
        self._end()
        found = judge(cluster.history, self.terms)
        found += [Violation("died", world.time, f"{job!r}: {error!r}") for job, error in world.failures]
        world.close()
        return found

    @property
    def terms(self) -> Terms:
        """The promises that hold in this weather."""
        cluster, weather = self.cluster, self.weather
        return Terms(
            exclusive=weather.exclusive,
            heartbeat=max(1.1, cluster.ttl / 2),
            progress=4.0 + 4 * cluster.outlives + weather.faults.long + 2 * cluster.faults.timeout,
        )

    async def _work(self, process: ClientProcess) -> None:
        """One worker: rounds until the weather is over, whatever it meets."""
        job = self.cluster.world.running()
        while not self.closing:
            try:
                await self.scenario.round(self, process)
                await process.runtime.sleep(self.random.random() * 0.1 * self.cluster.ttl)
            except Cancelled:
                job.uncancel()
            except (InterlockError, Breakdown) as error:
                if self.weather.mild and not isinstance(error, self.scenario.usual):
                    self.broken(process.name, f"{error!r} in {self.weather.name} weather")

    def _close(self) -> None:
        living = [process for process in self.cluster.processes if not process.runtime.dead]
        process = self.random.choice(living)
        assert self.scenario.close is not None

        async def close(last: Round) -> None:
            await last(self, process)

        self.jobs.append(process.runtime.spawn("closer", close(self.scenario.close)))

    def _end(self) -> None:
        """Close the clients, let lapse what the dead left, and see what is still there."""
        cluster, world = self.cluster, self.cluster.world
        if self.scenario.check is not None:
            self.scenario.check(self)
        for process in cluster.processes:
            process.runtime.spawn("close", process.client.close())
        world.run(world.time + 3 * cluster.outlives + 2 * self.weather.faults.long + 12.0)
        for where, resource, what in cluster.left_behind():
            cluster.history.add(where, "left", "fail", resource=resource, error=what)

    # ---- what rounds are made of ---------------------------------------------------

    def broken(self, process: str, what: str) -> None:
        """Write down that a promise was broken."""
        self.cluster.history.add(process, "broken", "fail", error=what)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def acquire_timeout(self) -> float | None:
        """A timeout for an acquire: none, short or long."""
        ttl = self.cluster.ttl
        return self.random.choice((None, 0.0, 0.2 * ttl, 1.5 * ttl, 4 * ttl))

    async def idle(self, process: ClientProcess, share: float = 0.3) -> None:
        """Let up to this share of a ttl pass."""
        await process.runtime.sleep(self.random.random() * share * self.cluster.ttl)

    @asynccontextmanager
    async def inside(
        self, process: ClientProcess, lock: Any, name: str, limit: float | None
    ) -> AsyncIterator[Any]:
        """`async with lock`, with both ends written down."""
        with process.calling("acquire", name, limit):
            held = await lock.__aenter__()
        try:
            yield held
        except BaseException as error:
            await lock.__aexit__(type(error), error, error.__traceback__)
            raise
        else:
            with process.calling("release", name):
                await lock.__aexit__(None, None, None)

    async def work(self, process: ClientProcess, lease: Lease, share: float = 0.3) -> None:
        """Read, think, and write back under a lease: the guarded resource is told the token each time."""
        guarded = self.cluster.guarded(lease.resource)
        process.check(lease)
        value = self._unless_stale(process, lambda: guarded.read(lease.token))
        for _ in range(self.random.randrange(3)):
            await self.idle(process, share)
        process.check(lease)
        if self.chance(0.3):
            await self.idle(process, 0.05)  # between the check and the write: only the token helps here
            guarded.write(lease.token, value + 1, lease._claim.id)
        else:
            self._unless_stale(process, lambda: guarded.write(lease.token, value + 1, lease._claim.id))

    def _unless_stale(self, process: ClientProcess, access: Callable[[], Any]) -> Any:
        """Right after a check a token cannot be stale, where two leases are never valid at once."""
        try:
            return access()
        except StaleToken as error:
            if self.weather.exclusive:
                self.broken(process.name, f"{error!r} under a lease that is valid")
            raise


class RowRun(ScenarioRun):
    """A scenario on a server that notices lapses only when it is asked."""

    cluster_type = RowCluster


class SessionRun(ScenarioRun):
    """A scenario on a server that keeps sessions."""

    cluster_type = SessionCluster
