"""What goes wrong with clients, whatever their store."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Any

from interlock.lab.storm.faults.fault import Fault

if TYPE_CHECKING:
    from interlock.lab.storm.workers.crew import Crew

HOUR = 3600.0


def stop(field: Any, crew: Crew, chance: Random) -> None:
    """Stopped past its ttl, or past its session where that keeps its claims, then run again.

    Its next write must be refused, if another has written.
    """
    victim = chance.choice(crew.workers)
    victim.freeze()
    time.sleep(getattr(field, "session", crew.ttl) * chance.uniform(1.05, 1.6))
    victim.thaw()


def kill(field: Any, crew: Crew, chance: Random) -> None:
    """Killed wherever it is; another comes in its place."""
    crew.replace(chance.choice(crew.workers))


def block(field: Any, crew: Crew, chance: Random) -> None:
    """Something keeps an event loop busy for longer than a ttl: its leases are renewed all the same."""
    victims = [worker for worker in crew.workers if worker.asynchronous]
    chance.choice(victims).tell("block", seconds=crew.ttl * chance.uniform(1.1, 2.0))


def move_clock(field: Any, crew: Crew, chance: Random) -> None:
    """The wall clock of one client is set by an hour, forward or back, while it works."""
    victims = [worker for worker in crew.workers if worker.clock_moves]
    if victims:
        victim = chance.choice(victims)
        victim.jump(-HOUR if victim.ahead > 0 else HOUR if victim.ahead < 0 else chance.choice((-HOUR, HOUR)))


FAULTS = (
    Fault("client stopped", "client", "E", stop),
    Fault("client killed", "client", "E", kill),
    Fault("loop blocked", "client", "E", block, 1),
    Fault("client's clock moved", "client", "E", move_clock, 1),
)
