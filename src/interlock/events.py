"""What happened, as data. Listeners get these; the default listener writes the warnings to the log.

A listener is called where the event happens, possibly on the keeper's thread: it must be quick and
must not wait. What it raises is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    warning: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Acquired(Event):
    resource: str
    token: int
    waited: float


@dataclass(frozen=True, slots=True)
class Released(Event):
    resource: str
    token: int
    held: float


@dataclass(frozen=True, slots=True)
class TimedOut(Event):
    resource: str
    waited: float
    ahead: int


@dataclass(frozen=True, slots=True)
class Doubtful(Event):
    """A renewal got no answer; the lease still has `remaining` seconds."""

    warning: ClassVar[bool] = True
    resource: str
    token: int
    remaining: float


@dataclass(frozen=True, slots=True)
class Lost(Event):
    warning: ClassVar[bool] = True
    resource: str
    token: int
    cause: str
    reason: str


@dataclass(frozen=True, slots=True)
class CleanupFailed(Event):
    """A claim could not be taken back; it lapses by itself within `ttl` seconds."""

    warning: ClassVar[bool] = True
    resource: str
    ttl: float
    error: str


@dataclass(frozen=True, slots=True)
class KeeperLagged(Event):
    """Renewals began this late: the machine is overloaded or the process was paused."""

    warning: ClassVar[bool] = True
    seconds: float


@dataclass(frozen=True, slots=True)
class KeeperFailed(Event):
    """The keeper met an error it did not expect, and went on."""

    warning: ClassVar[bool] = True
    error: str


@dataclass(frozen=True, slots=True)
class LoopStalled(Event):
    """The event loop has not run for this long; its leases were renewed meanwhile."""

    warning: ClassVar[bool] = True
    seconds: float


@dataclass(frozen=True, slots=True)
class CallbackFailed(Event):
    """A user's `on_lost` raised."""

    warning: ClassVar[bool] = True
    error: str
