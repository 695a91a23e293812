"""What goes wrong in a run, as data, and who makes it go wrong.

A weather says how often; `Nemesis` decides, by the seed, when and to whom. Everything it breaks it mends again:
after `heal` no fault is left, and everybody must get on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from interlock.testing.faults import Faults
from interlock.testing.simulated import Simulated
from interlock.testing.stage import Node, Stage
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
        """Whether who lives and is not cancelled meets no error at all."""
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

    def __init__(self, stage: Stage, weather: Weather, victims: Callable[[], list[SimulatedJob]]) -> None:
        self._stage = stage
        self._weather = weather
        self._victims = victims
        self._runtime = Simulated(stage.world, "nemesis")
        self._kills = 0

    def begin(self, until: float) -> None:
        """Let it loose until the world's time is `until`; then everything is mended."""
        self._runtime.spawn("nemesis", self._rage(until))

    async def _rage(self, until: float) -> None:
        rates = [(getattr(self._weather, act.__name__), act) for act in self.acts()]
        total = sum(rate for rate, _ in rates)
        while total and self._stage.world.time < until:
            pause = self._stage.random.expovariate(total)
            await self._runtime.sleep(min(pause, until - self._stage.world.time))
            if self._stage.world.time < until:
                (act,) = self._stage.random.choices([a for _, a in rates], [rate for rate, _ in rates])
                act()
        await self._runtime.sleep(max(0.0, until - self._stage.world.time))
        self.heal()

    def acts(self) -> list[Callable[[], None]]:
        """All it can do; the weather says how often."""
        return [
            *(self.pause, self.kill, self.cancel, self.cut, self.stall, self.evict),
            *(self.forget, self.jump, self.jump_wall),
        ]

    def heal(self) -> None:
        """Mend everything but the dead."""
        for node in self._stage.nodes:
            node.link.heal()
            if node.runtime.paused:
                self._resume(node)
        self._stage.history.add("nemesis", "heal", "ok")

    def _somebody(self) -> Node | None:
        living = [node for node in self._stage.nodes if not node.runtime.dead]
        return self._stage.random.choice(living) if living else None

    def _say(self, what: str) -> None:
        self._stage.history.add("", "fault", "invoke", error=what)

    def _later(self, most: float, mend: Callable[[], None]) -> None:
        async def wait() -> None:
            await self._runtime.sleep(self._stage.random.random() * most)
            mend()

        self._runtime.spawn("mend", wait())

    # ---- faults, by the names of a Weather's fields ------------------------------

    def pause(self) -> None:
        node = self._somebody()
        if node is not None and not node.runtime.paused:
            node.pause()
            self._later(3 * self._stage.ttl, lambda: self._resume(node))

    def _resume(self, node: Node) -> None:
        if node.runtime.paused and not node.runtime.dead:
            node.resume()

    def kill(self) -> None:
        node = self._somebody()
        if node is not None and 2 * (self._kills + 1) <= len(self._stage.nodes):
            self._kills += 1
            node.kill()

    def cancel(self) -> None:
        victims = [job for job in self._victims() if job.alive()]
        if victims:
            job = self._stage.random.choice(victims)
            self._say(f"cancel {job!r}")
            job.cancel()

    def cut(self) -> None:
        node = self._somebody()
        if node is not None and not node.link.severed:
            node.link.cut()
            self._say(f"cut {node.name}")
            self._later(2 * self._stage.ttl, lambda: self._mend(node))

    def _mend(self, node: Node) -> None:
        node.link.severed = False
        self._say(f"mend {node.name}")

    def stall(self) -> None:
        until = self._stage.network.now() + self._stage.random.random() * self._stage.ttl
        self._say(f"stall until {until:.6f}")
        for node in self._stage.nodes:
            node.link.stalled_until = until

    def evict(self) -> None:
        async def operate() -> None:
            for name in list(self._stage.server.space.queues):
                await self._stage.server.store(self._runtime).evict(name, None, "nemesis")

        self._say("evict all holders")
        self._runtime.spawn("operator", operate())

    def forget(self) -> None:
        self._say("the store forgets everything")
        self._stage.server.forget()

    def jump(self) -> None:
        seconds = self._stage.random.random() * 3 * self._stage.ttl
        self._say(f"the store's clock jumps {seconds:.3f} s ahead")
        self._stage.server.jump(seconds)

    def jump_wall(self) -> None:
        seconds = (self._stage.random.random() - 0.5) * 7200
        self._say(f"the store's wall clock jumps by {seconds:.0f} s")
        self._stage.server.jump_wall(seconds)
