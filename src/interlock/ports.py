"""What the core asks of the world: a Store that keeps claims, a Runtime that waits.

Everything above this file is written once. Everything below it is one backend or one way
of waiting. The docstrings here are the specification; `interlock.testing.conformance`
checks each sentence on every store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from interlock.model import (
    Busy,
    Claim,
    ClaimAnswer,
    Granted,
    Queue,
    Renewal,
    RenewAnswer,
    Standing,
    Traits,
    Versioned,
)

T = TypeVar("T")

WAITERS = "\x1fwaiters"
"""Suffix of the resource on which a condition's waiters stand. No user's name has a control
character, so it cannot collide; a store must take names of up to 1100 bytes of UTF-8 with it."""


IO_TIMEOUT = 5.0
"""How long one request may take, unless the caller says otherwise: then nobody knows its outcome."""

CONNECT_TIMEOUT = 5.0
"""How long connecting to a server may take, unless the user says otherwise. It is no part of a request's time."""


class Register(Protocol):
    """A value with a version, the second primitive. Its names are apart from resources' names.

    Versions of one register strictly grow and are never reused, not even after it was deleted:
    a store draws them from the same clock-floored source as its tokens. Writing None deletes; the
    new version of a deleted register stays readable for at least 60 seconds, so that nobody
    who watches it misses the change; afterwards the register reads (None, 0) again.
    """

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        """The value and version now; (None, 0) when there is none."""
        ...

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        """Write `value` if the version is still `version` (0: nothing there); None if it is not.

        `id` is the caller's, fresh for each attempt. Repeating a write that was applied, with
        the same id, answers with the version it got then, as long as nobody has written since.
        """
        ...

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        """Return when the version may differ from `version`, or after `timeout` seconds."""
        ...


class Store(Register, Protocol):
    """The port of a backend. Each call is one atomic step on the server.

    Any call may raise `StoreUnavailable`: nobody knows whether it was applied. Repeating a call
    with the same id is always right. A call may enter a claim and withdraw it again, if nothing of that outlives
    the call. Where a call has a `timeout`, it answers or raises within that many
    seconds: its caller has promised somebody to be back. A call that must connect first may take the store's
    `connect_timeout` longer (not `renew` by the keeper, and not `release`: there connecting is a part of the
    time), and a request may take two round trips where the server is that far away. All awaits of a blocking
    store block and never suspend.
    """

    @property
    def traits(self) -> Traits: ...

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        """Drop lapsed claims, enter this one if it is new, and say where it stands.

        The rule: a claim is admitted when its permits, and those of all live claims ahead of it,
        fit into the capacity. A new claim enters at the tail, with a token above every
        token of this resource so far, if it is admitted there or `queued`; otherwise it leaves no trace.
        With a `block` of n the n-1 tokens that follow are nobody else's, either.
        Repeating it never enters twice: an admitted claim is given `ttl` seconds from now and answers
        `Granted` with the same token; a waiting one is given `place_ttl` from now (a lapse is never
        moved nearer) and answers `Busy`. A claim that an operator evicted answers `Gone`; one that
        lapsed enters anew, at the tail, with a new token.

        Where a claim lives as long as its client's session (`Traits.lapses`), `place_ttl` is ignored, a ttl is what
        the session gives at least, and `Granted.sent` says from when it counts if not from the sending of this call.

        Raises `SettingsMismatch` when live claims stand under another capacity.
        """
        ...

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        """Return when this claim's standing may have changed, or after `timeout` seconds.

        Called for a waiter (with the `Busy` it was told) and for a holder (None: until it is
        removed). May return early; never late: also when this very store removes the claim, for somebody
        who closes the client. A store that learns the grant together with the
        wake-up returns it and saves the caller a round trip: the claim then stands until the lapse of
        its place, as last refreshed, and the holder's first renewal stretches it. It must be a grant of
        the place the claim has now: one that lapsed and was entered anew has another token, and a late
        word of the first would make two believe.

        Where being let in leaves no mark on the server (a claim is in because of what left ahead of it), those behind
        may depend on it, too: `admission.let_in_matters` says when. Such a store makes a mark that they can watch.
        """
        ...

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        """Push the lapse of many claims away; one answer each, in order.

        Never an upsert: what lapsed, was released or evicted answers `Gone` and nothing is
        re-created. A store of several parts answers `NoAnswer` for what stands on a part that is away, so
        that the rest is renewed; raising means that of all. A lapse is never moved nearer. With `permits` (never more than it stands with) the
        claim shrinks in place, same token, and whom that lets in is woken: a writer becomes a reader,
        a semaphore's holder gives a part back. Where claims live with a session, the renewal of one keeps
        all claims of that session, and only tells whether each still stands.
        """
        ...

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        """Remove the claim, holder or waiter, and wake who comes next; False if it does not stand.

        With `linger` a holder's claim stays that many seconds more, beyond anyone's reach: it can be
        neither renewed nor released again (for locks with a `min_hold`).
        """
        ...

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        """The live claims on one resource, in queue order; with `limit`, only that many from the front.

        With a limit the work of the server does not grow with the queue.
        """
        ...

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        """Names of resources with live claims, in code point order, beyond `after`, at most `limit`."""
        ...

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        """Remove one claim, or with None every holder, for an operator; say whom it met.

        The victim's next renewal or claim answers `Gone(evicted=True, reason)`, for at least
        its ttl; a victim in `wait` is woken.

        A key of another program under this name (`Standing.foreign`) is removed only with `foreign`, and if
        it would never lapse by itself only with `no_expiry` as well; otherwise `ForeignKey` is raised and the
        key is left as it is. So is every key that cannot be a lock.
        """
        ...

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        """Return when the queue may differ from `seen`, or after `timeout` seconds. May return early.

        A difference is a claim that came, left, lapsed or was admitted, or a changed note; a renewal
        is none.
        """
        ...

    def on_doubt(self, call: Callable[[], None]) -> None:
        """Have `call` called, on any thread, whenever another server may have taken over, without what we hold.

        It returns at once and asks the store nothing; what is held is verified soon after.
        """
        ...

    def on_session_lost(self, call: Callable[[Collection[str] | None], None]) -> None:
        """Have `call` called, on any thread, when a session has ended, with the ids of its claims; None: all of them.

        For stores whose claims lapse with a session: all of them are lost at once, without a renewal each.
        """
        ...

    def part(self, resource: str) -> str:
        """The part of the store that keeps this resource; "" where there is only one.

        What happens to one part says nothing of another: a node of a Cluster that is away, say.
        """
        ...

    def inside(self) -> bool:
        """Whether the calling thread stands inside a critical section of this store already.

        A garbage collector or a signal handler can run a user's code in the midst of any line. If that code gives
        a lease back, the store must not be asked from there: the keeper does it instead.
        """
        ...

    def blocking(self) -> Store:
        """The same store for a plain thread (the keeper's); itself where it already is."""
        ...

    def for_keeper(self) -> Store:
        """The same store for the keeper alone; itself where nothing that others ask can hold up a renewal.

        A store that has connections gives the keeper one of its own, which is made before anything is granted.
        There, connecting is a part of each call's time.
        """
        ...

    def after_fork(self) -> None:
        """In a forked child: forget connections without touching them; the next call makes new ones."""
        ...

    async def close(self) -> None:
        """Give up connections. Claims stay until released or lapsed."""
        ...


class Owner(Protocol):
    """Who holds: one thread or one task. Compared by identity; `str(owner)` says which it is: `thread worker-7`."""

    @property
    def name(self) -> str: ...
    def alive(self) -> bool:
        """False once the thread or task has ended. Callable from any thread."""
        ...


class Signal(Protocol):
    """A flag that is raised once. `set` may be called from any thread."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...


class Guard(Protocol):
    """A mutual exclusion for a few lines that never wait, and that knows who is inside."""

    def __enter__(self) -> object: ...
    def __exit__(self, *exc_info: Any) -> object: ...
    def _is_owned(self) -> bool:
        """Whether the caller is inside."""
        ...


class Job(Protocol):
    """Something running beside us: a thread or a task."""

    def alive(self) -> bool: ...


class Runtime(Protocol):
    """How this program waits, runs things beside itself, and knows who is calling."""

    def now(self) -> float:
        """Monotonic seconds, on a clock that runs during suspend where the system has one."""
        ...

    def random(self) -> float:
        """0 <= x < 1, for jitter; seeded in simulation."""
        ...

    def fresh_id(self) -> str:
        """An id nobody else has, not even a forked child."""
        ...

    def owner(self) -> Owner:
        """The thread or task that is calling; the same object each time."""
        ...

    def runner(self) -> Owner:
        """The thread or task that runs now, to be interrupted; `owner()` may be another, which waits for it."""
        ...

    def who(self, owner: Owner) -> str:
        """Host, pid, this owner's thread or task, and the call site outside interlock, as JSON."""
        ...

    def guard(self) -> Guard: ...

    def signal(self) -> Signal: ...

    async def wait(self, signal: Signal, timeout: float | None) -> bool:
        """True once the signal is set, False when `timeout` seconds passed first."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def spawn(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> Job:
        """Run `work` beside the caller. If a stranger cancels it and the program goes on, it is begun again."""
        ...

    async def join(self, job: Job, timeout: float) -> None: ...

    async def finish(self, cleanup: Callable[[], Awaitable[object]]) -> None:
        """Run an idempotent clean-up to its end, interrupted or not (then once more).

        Its failure is the caller's to handle; an interruption is raised again after the end.
        """
        ...

    def interrupt(self, owner: Owner, wanted: Callable[[], bool]) -> None:
        """Cancel the owner's task at its next await if `wanted()` still says so there.

        `wanted` runs on the task's own event loop. A thread cannot be interrupted: nothing happens.
        """
        ...

    def call(self, callback: Callable[[Any], object], argument: object) -> None:
        """Call a user's callback apart from the caller, whom it may neither block nor break."""
        ...

    def sweep_statements(self) -> None:
        """Abandon what `with` statements that were cut short have left; see `_runtime/statements.py`."""
        ...

    def later(self, deliver: Callable[[Any], object], argument: object) -> None:
        """Call `deliver` apart from the caller, one call after the other, in the order in which they were asked for."""
        ...

    def stalled(self) -> float:
        """How long the event loop behind this runtime has not run, seconds; 0.0 for threads."""
        ...
