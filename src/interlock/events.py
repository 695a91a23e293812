"""What happened, as data. Listeners get these; the default listener writes the warnings to the log.

A listener is called where the event happens, possibly on the keeper's thread: it must be quick and
must not wait. What it raises is dropped.
"""

from __future__ import annotations

from typing import ClassVar

from interlock.record import record


@record
class Event:
    """Something that happened."""

    warning: ClassVar[bool] = False


@record
class Acquired(Event):
    resource: str
    token: int
    waited: float


@record
class Released(Event):
    resource: str
    token: int
    held: float


@record
class TimedOut(Event):
    resource: str
    waited: float
    ahead: int


@record
class Doubtful(Event):
    """A renewal got no answer; the lease still has `remaining` seconds."""

    warning: ClassVar[bool] = True
    resource: str
    token: int
    remaining: float


@record
class Lost(Event):
    warning: ClassVar[bool] = True
    resource: str
    token: int
    cause: str
    reason: str


@record
class CleanupFailed(Event):
    """A claim could not be taken back while it lived; it has lapsed, or will within its ttl."""

    warning: ClassVar[bool] = True
    resource: str
    error: str


@record
class KeeperLagged(Event):
    """Renewals began this late: the machine is overloaded or the process was paused."""

    warning: ClassVar[bool] = True
    seconds: float


@record
class KeeperFailed(Event):
    """The keeper met an error it did not expect, and went on."""

    warning: ClassVar[bool] = True
    error: str


@record
class LoopStalled(Event):
    """The event loop has not run for this long; its leases were renewed meanwhile."""

    warning: ClassVar[bool] = True
    seconds: float


@record
class CallbackFailed(Event):
    """A user's `on_lost` raised."""

    warning: ClassVar[bool] = True
    error: str
