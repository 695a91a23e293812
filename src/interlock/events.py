"""What happened, as data, and the sentence that tells it. Listeners get these, and the log `interlock` does.

A listener is called where the event happens, possibly on the keeper's thread: it must be quick and
must not wait. What it raises is dropped.
"""

from __future__ import annotations

from typing import ClassVar

from interlock.errors import LeaseLost
from interlock.model import Standing
from interlock.record import record
from interlock.wording import counted, duration, held, taken

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40  # as `logging` has them; it is not imported before it is needed


@record
class Event:
    """Something that happened; `str(event)` says it in a sentence."""

    level: ClassVar[int] = DEBUG

    @property
    def warning(self) -> bool:
        """Whether an operator should know of it."""
        return self.level >= WARNING


@record
class Acquired(Event):
    resource: str
    token: int
    waited: float

    def __str__(self) -> str:
        after = f" after {duration(self.waited)}" if self.waited >= 0.05 else ""
        return f"{self.resource}: acquired{after}, token {self.token}"


@record
class Released(Event):
    resource: str
    token: int
    held: float

    def __str__(self) -> str:
        return f"{self.resource}: released after {duration(self.held)}, token {self.token}"


@record
class TimedOut(Event):
    resource: str
    waited: float
    ahead: int

    def __str__(self) -> str:
        ahead = f"; {counted(self.ahead, 'claim')} ahead" if self.ahead > 0 else ""
        return f"{self.resource}: not acquired in {duration(self.waited)}{ahead}"


@record
class Skipped(Event):
    """A job that runs once was not run: another has it, or had it less than `min_hold` ago."""

    level: ClassVar[int] = INFO
    resource: str
    holder: Standing | None  # whoever took it; None: the store could not say

    def __str__(self) -> str:
        return f"{self.resource}: skipped; {taken(self.holder)}"


@record
class Waiting(Event):
    """A caller has waited for a while; told once, after a second, with what the store knows of the holder."""

    level: ClassVar[int] = INFO
    resource: str
    waited: float
    ahead: int  # live claims in front of this one, holders included; 0: it does not stand in the queue
    holder: Standing | None

    def __str__(self) -> str:
        parts = [f"{self.resource}: has been waiting for {duration(self.waited)}"]
        if self.holder is not None:
            parts.append(held(self.holder))
        if self.ahead > 0:
            parts.append("next in the queue" if self.ahead == 1 else f"{counted(self.ahead, 'claim')} ahead")
        return "; ".join(parts)


@record
class WaitingForItself(Event):
    """A thread or task waits for a lock that it holds itself: nobody else can end that wait."""

    level: ClassVar[int] = WARNING
    resource: str
    owner: str  # the thread's or task's name
    token: int  # of the lease that it holds

    def __str__(self) -> str:
        return (
            f"{self.resource}: {self.owner} waits for a lock that it holds itself (token {self.token}): release it "
            "first, or use client.rlock, which its owner may take again"
        )


@record
class Doubtful(Event):
    """A renewal got no answer; the lease still has `remaining` seconds."""

    level: ClassVar[int] = WARNING
    resource: str
    token: int
    remaining: float

    def __str__(self) -> str:
        return (
            f"{self.resource}: the store did not answer a renewal of the lease with token {self.token}; "
            f"it is lost in {duration(self.remaining)} unless the store answers"
        )


@record
class OwnerEnded(Event):
    """The thread or task that took a lease has ended without releasing it: the lease is not renewed any more."""

    level: ClassVar[int] = WARNING
    resource: str
    token: int
    owner: str
    remaining: float

    def __str__(self) -> str:
        return (
            f"{self.resource}: {self.owner} has ended and had not released the lease with token {self.token}; it is lost "
            f"in {duration(self.remaining)} unless a living thread or task calls lease.adopt()"
        )


@record
class Lost(Event):
    level: ClassVar[int] = WARNING
    resource: str
    token: int
    cause: str
    reason: str

    def __str__(self) -> str:
        return str(LeaseLost(self.resource, self.token, self.cause, self.reason))


@record
class CleanupFailed(Event):
    """A claim could not be taken back while it lived; it has lapsed, or will within its ttl."""

    level: ClassVar[int] = WARNING
    resource: str
    error: str

    def __str__(self) -> str:
        return f"{self.resource}: a claim could not be taken back and lapses by itself ({self.error})"


@record
class KeeperLagged(Event):
    """Renewals began this late: the machine is overloaded or the process was paused."""

    level: ClassVar[int] = WARNING
    seconds: float

    def __str__(self) -> str:
        return f"renewals began {duration(self.seconds)} late: the machine is overloaded, or the process was paused"


@record
class KeeperFailed(Event):
    """The keeper met an error it did not expect, and went on."""

    level: ClassVar[int] = ERROR
    error: str
    exception: BaseException | None = None  # with its traceback, for the log

    def __str__(self) -> str:
        return (
            f"the keeper, which renews leases, met an error that it did not expect, and goes on: {self.error}"
        )


@record
class LoopStalled(Event):
    """The event loop has not run for this long; its leases were renewed meanwhile."""

    level: ClassVar[int] = WARNING
    seconds: float

    def __str__(self) -> str:
        return (
            f"the event loop has not run for {duration(self.seconds)}: something blocks it; "
            "its leases are renewed meanwhile"
        )


@record
class CallbackFailed(Event):
    """A user's `on_lost` raised."""

    level: ClassVar[int] = ERROR
    error: str
    resource: str = ""
    exception: BaseException | None = None  # with its traceback, for the log

    def __str__(self) -> str:
        of = f"{self.resource}: " if self.resource else ""
        return f"{of}the callback on_lost failed: {self.error}"
