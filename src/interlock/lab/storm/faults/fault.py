"""What a fault is, and what is promised while it lasts.

E: no two valid leases overlap. f: they may overlap, and tokens carry it. L: likewise, as a documented limit.
R: some calls are refused, none is granted wrongly. Tokens and counters hold in all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from interlock.lab.storm.workers.crew import Crew

Promise = Literal["E", "f", "L", "R"]
Strike = Callable[[Any, "Crew", Random], None]
Row = Literal["client", "network", "server", "amnesia", "clock", "failover", "cluster", "refusal"]

ROWS: dict[Row, str] = {
    "client": "a client is killed, stopped past its ttl or blocked; its wall clock jumps",
    "network": "requests or replies are lost, late or cut; a connection is half open",
    "server": "a server freezes, ends connections, or is killed and comes back",
    "amnesia": "a server loses its memory: restarted empty, flushed, evicting, tables emptied",
    "clock": "the clock of a server jumps",
    "failover": "another server takes over, with the last writes or without",
    "cluster": "a leader dies, a member is cut off, a majority is gone",
    "refusal": "a server refuses: read-only, out of connections, no disk, unknown scripts",
}
"""The rows of the published matrix."""

CONNECT_S = 0.5  # seconds that a worker gives a server to be connected to, beside the timeout of its call


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong, from its beginning until it has healed."""

    name: str
    row: Row
    promise: Promise | Callable[[], Promise]
    """A function where the release of the server decides."""
    strike: Strike
    weight: int = 2
    """How often, against the others."""
    slow: float = 0.0
    """Seconds that its promise and progress may take beyond the usual."""

    def promised(self) -> Promise:
        return self.promise() if callable(self.promise) else self.promise


class Deployment(Protocol):
    """Servers under one name."""

    kind: str
    settles: float
    """Seconds, beside a ttl, after which everybody gets on once a fault has healed."""
    faults: Sequence[Fault]

    def start(self) -> None: ...

    def places(self) -> list[str]:
        """URLs for the workers; some lead over ways that faults can break."""
        ...

    def naive_place(self) -> Any:
        """Where locks as others write them find the servers: ports, usually."""
        ...

    def keys(self) -> int:
        """How many keys are on the fullest server."""
        ...

    def close(self) -> None: ...


@contextmanager
def down(servers: Sequence[Any]) -> Iterator[None]:
    """Crashed while this lasts, and back with what their disks have."""
    for server in servers:
        server.kill()
    yield
    for server in servers:
        server.start()


def frozen(servers: Sequence[Any]) -> ExitStack:
    """All of them stopped until the stack is left. They do later what they were asked meanwhile."""
    stack = ExitStack()
    for server in servers:
        stack.enter_context(server.frozen())
    return stack


def crash(field: Any, crew: Crew, chance: Random) -> None:
    """kill -9 of the only server, away for a moment, and back with what its disk has."""
    with down([field.server]):
        time.sleep(chance.uniform(0.0, 0.8))


def freeze(field: Any, crew: Crew, chance: Random) -> None:
    """The only server accepts connections, and answers nothing; then it goes on with what it was sent."""
    with field.server.frozen():
        time.sleep(crew.ttl * chance.uniform(0.2, 1.5))


def jump(field: Any, crew: Crew, chance: Random) -> None:
    """The clock of one server jumps forward by more than a ttl."""
    chance.choice(field.servers).jump(crew.ttl * chance.uniform(1.2, 3.0))


def jump_back(field: Any, crew: Crew, chance: Random) -> None:
    """The clock of one server goes back by a part of a ttl: what stands there lapses that much later.

    It has healed when the clock is where it was: tokens need the counter or the clock, and the next fault may
    take the counter.
    """
    seconds = crew.ttl * chance.uniform(0.3, 1.0)
    chance.choice(field.servers).jump(-seconds)
    time.sleep(seconds)
