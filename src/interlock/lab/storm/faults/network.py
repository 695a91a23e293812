"""What goes wrong on the way between clients and servers, whatever they speak."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from interlock.lab.storm.faults.fault import Fault, Strike
from interlock.testing.servers.proxy import Mode, Piece, Proxy

if TYPE_CHECKING:
    from interlock.lab.storm.workers.crew import Crew

MODES: dict[Mode, str] = {
    "mute": "requests lost",
    "deaf": "replies lost",
    "hole": "black hole",
    "half_open": "half-open connection",
    "cut": "connections reset",
    "late": "late packets",
}


def broken(ways: Sequence[Proxy], mode: Mode, seconds: float) -> None:
    """Break these ways in one manner for a while."""
    for way in ways:
        way.set(mode)
    time.sleep(seconds)
    for way in ways:
        way.set("pass")


class Way(Proxy):
    """A proxy before one server that can also lose a share of all pieces."""

    def __init__(self, port: int) -> None:
        self.share = 0.0  # of the pieces that are lost
        self._dice = Random(port)
        super().__init__(port, intercept=self._lose_some)

    def _lose_some(self, piece: Piece) -> bytes | None:
        """What follows upon a lost piece is lost as well, as it never arrives without what came before."""
        connection = piece.connection
        if piece.data and self.share and self._dice.random() < self.share:
            connection.label = "torn"
        return None if connection.label == "torn" else piece.data

    def mend(self) -> None:
        """Lose nothing any more, and reset the connections that have lost something."""
        self.share = 0.0
        for connection in self.connections:
            if connection.label == "torn":
                connection.reset()


def _strike(mode: Mode, how_many: Callable[[Random, int], int]) -> Strike:
    def strike(field: Any, crew: Crew, chance: Random) -> None:
        ways = chance.sample(field.ways, how_many(chance, len(field.ways)))
        broken(ways, mode, crew.ttl * chance.uniform(0.2, 1.4))

    return strike


def lose_a_third(field: Any, crew: Crew, chance: Random) -> None:
    """Of all that passes in either direction, 30 % does not arrive."""
    for way in field.ways:
        way.share = 0.3
    time.sleep(crew.ttl * chance.uniform(0.5, 1.5))
    for way in field.ways:
        way.mend()


def faults(how_many: Callable[[Random, int], int] = lambda chance, ways: 1) -> list[Fault]:
    """One fault for each manner in which a way can be broken; `how_many` ways at once, by chance."""
    modes = [Fault(name, "network", "E", _strike(mode, how_many), 1) for mode, name in MODES.items()]
    return [*modes, Fault("30 % lost", "network", "E", lose_a_third, 1)]
