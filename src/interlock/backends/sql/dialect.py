"""The interface that a database server implements: connections that run steps, where they come from, and a
subscription to wake-ups.

Errors. A `Connection` turns the errors of its driver into these, and nothing raw reaches the base:

| error | means | what the base does |
|---|---|---|
| `Again` | nothing was done, and the same step may succeed at once (deadlock, serialization, lock wait) | repeats it within the deadline |
| `NotInstalled` | nothing was done, because the tables or programs of interlock are missing | `Connection.install`, once, and repeats |
| `Demoted` | nothing was done: the server is read-only, a standby, or shutting down | reports doubt, reconnects, repeats within the deadline |
| `Broken` | the connection ended before the answer | reconnects and repeats a step of `REPEATABLE` once |
| `StoreUnavailable` | no answer in time | raises it |
| `Unreached` | there is no connection, and nothing was sent | raises it |
| `StoreUnfit`, `InvalidSetting` | the server refuses: rights, space, another version | raises it |
"""  # noqa: E501  (a table)

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from interlock.backends.kit.connect_pace import ConnectPace
from interlock.backends.kit.examining import Examiner
from interlock.backends.sql.steps import Rows
from interlock.errors import StoreUnavailable, Unreached
from interlock.model import Traits


class Again(Unreached):
    """Nothing was done; the same step may succeed at once."""


class NotInstalled(Unreached):
    """Nothing was done: the tables or programs of interlock are not there."""


class Demoted(Unreached):
    """Nothing was done: this server takes no writes now, and another one may have taken over."""


class Broken(StoreUnavailable):
    """The connection ended before the answer: nobody knows whether the step was done."""


class Connection(Protocol):
    """One connection, used by one call at a time. The awaits of a blocking connection block and never
    suspend.

    It is made unconnected, so that a pool can count it before it connects. Garbage collection must close it
    without a warning.
    """

    async def open(self, timeout: float) -> None:
        """Connect. Raises `Unreached`, or `StoreUnfit` for wrong credentials and the like."""
        ...

    async def run(self, step: str, args: Sequence[Any], timeout: float) -> Rows:
        """Run a step and return its rows, or raise one of the errors above within `timeout` seconds.

        If anything is raised but `Again` and `NotInstalled`, the base discards the connection. The same holds
        for cancellation: a late answer must never be taken for that of another call.
        """
        ...

    async def install(self, timeout: float) -> None:
        """Create or migrate tables and programs, safe if many do it at once; `StoreUnfit` says which
        rights are missing.
        """
        ...

    def stale(self) -> bool:
        """Whether the connection is known to be of no use any more: the server has closed it.

        Asked before each use, so it is cheap.
        """
        ...

    def discard(self) -> None:
        """Close it at once and without a word to anybody; never blocks, never raises, may be called twice
        and on any thread.
        """
        ...

    def abandon(self) -> None:
        """In a forked child: forget the connection without closing it for the parent."""
        ...


class Source(Protocol):
    """Where connections come from: our own pool (`pool.ConnectionPool`), or a pool or engine of the user."""

    pace: ConnectPace

    async def borrow(self, until: float, connecting_is_extra: bool) -> tuple[Connection, bool]:
        """Return a connection that nobody else uses, and whether it is new.

        Raises `Unreached`, at `until` at the latest. If `connecting_is_extra`, waiting for a connection and
        connecting may take as long as the source's pace says, and that also says whether this time counts as
        the step's own.
        """
        ...

    async def give_back(self, connection: Connection, sound: bool) -> None:
        """Take a connection back; one that is not sound is closed.

        May be called while the caller is being cancelled.
        """
        ...

    async def warm(self, timeout: float) -> None:
        """Make sure that a connection exists."""
        ...

    def drain(self) -> None:
        """Close what is idle: those connections are as old as one that has just proved dead."""
        ...

    def inside(self) -> bool:
        """Whether the calling thread is in the middle of a change here; see `Store.inside`."""
        ...

    def after_fork(self) -> None: ...

    async def close(self) -> None:
        """Close what interlock has opened. A user's pool stays open."""
        ...


class Subscription(Protocol):
    """A connection on which wake-ups arrive.

    One thread at a time calls `receive`; any thread may call `hang_up`.
    """

    bell: str
    """The address to ring, as it stands in rows."""

    def receive(self, timeout: float) -> list[str]:
        """Return the messages that have arrived (see `steps`), waiting up to `timeout` seconds for the first;
        OSError if it is lost.

        An empty message means that something may have been missed: everybody looks again.
        """
        ...

    def hang_up(self) -> None:
        """Make a running `receive` return soon, or raise."""
        ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        """In a forked child: forget the connection without closing it for the parent."""
        ...


@runtime_checkable
class PolledSubscription(Subscription, Protocol):
    """A subscription that a waiter may read in place of the listener's thread: see
    `kit.reader.SubscribedConnection`.
    """

    polls: bool
    """Whether this is possible here."""

    def fileno(self) -> int: ...

    def probe(self) -> None:
        """Ask a silent server whether it lives. OSError if it has not answered since the last time."""
        ...


class Dialect(Protocol):
    """One database, as one client reaches it."""

    @property
    def traits(self) -> Traits: ...

    @property
    def label(self) -> str:
        """The server for messages: no password in it."""
        ...

    @property
    def connect_timeout(self) -> float: ...

    @property
    def questions(self) -> Sequence[str]:
        """What the step `examine` is asked, one after the other."""
        ...

    def check(self, facts: Mapping[str, str], examiner: Examiner) -> None:
        """Note what these facts, the rows of all questions, mean for locks."""
        ...

    @property
    def claim_table(self) -> str:
        """The quoted name of the table of claims, as a connection of the user's to the same database can
        use it: for guards.
        """
        ...

    @property
    def listener_key(self) -> Hashable | None:
        """Clients of one process with equal keys share a listener; None: this one has its own."""
        ...

    def source(self, runtime: Any, *, blocking: bool) -> Source:
        """Where the calls of a client get their connections.

        `runtime` is a `WaitRuntime`; `blocking` for threads, else for tasks.
        """
        ...

    def own_source(self, runtime: Any, *, blocking: bool) -> Source:
        """A source of one connection that nobody else uses, for the keeper: also beside a pool or an
        engine of the user.
        """
        ...

    def subscribe(self) -> Subscription | None:
        """Connect, blocking, within `connect_timeout`; None if wake-ups cannot arrive here, after having said
        so once.

        Raises `InterlockError` if the server cannot be reached now.
        """
        ...
