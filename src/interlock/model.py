"""The data that cross the `Store` interface: what a caller asks, and what the store answers.

Two rules keep them small. They hold durations and no instants, so nobody has to compare the clocks of two
machines. And the caller chooses every id, so it can repeat any request after a lost reply.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeAlias, TypeVar

from interlock._support.record import record
from interlock.who import Who

T = TypeVar("T")

EVERYTHING = 2**31 - 1
"""The capacity of a read-write lock, and what its writer takes of it."""

LINGERING = "lingering-"
"""The beginning of the id of a claim that its holder has released, and that stays for the rest of its
`min_hold`.
"""


@record
class Claim:
    """A request to hold `permits` out of `capacity` on one resource, for `ttl` seconds at a time."""

    resource: str
    id: str  # chosen by the caller for this claim alone, so that a repeated call is recognised
    ttl: float
    permits: int = 1
    capacity: int = 1
    queued: bool = True  # if it is not admitted at once, it keeps a place in the queue
    place_ttl: float = 10.0  # seconds that a place in the queue lives without a renewal
    note: str = ""  # text of the caller that everybody can read: the address of a candidate in an election
    who: str = ""  # host, pid, thread or task and call site, as JSON, for operators
    block: int = 1  # how many tokens are reserved with the grant, for passing the lock on within a cohort


@record
class Granted:
    """The claim is admitted."""

    token: int  # the first of its block; it is greater than every earlier token of the resource
    ttl: float  # seconds that the store really gave: a store with sessions may round up
    sent: float | None = (
        None  # the instant, on the runtime's clock, from which ttl counts; None: just before this call
    )
    unconfirmed: bool = (
        False  # only a message said so, and the store was not asked: the first renewal is sent at once
    )


NEVER = float("inf")
"""The seconds until a claim lapses that never does so by itself."""


@record
class Standing:
    """One live claim as an operator sees it."""

    id: str
    token: int
    permits: int
    admitted: bool
    age: float  # seconds since it was admitted; for a waiter, since it entered the queue
    lapses_in: float  # seconds; NEVER for a key without an expiry, which another program has left
    note: str
    who: str  # as stores keep it, in JSON; `caller` is the same for people and programs
    foreign: bool = False  # it is a key of another program under this name, whose value is never shown

    @property
    def caller(self) -> Who:
        """The process, thread or task, and line that made the claim: `print` shows it in words."""
        return Who.parse(self.who)

    @property
    def lingering(self) -> bool:
        """Whether its holder has released it, and it stays only for the rest of its `min_hold`."""
        return self.id.startswith(LINGERING)


@record
class Busy:
    """The claim is not admitted yet."""

    ahead: int  # live claims in front of this one
    retry_after: float  # seconds until the claims that it waits for have lapsed, unless they are renewed
    holder: Standing | None = None  # the oldest holder, if the store knows it, to be named in errors and logs


@record
class Gone:
    """The store does not have the claim: it lapsed, was released, or was evicted by an operator.

    To the renewal of a holder it also means that the claim only waits, so that its caller does not hold it.
    """

    evicted: bool = False
    reason: str = ""  # the reason that the operator gave


@record
class Renewal:
    """A request that one claim, whether it holds or waits, live for `ttl` seconds from now."""

    resource: str
    id: str
    ttl: float
    note: str | None = None  # None leaves the note as it is; only a holder's can change
    permits: int | None = (
        None  # if fewer than it has, a holder's claim shrinks to them: a writer becomes a reader
    )
    waiting: bool = (
        False  # it is for a place in the queue; otherwise it is a holder's, and must not keep a place
    )


@record
class Renewed:
    """The claim lives on."""

    ttl: float  # seconds that the store really gave
    sent: float | None = None  # as in Granted


@record
class NoAnswer:
    """It is unknown whether the claim was renewed: the part of the store that keeps it did not answer."""

    why: str


@record
class Queue:
    """The live claims on a resource at one instant: first the holders, then the waiters in the order of the
    queue.

    A resource without claims has capacity 0 and no standings.
    """

    resource: str
    capacity: int
    standings: tuple[Standing, ...]

    @property
    def holders(self) -> tuple[Standing, ...]:
        return tuple(standing for standing in self.standings if standing.admitted)

    @property
    def waiters(self) -> tuple[Standing, ...]:
        return tuple(standing for standing in self.standings if not standing.admitted)


@record
class Versioned:
    """The value of a register and its version; (None, 0) if the register does not exist."""

    value: str | None
    version: int


class Value(Generic[T]):
    """The value that a register had when it was read, and the version to compare with."""

    __slots__ = ("value", "version")

    def __init__(self, value: T, version: int) -> None:
        self.value = value
        self.version = version

    def __repr__(self) -> str:
        return f"Value({self.value!r}, version={self.version})"


@record
class Traits:
    """What a store can do and what it cannot.

    Code, tests and docs ask this instead of the name of the backend.
    """

    backend: str
    fair: bool  # keeps a queue: it honours Claim.queued
    shares: Literal["any", "pairwise", "none"]  # semaphores too, read-write locks at most, or only locks
    lapses: Literal["claim", "session"]  # each claim by itself, or all claims of a session together
    wakes: Literal["signal", "doorbell", "server", "poll"]  # how a waiter learns that it was admitted
    reach: Literal["process", "machine", "network"]  # how far apart contenders may be
    survives: Literal["nothing", "process", "restart", "minority"]  # what the token counter outlives
    two_holders: tuple[str, ...]  # the failures after which two clients may hold at once
    min_ttl: float
    max_ttl: float
    registers: bool = True  # keeps registers
    blocks: bool = False  # honours Claim.block
    lingers: bool = (
        True  # can keep a claim for `linger` seconds after its release, even if its client has ended by then
    )
    renewals_wake: bool = (
        False  # the renewal of a place looks at what is ahead of it, so its waiter need not ask
    )
    ages: bool = True  # knows how old claims are, and when the claims of others lapse
    largest_value: int | None = (
        None  # the most bytes of UTF-8 that a register can hold; None: as many as the server accepts
    )


Severity: TypeAlias = Literal["danger", "warning", "note", "unknown", "good"]
"""How serious a finding is, the worst first. `unknown`: the server did not say, or may not be asked."""

Answer: TypeAlias = Literal["yes", "no", "unknown"]


@record
class Finding:
    """One thing that a diagnosis found out about a deployment."""

    id: str  # stable, such as "redis-eviction": its page is docs/doctor/redis-eviction.md
    severity: Severity
    text: str  # one sentence: what is so, and whom it hurts
    remedy: str = ""  # what mends it, a command where there is one
    server: str = ""  # which of the servers, where there are several


@record
class Outlook:
    """What one failure would do to a deployment as it is set up now."""

    failure: str  # such as "the power fails"
    tokens_rise: Answer
    one_holder: Answer
    blocked: str  # how long nobody gets a lock


@record
class Examination:
    """What a store can tell about its servers: see `Store.examine`."""

    findings: tuple[Finding, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    unreachable: str = ""  # why no question was answered, in one sentence


ClaimAnswer: TypeAlias = Granted | Busy | Gone
RenewAnswer: TypeAlias = Renewed | Gone | NoAnswer
