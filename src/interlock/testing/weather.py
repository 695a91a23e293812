"""The faults of a run, as data, and the nemesis that causes them.

A weather says how often; `Nemesis` decides, by the seed, when and to whom. Everything it breaks it mends
again: after `heal` no fault is left, and everybody must get on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from interlock.testing.faults import Faults
from interlock.testing.simulated_cluster import ClientProcess, SimulatedCluster
from interlock.testing.simulated_runtime import SimulatedRuntime
from interlock.testing.world import SimulatedJob

LOSSY = Faults(lose_request=0.06, lose_reply=0.06, repeat=0.06, deafen=0.05)
SLOW = Faults(delay=0.15, repeat=0.05, long=1.5)
TEMPEST = Faults(
    lose_request=0.04, lose_reply=0.04, repeat=0.04, delay=0.05, deafen=0.05, break_down=0.02, long=2.0
)


@dataclass(frozen=True, slots=True)
class Weather:
    """How often each thing happens, times a second in all."""

    name: str
    faults: Faults = field(default_factory=Faults)
    pause: float = 0.0  # a process stops for up to three ttls
    kill: float = 0.0  # at most half of the processes die
    cancel: float = 0.0  # a waiting or working job is cancelled
    cut: float = 0.0  # a process loses the store for up to two ttls
    stall: float = 0.0  # the store answers nobody for up to a ttl
    evict: float = 0.0  # an operator removes the holders
    forget: float = 0.0  # the store restarts without its memory
    jump: float = 0.0  # the clock on which claims lapse jumps ahead
    jump_wall: float = 0.0  # the clock that floors the tokens jumps, either way

    @property
    def exclusive(self) -> bool:
        """Whether no two leases may be valid at once; where not, tokens carry it."""
        return not (self.forget or self.jump or self.evict)

    @property
    def mild(self) -> bool:
        """Whether a worker that lives and is not cancelled meets no error at all."""
        return self.name in ("calm", "cancelling", "dying")


WEATHERS = {
    weather.name: weather
    for weather in (
        Weather("calm"),
        Weather("lossy", LOSSY),
        Weather("slow", SLOW),
        Weather("stopping", pause=1.0),
        Weather("dying", kill=0.5),
        Weather("cancelling", cancel=6.0),
        Weather("cut", cut=0.7),
        Weather("stalling", stall=0.6),
        Weather("evicting", evict=1.0),
        Weather("breaking", Faults(break_down=0.3)),
        Weather("wall", LOSSY, jump_wall=2.0),
        Weather("amnesic", LOSSY, forget=0.5, pause=0.3),
        Weather("jumping", jump=0.4, pause=0.3),
        Weather("tempest", TEMPEST, pause=0.4, kill=0.1, cancel=1.0, cut=0.2, stall=0.1, jump_wall=0.3),
    )
}


class Nemesis:
    """Makes a weather."""

    def __init__(
        self, cluster: SimulatedCluster, weather: Weather, victims: Callable[[], list[SimulatedJob]]
    ) -> None:
        self._cluster = cluster
        self._weather = weather
        self._victims = victims
        self._runtime = SimulatedRuntime(cluster.world, "nemesis")
        self._kills = 0

    def begin(self, until: float) -> None:
        """Let it loose until the world's time is `until`; then everything is mended."""
        self._runtime.spawn("nemesis", self._rage(until))

    async def _rage(self, until: float) -> None:
        rates = [(getattr(self._weather, act.__name__), act) for act in self.acts()]
        total = sum(rate for rate, _ in rates)
        while total and self._cluster.world.time < until:
            pause = self._cluster.random.expovariate(total)
            await self._runtime.sleep(min(pause, until - self._cluster.world.time))
            if self._cluster.world.time < until:
                (act,) = self._cluster.random.choices([a for _, a in rates], [rate for rate, _ in rates])
                act()
        await self._runtime.sleep(max(0.0, until - self._cluster.world.time))
        self.heal()

    def acts(self) -> list[Callable[[], None]]:
        """All it can do; the weather says how often."""
        return [
            *(self.pause, self.kill, self.cancel, self.cut, self.stall, self.evict),
            *(self.forget, self.jump, self.jump_wall),
        ]

    def heal(self) -> None:
        """Mend everything but the dead."""
        for process in self._cluster.processes:
            process.link.heal()
            if process.runtime.paused:
                self._resume(process)
        self._cluster.history.add("nemesis", "heal", "ok")

    def _somebody(self) -> ClientProcess | None:
        living = [process for process in self._cluster.processes if not process.runtime.dead]
        return self._cluster.random.choice(living) if living else None

    def _say(self, what: str) -> None:
        self._cluster.history.add("", "fault", "invoke", error=what)

    def _later(self, most: float, mend: Callable[[], None]) -> None:
        async def wait() -> None:
            await self._runtime.sleep(self._cluster.random.random() * most)
            mend()

        self._runtime.spawn("mend", wait())

    # ---- faults, by the names of a Weather's fields ------------------------------

    def pause(self) -> None:
        process = self._somebody()
        if process is not None and not process.runtime.paused:
            process.pause()
            self._later(3 * self._cluster.ttl, lambda: self._resume(process))

    def _resume(self, process: ClientProcess) -> None:
        if process.runtime.paused and not process.runtime.dead:
            process.resume()

    def kill(self) -> None:
        process = self._somebody()
        if process is not None and 2 * (self._kills + 1) <= len(self._cluster.processes):
            self._kills += 1
            process.kill()

    def cancel(self) -> None:
        victims = [job for job in self._victims() if job.alive()]
        if victims:
            job = self._cluster.random.choice(victims)
            self._say(f"cancel {job!r}")
            job.cancel()

    def cut(self) -> None:
        process = self._somebody()
        if process is not None and not process.link.severed:
            process.link.cut()
            self._say(f"cut {process.name}")
            self._later(2 * self._cluster.ttl, lambda: self._mend(process))

    def _mend(self, process: ClientProcess) -> None:
        process.link.severed = False
        self._say(f"mend {process.name}")

    def stall(self) -> None:
        until = self._cluster.network.now() + self._cluster.random.random() * self._cluster.ttl
        self._say(f"stall until {until:.6f}")
        for process in self._cluster.processes:
            process.link.stalled_until = until

    def evict(self) -> None:
        async def operate() -> None:
            for name in list(self._cluster.server.space.queues):
                await self._cluster.server.store(self._runtime).evict(name, None, "nemesis")

        self._say("evict all holders")
        self._runtime.spawn("operator", operate())

    def forget(self) -> None:
        self._say("the store forgets everything")
        self._cluster.server.forget()

    def jump(self) -> None:
        seconds = self._cluster.random.random() * 3 * self._cluster.ttl
        self._say(f"the store's clock jumps {seconds:.3f} s ahead")
        self._cluster.server.jump(seconds)

    def jump_wall(self) -> None:
        seconds = (self._cluster.random.random() - 0.5) * 7200
        self._say(f"the store's wall clock jumps by {seconds:.0f} s")
        self._cluster.server.jump_wall(seconds)
