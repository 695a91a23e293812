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
from interlock.testing.stage import Node, Stage
from interlock.testing.weather import Nemesis, Weather
from interlock.testing.world import Cancelled, SimulatedJob

RAGE = 5.0  # seconds of virtual time in which things go wrong
TTLS = (0.6, 1.0, 2.5)
PATIENCE = (0.15, 1.0)  # seconds after which a request without an answer is given up

Round = Callable[["Play", Node], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What each worker does, again and again, and how many there are."""

    round: Round
    nodes: int = 3
    workers: int = 2  # in each process
    close: Round | None = None  # one last round, by one worker, when all has healed
    check: Callable[[Play], None] | None = None  # what must hold in the end
    usual: tuple[type[Exception], ...] = (AcquireTimeout,)  # errors that need no bad weather


class Play:
    """A scenario in a weather, under a seed."""

    stage_type: type[Stage] = Stage
    nemesis_type: type[Nemesis] = Nemesis

    def __init__(self, scenario: Scenario, weather: Weather, seed: int) -> None:
        stage = self.stage_type(seed)
        stage.ttl = stage.random.choice(TTLS)
        stage.faults = replace(weather.faults, timeout=stage.random.choice(PATIENCE))
        stage.tidy = stage.server.fair = weather.mild
        self.stage = stage
        self.scenario = scenario
        self.weather = weather
        self.random = stage.random
        self.memory: dict[str, Any] = {}  # what the workers of a scenario share, outside the store
        self.jobs: list[SimulatedJob] = []
        self.closing = False
        self._nemesis = self.nemesis_type(stage, weather, lambda: self.jobs)

    # ---- running ------------------------------------------------------------------

    def run(self) -> list[Violation]:
        """Everything that went wrong."""
        stage, world = self.stage, self.stage.world
        for _ in range(self.scenario.nodes):
            node = stage.node()
            for number in range(self.scenario.workers):
                self.jobs.append(node.runtime.spawn(f"worker-{number + 1}", self._work(node)))
        self._nemesis.begin(RAGE)
        world.run(RAGE + 0.001)  # and healed
        self.closing = True
        if self.scenario.close is not None:
            self._close()
        world.run(RAGE + 2 * self.terms.progress, lambda: not any(job.alive() for job in self.jobs))
        self._end()
        found = judge(stage.history, self.terms)
        found += [Violation("died", world.time, f"{job!r}: {error!r}") for job, error in world.failures]
        world.close()
        return found

    @property
    def terms(self) -> Terms:
        """What is promised in this weather."""
        stage, weather = self.stage, self.weather
        return Terms(
            exclusive=weather.exclusive,
            heartbeat=max(1.1, stage.ttl / 2),
            progress=4.0 + 4 * stage.ttl + weather.faults.long + 2 * stage.faults.timeout,
        )

    async def _work(self, node: Node) -> None:
        """One worker: rounds until the weather is over, whatever it meets."""
        job = self.stage.world.running()
        while not self.closing:
            try:
                await self.scenario.round(self, node)
                await node.runtime.sleep(self.random.random() * 0.1 * self.stage.ttl)
            except Cancelled:
                job.uncancel()
            except (InterlockError, Breakdown) as error:
                if self.weather.mild and not isinstance(error, self.scenario.usual):
                    self.broken(node.name, f"{error!r} in {self.weather.name} weather")

    def _close(self) -> None:
        living = [node for node in self.stage.nodes if not node.runtime.dead]
        node = self.random.choice(living)
        assert self.scenario.close is not None

        async def close(last: Round) -> None:
            await last(self, node)

        self.jobs.append(node.runtime.spawn("closer", close(self.scenario.close)))

    def _end(self) -> None:
        """Close the clients, let lapse what the dead left, and see what is still there."""
        stage, world = self.stage, self.stage.world
        if self.scenario.check is not None:
            self.scenario.check(self)
        for node in stage.nodes:
            node.runtime.spawn("close", node.client.close())
        world.run(world.time + 3 * stage.ttl + 2 * self.weather.faults.long + 12.0)
        for process, resource, what in stage.left_behind():
            stage.history.add(process, "left", "fail", resource=resource, error=what)

    # ---- what rounds are made of ---------------------------------------------------

    def broken(self, process: str, what: str) -> None:
        """Write down that a promise was broken."""
        self.stage.history.add(process, "broken", "fail", error=what)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def patience(self) -> float | None:
        """A timeout: none, short or long."""
        ttl = self.stage.ttl
        return self.random.choice((None, 0.0, 0.2 * ttl, 1.5 * ttl, 4 * ttl))

    async def idle(self, node: Node, share: float = 0.3) -> None:
        """Let up to this share of a ttl pass."""
        await node.runtime.sleep(self.random.random() * share * self.stage.ttl)

    @asynccontextmanager
    async def inside(self, node: Node, lock: Any, name: str, limit: float | None) -> AsyncIterator[Any]:
        """`async with lock`, with both ends written down."""
        with node.calling("acquire", name, limit):
            held = await lock.__aenter__()
        try:
            yield held
        except BaseException as error:
            await lock.__aexit__(type(error), error, error.__traceback__)
            raise
        else:
            with node.calling("release", name):
                await lock.__aexit__(None, None, None)

    async def work(self, node: Node, lease: Lease, share: float = 0.3) -> None:
        """Read, think, and write back under a lease: the guarded resource is told the token each time."""
        guarded = self.stage.guarded(lease.resource)
        node.check(lease)
        value = self._told(node, lambda: guarded.read(lease.token))
        for _ in range(self.random.randrange(3)):
            await self.idle(node, share)
        node.check(lease)
        if self.chance(0.3):
            await self.idle(node, 0.05)  # between the check and the write: only the token helps here
            guarded.write(lease.token, value + 1, lease._claim.id)
        else:
            self._told(node, lambda: guarded.write(lease.token, value + 1, lease._claim.id))

    def _told(self, node: Node, tell: Callable[[], Any]) -> Any:
        """Right after a check a token cannot be stale, where two leases are never valid at once."""
        try:
            return tell()
        except StaleToken as error:
            if self.weather.exclusive:
                self.broken(node.name, f"{error!r} under a lease that is valid")
            raise
