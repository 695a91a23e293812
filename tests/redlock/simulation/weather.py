"""What happens to a quorum, as data, and who makes it happen. No more than a minority loses its memory at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from interlock.testing.faults import Faults
from interlock.testing.simulated_quorum import SimulatedNode
from interlock.testing.weather import LOSSY, SLOW, TEMPEST, Nemesis, Weather
from tests.redlock.simulation.quorum_cluster import SIZE, QuorumCluster

MINORITY = (SIZE - 1) // 2


@dataclass(frozen=True, slots=True)
class QuorumWeather(Weather):
    """How often each thing happens, times a second in all."""

    crash: float = 0.0  # a node is killed and comes back, with its memory if it is durable
    flush: float = 0.0  # a node is emptied
    roll_back: float = 0.0  # a node is killed and comes back with what it had saved a while ago
    hang: float = 0.0  # a node answers nobody for up to two ttls, then everybody
    jump_node: float = 0.0  # a node's clock jumps ahead, or back
    leap: float = 0.0  # ... far, and every client has seen it before

    @property
    def exclusive(self) -> bool:
        return not (self.jump_node or self.evict)


WEATHERS = {
    weather.name: weather
    for weather in (
        QuorumWeather("calm"),
        QuorumWeather("lossy", LOSSY),
        QuorumWeather("slow", SLOW),
        QuorumWeather("stopping", pause=1.0),
        QuorumWeather("dying", kill=0.5),
        QuorumWeather("cancelling", cancel=6.0),
        QuorumWeather("cut", cut=2.0),
        QuorumWeather("evicting", evict=1.0),
        QuorumWeather("wall", LOSSY, jump_wall=2.0),
        QuorumWeather("crashing", Faults(delay=0.03), crash=1.5, pause=0.3),
        QuorumWeather("forgetting", Faults(delay=0.03), flush=1.0, roll_back=1.0, pause=0.3),
        QuorumWeather("torn", LOSSY, flush=1.0, roll_back=0.5, cut=3.0, pause=0.3),
        QuorumWeather("sluggish", Faults(delay=0.3, lose_reply=0.1, long=3.0)),
        QuorumWeather("hanging", hang=1.5, pause=0.3),
        QuorumWeather("jumping", LOSSY, jump_node=1.5, pause=0.3),
        QuorumWeather("leaping", leap=1.5, pause=0.3),
        QuorumWeather(
            "tempest",
            TEMPEST,
            pause=0.4,
            kill=0.1,
            cancel=1.0,
            cut=0.5,
            jump_wall=0.3,
            crash=0.5,
            flush=0.3,
            roll_back=0.3,
            hang=0.5,
        ),
    )
}


class QuorumNemesis(Nemesis):
    """Makes a weather for a quorum."""

    _cluster: QuorumCluster

    def acts(self) -> list[Callable[[], None]]:
        return [
            *(self.pause, self.kill, self.cancel, self.cut, self.evict, self.jump_wall),
            *(self.crash, self.flush, self.roll_back, self.hang, self.jump_node, self.leap),
        ]

    def heal(self) -> None:
        for links in self._cluster.ways.values():
            for link in links:
                link.heal()
        for server in self._cluster.servers:
            server.hung_until = 0.0
            if not server.up:
                server.start()
        super().heal()

    def _server(self) -> SimulatedNode:
        return self._cluster.random.choice(self._cluster.servers)

    def _spare(self, server: SimulatedNode) -> bool:
        """Whether it may lose its memory: a majority keeps its own."""
        lost = [
            one
            for one in self._cluster.servers
            if one is not server and not (one.memory.votes and (one.up or one.memory.durable))
        ]
        return len(lost) < MINORITY

    # ---- faults, by the names of a weather's fields --------------------------------

    def cut(self) -> None:
        """A process loses one node, or several."""
        process = self._somebody()
        if process is None:
            return
        links = self._cluster.random.sample(
            self._cluster.ways[process.name], self._cluster.random.randrange(1, 4)
        )
        for link in links:
            link.cut()
        self._say(f"cut {process.name} from {len(links)} nodes")

        def mend() -> None:
            for link in links:
                link.severed = False

        self._later(2 * self._cluster.ttl, mend)

    def evict(self) -> None:
        async def operate() -> None:
            living = [
                node for node in self._cluster.processes if not node.runtime.dead and not node.runtime.paused
            ]
            for name in {name for server in self._cluster.servers for name in server.memory.claims}:
                await living[0].core.store.evict(name, None, "nemesis")

        self._say("evict all holders")
        living = [
            node for node in self._cluster.processes if not node.runtime.dead and not node.runtime.paused
        ]
        if living:
            living[0].runtime.spawn("operator", operate())

    def jump_wall(self) -> None:
        process = self._somebody()
        if process is not None:
            seconds = (self._cluster.random.random() - 0.5) * 7200
            self._say(f"the wall clock of {process.name} jumps by {seconds:.0f} s")
            self._cluster.walls[process.name] += seconds

    def crash(self) -> None:
        server = self._server()
        if server.up and (server.memory.durable or self._spare(server)):
            self._say(f"{server.label} crashes, {'durable' if server.memory.durable else 'and forgets'}")
            server.crash()
            self._later(self._cluster.ttl, lambda: None if server.up else server.start())

    def flush(self) -> None:
        server = self._server()
        if self._spare(server):
            self._say(f"{server.label} is emptied")
            server.flush()

    def roll_back(self) -> None:
        """What it saved is up to a ttl old when it crashes."""
        server = self._server()
        if server.memory.durable:
            return
        server.save()

        def crash() -> None:
            if server.up and self._spare(server):
                self._say(f"{server.label} crashes and comes back with old numbers")
                server.crash()
                server.start(saved=True)

        self._later(self._cluster.ttl, crash)

    def hang(self) -> None:
        server = self._server()
        seconds = self._cluster.random.random() * 2 * self._cluster.ttl
        self._say(f"{server.label} hangs for {seconds:.3f} s")
        server.hang(seconds)

    def jump_node(self) -> None:
        server = self._server()
        seconds = (self._cluster.random.random() - 0.25) * 3 * self._cluster.ttl
        self._say(f"the clock of {server.label} jumps by {seconds:.3f} s")
        server.jump(seconds)

    def leap(self) -> None:
        """Everybody who has heard the node's clock before finds out: exclusion holds."""
        server = self._server()
        place = self._cluster.servers.index(server)
        if all(members.clocks[place].offset is not None for members in self._cluster.members.values()):
            seconds = (0.3 + self._cluster.random.random()) * 3 * self._cluster.ttl
            self._say(f"the clock of {server.label} leaps {seconds:.3f} s ahead")
            server.jump(seconds)
