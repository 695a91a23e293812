"""Events: what happened, as data that can print itself as a sentence. Listeners and the logger `interlock`
receive them.

A listener is called on the thread on which the event happens, which may be the keeper's. So it must be quick
and must not wait. An exception that it raises is ignored.
"""

from __future__ import annotations

from typing import ClassVar

from interlock._support.record import record
from interlock._support.wording import counted, duration, held, printable, taken
from interlock.errors import LeaseLost
from interlock.model import Standing

DEBUG, INFO, WARNING, ERROR = (
    10,
    20,
    30,
    40,
)  # the numbers of `logging`, which is imported only when it is needed


@record
class Event:
    """Something that happened. `str(event)` is a sentence."""

    level: ClassVar[int] = DEBUG

    @property
    def warning(self) -> bool:
        """Whether it deserves an operator's attention."""
        return self.level >= WARNING


@record
class Queued(Event):
    """A caller begins to wait, because others are ahead of it.

    `Acquired`, `TimedOut` or `AcquireFailed` says that its wait is over.
    """

    resource: str
    kind: str = "lock"  # lock, rlock, read, write, semaphore, once or election
    template: str = ""  # of a decorator's name, such as "ship:{order_id}"

    def __str__(self) -> str:
        return f"{self.resource}: waits"


@record
class Acquired(Event):
    """A lease was granted."""

    resource: str
    token: int
    waited: float  # seconds from the call to the grant
    queued: bool = False  # whether `Queued` came before
    kind: str = "lock"
    template: str = ""

    def __str__(self) -> str:
        after = f" after {duration(self.waited)}" if self.waited >= 0.05 else ""
        return f"{self.resource}: acquired{after}, token {self.token}"


@record
class Released(Event):
    """A holder released its lease."""

    resource: str
    token: int
    held: float  # seconds since the grant
    kind: str = "lock"
    template: str = ""

    def __str__(self) -> str:
        return f"{self.resource}: released after {duration(self.held)}, token {self.token}"


@record
class TimedOut(Event):
    """A caller waited in vain until its timeout."""

    resource: str
    waited: float
    ahead: int
    queued: bool = False
    kind: str = "lock"
    template: str = ""

    def __str__(self) -> str:
        ahead = f"; {counted(self.ahead, 'claim')} ahead" if self.ahead > 0 else ""
        return f"{self.resource}: not acquired in {duration(self.waited)}{ahead}"


@record
class AcquireFailed(Event):
    """A caller was interrupted, or the store failed, before it got the lease; nothing was left behind."""

    resource: str
    waited: float
    error: str  # the name of the exception
    cancelled: bool  # whether the caller was cancelled or interrupted; else the store failed, or refused
    queued: bool = False
    kind: str = "lock"
    template: str = ""

    def __str__(self) -> str:
        return f"{self.resource}: not acquired after {duration(self.waited)}: {self.error}"


@record
class Renewed(Event):
    """The store has answered a renewal of a lease, or has not."""

    resource: str
    token: int
    took: float  # seconds
    margin: float  # the share of the ttl that was left just before: below a third it was late
    answer: str  # renewed, refused or unanswered
    kind: str = "lock"
    template: str = ""

    def __str__(self) -> str:
        said = {"renewed": "was granted", "refused": "was refused"}.get(self.answer, "had no answer")
        return f"{self.resource}: a renewal of the lease with token {self.token} {said}"


@record
class Skipped(Event):
    """A job of `client.once` was not run: another worker runs it, or began it less than `min_hold` seconds
    ago.
    """

    level: ClassVar[int] = INFO
    resource: str
    holder: Standing | None  # the worker that took it; None: the store could not say
    waited: float = 0.0
    template: str = ""

    def __str__(self) -> str:
        return f"{self.resource}: skipped; {taken(self.holder)}"


@record
class Waiting(Event):
    """A caller has waited for a second.

    The event comes once for each wait, and names the holder if the store knows it.
    """

    level: ClassVar[int] = INFO
    resource: str
    waited: float
    ahead: int  # live claims in front of this one, holders included; 0: it is not in the queue
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
    """A thread or task waits for a lock that it holds itself, so nobody else can end its wait."""

    level: ClassVar[int] = WARNING
    resource: str
    owner: str  # the thread's or task's name
    token: int  # of the lease that it holds

    def __str__(self) -> str:
        return (
            f"{self.resource}: {printable(self.owner)} waits for a lock that it holds itself "
            f"(token {self.token}): release it first, or use client.rlock, which its owner may take again"
        )


@record
class Doubtful(Event):
    """The store did not answer a renewal, or could not do it: then `why` says why not.

    The lease is still valid for `remaining` seconds.
    """

    level: ClassVar[int] = WARNING
    resource: str
    token: int
    remaining: float
    why: str = ""

    def __str__(self) -> str:
        if self.why:
            return (
                f"{self.resource}: the lease with token {self.token} could not be renewed "
                f"({printable(self.why)}); "
                f"it is lost in {duration(self.remaining)} unless that is mended"
            )
        return (
            f"{self.resource}: the store did not answer a renewal of the lease with token {self.token}; "
            f"it is lost in {duration(self.remaining)} unless the store answers"
        )


@record
class OwnerEnded(Event):
    """The thread or task that took a lease has ended without releasing it. The lease is no longer renewed."""

    level: ClassVar[int] = WARNING
    resource: str
    token: int
    owner: str
    remaining: float

    def __str__(self) -> str:
        return (
            f"{self.resource}: {printable(self.owner)} has ended and had not released the lease with token "
            f"{self.token}; it is lost in {duration(self.remaining)} unless a living thread or task calls "
            "lease.adopt()"
        )


@record
class Lost(Event):
    """A lease ended before its holder released it; `cause` and `reason` are those of `LeaseLost`."""

    level: ClassVar[int] = WARNING
    resource: str
    token: int
    cause: str
    reason: str
    held: float = 0.0  # seconds since the grant
    kind: str = "lock"
    template: str = ""

    def __str__(self) -> str:
        return str(LeaseLost(self.resource, self.token, self.cause, self.reason))


@record
class CleanupFailed(Event):
    """A claim could not be removed from the store. It has lapsed, or will lapse within its ttl."""

    level: ClassVar[int] = WARNING
    resource: str
    error: str

    def __str__(self) -> str:
        return (
            f"{self.resource}: a claim could not be taken back and lapses by itself ({printable(self.error)})"
        )


@record
class KeeperLagged(Event):
    """The keeper began its renewals late, because the machine is overloaded or the process was paused."""

    level: ClassVar[int] = WARNING
    seconds: float

    def __str__(self) -> str:
        return (
            f"renewals began {duration(self.seconds)} late: the machine is overloaded, or the process was "
            "paused"
        )


@record
class KeeperFailed(Event):
    """The keeper met an unexpected error, and continues."""

    level: ClassVar[int] = ERROR
    error: str
    exception: BaseException | None = None  # with its traceback, for the log

    def __str__(self) -> str:
        return (
            "the keeper, which renews leases, met an error that it did not expect, and goes on: "
            f"{printable(self.error)}"
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
    """The callback `on_lost` of a user raised an exception."""

    level: ClassVar[int] = ERROR
    error: str
    resource: str = ""
    exception: BaseException | None = None  # with its traceback, for the log

    def __str__(self) -> str:
        of = f"{self.resource}: " if self.resource else ""
        return f"{of}the callback on_lost failed: {printable(self.error)}"
