"""The nouns of interlock, as plain data: what is asked of a store and what it answers.

Two rules keep these small. Durations cross the wire, instants do not: nobody compares the
clocks of two machines. And the caller chooses every id, so any request may be repeated.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeAlias, TypeVar

from interlock.record import record

T = TypeVar("T")

EVERYTHING = 2**31 - 1
"""The capacity of a read-write lock, and what its writer takes of it."""

LINGERING = "lingering-"
"""How the id of a claim begins that was released and stands on for its `min_hold`."""


@record
class Claim:
    """A wish to hold `permits` of `capacity` on one resource for `ttl` seconds."""

    resource: str
    id: str  # chosen by the caller, never used twice: every call below may be repeated
    ttl: float
    permits: int = 1
    capacity: int = 1
    queued: bool = True  # when refused, keep a place in the queue
    place_ttl: float = 10.0  # how long a place in the queue lives unrefreshed
    note: str = ""  # the caller's own words: an election candidate's address
    who: str = ""  # host, pid, thread or task and call site, as JSON, for operators
    block: int = 1  # tokens reserved with the grant, for those of one client who pass it on


@record
class Granted:
    """The claim is in."""

    token: int  # the first of its block; strictly grows with every grant of this resource
    ttl: float  # what the store really gave: a session store may round up
    sent: float | None = (
        None  # the instant, on the runtime's clock, from which ttl counts; None: this call's own sending
    )


@record
class Standing:
    """One live claim as an operator sees it."""

    id: str
    token: int
    permits: int
    admitted: bool
    age: float  # seconds since it was admitted, or, for a waiter, since it came
    lapses_in: float
    note: str
    who: str
    foreign: bool = False  # a key of another program under this name; its value is shown to nobody

    @property
    def lingering(self) -> bool:
        """Whether its holder has released it, and it only stands on for the rest of its `min_hold`."""
        return self.id.startswith(LINGERING)


@record
class Busy:
    """The claim is not in yet."""

    ahead: int  # live claims in front of this one
    retry_after: float  # seconds until what it waits for lapses by itself
    holder: Standing | None = (
        None  # the oldest holder, if the store knows it: tells a waiter for whom it waits
    )


@record
class Gone:
    """The claim does not stand: it lapsed, was released, or an operator evicted it."""

    evicted: bool = False
    reason: str = ""  # the operator's words


@record
class Renewal:
    """Push the lapse of one claim, holder or waiter, to `ttl` seconds from now."""

    resource: str
    id: str
    ttl: float
    note: str | None = None  # None leaves the note as it is
    permits: int | None = None  # fewer than it stands with shrink it: a writer becomes a reader


@record
class Renewed:
    ttl: float  # what the store really gave
    sent: float | None = None  # as in Granted


@record
class NoAnswer:
    """Nobody knows whether this claim was renewed: the part of the store that keeps it did not answer."""

    why: str


@record
class Queue:
    """A resource at one instant: holders first, then those who wait, in order.

    An idle resource has capacity 0 and no standings.
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
    """A register's value and the version that wrote it; (None, 0) when there never was one."""

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
    """What a store promises. Code, tests and docs ask this, never the backend's name."""

    backend: str
    fair: bool  # honours Claim.queued
    shares: Literal["any", "pairwise", "none"]  # which capacities it can keep
    lapses: Literal["claim", "session"]  # what lapses: one claim, or all of a client's
    wakes: Literal["signal", "doorbell", "server", "poll"]  # who ends a wait
    reach: Literal["process", "machine", "network"]  # how far apart contenders may be
    survives: Literal["nothing", "process", "restart", "minority"]  # what a token outlives, beside its clock
    two_holders: tuple[str, ...]  # the failures that can give two valid leases
    min_ttl: float
    max_ttl: float
    registers: bool = True  # keeps values with versions, too
    blocks: bool = False  # honours Claim.block
    lingers: bool = (
        True  # keeps a claim for `linger` seconds after its release, also if its client is gone by then
    )
    ages: bool = True  # knows how old claims are, and when those of others lapse
    largest_value: int | None = (
        None  # bytes of UTF-8 that a register can hold; None: as many as the server takes
    )


ClaimAnswer: TypeAlias = Granted | Busy | Gone
RenewAnswer: TypeAlias = Renewed | Gone | NoAnswer
