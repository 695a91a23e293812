"""The interface for authors of stores.

A store keeps two things: the claims of all resources (`Store`), and values with a version (`Register`). The
algorithms above it are written once, for all stores. The docstrings are the specification;
`interlock.testing.conformance` checks each sentence of it on every store.

`Store` has two halves. An author writes the first: the traits, and eight calls about claims, each of them one
atomic step on the server. The second half is about the life of a store object (forks, threads, the keeper,
the end) and about short cuts; all of it has a default, and an author inherits `StoreDefaults` and overrides
what the product needs. A store that keeps no registers inherits `NoRegisters` as well:

    class MyStore(StoreDefaults, NoRegisters):
        no_registers = "mystore keeps no registers: use Redis, etcd, ZooKeeper or an SQL store"
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, cast

from interlock.errors import Unsupported
from interlock.model import (
    Busy,
    Claim,
    ClaimAnswer,
    Examination,
    Granted,
    Queue,
    Renewal,
    RenewAnswer,
    Standing,
    Traits,
    Versioned,
)

WAITERS = "\x1fwaiters"
"""The suffix of the resource on which the waiters of a condition queue. The name that a user chooses has no
control character, so the two cannot collide. With this suffix a name has up to 1100 bytes of UTF-8, and a
store must accept it.
"""


IO_TIMEOUT = 5.0
"""Seconds that one request may take, unless the caller gives another timeout.

After that its outcome is unknown.
"""

CONNECT_TIMEOUT = 5.0
"""Seconds that connecting to a server may take, unless the user sets another limit.

They are not part of a request's time.
"""


class Register(Protocol):
    """The part of a store that keeps registers: each is a value with a version.

    A register and a resource may have the same name and have nothing to do with each other.

    The versions of one register strictly grow and are never reused, not even after the register was deleted:
    a store draws them from the same source as its tokens. Writing None deletes a register. Its new version
    stays readable for at least 60 seconds, so that nobody who watches it misses the deletion; after that it
    reads (None, 0) again.
    """

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        """Return the present value and version; (None, 0) if the register does not exist."""
        ...

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        """Write `value` if the version is still `version` (0: it does not exist), and return what was
        written; else None.

        The caller chooses a fresh `id` for each write. If it repeats a write that was applied, with the same
        id, the answer is the version that the write got then, as long as nobody else has written since.
        """
        ...

    async def confirm_read(self, name: str, version: int, timeout: float = IO_TIMEOUT) -> bool:
        """Whether the register still has the version that was read, confirmed by what confirms a write.

        A caller that found what it would have written asks this instead of writing: on the strength of a read
        alone, a guard would accept a stale token from a master that has been replaced. Most stores confirm
        each read.
        """
        ...

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        """Return when the version may differ from `version`, or after `timeout` seconds; when this store
        is closed, at once.
        """
        ...


class Store(Register, Protocol):
    """The interface of a backend.

    **Atomic.** Each call is one atomic step on the server. A call may enter a claim and withdraw it again, if
    no trace of that remains when it returns.

    **Repeatable.** Any call may raise `StoreUnavailable`, which means that nobody knows whether it was
    applied. The caller may repeat a call with the same id, however often, and the effect is that of one call.
    A store itself sends a request again only if the second answer is that of the first. A write of a
    register, whose second answer may be that another has written since, is repeated by the core, which knows
    then that its first copy may have counted. An eviction is never repeated without an id of its call:
    somebody else may hold the resource by then.

    **In time.** A call with a `timeout` returns or raises within that many seconds, because its own caller
    has promised to return in time. There are two exceptions. The first call that connects may take the
    store's `connect_timeout` in addition; but for `release`, and for every call through `for_keeper()`,
    connecting is always part of the timeout. Once the server was reached, connecting again is part of the
    timeout of every call; only a caller that does not wait at all gives it as long as the last connection
    took, and a second (`backends.kit.connect_pace`). And a request may always take two round trips to the
    server, however short its timeout is.

    **Blocking or not.** The awaits of a blocking store block the calling thread and never suspend.
    """

    # ---- what every store writes ---------------------------------------------------------------

    @property
    def traits(self) -> Traits:
        """What this store can do and what it cannot, as data. It never changes, except for `max_ttl` where
        claims live with a session: that is known once the servers have granted one.
        """
        ...

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        """Enter this claim into the queue of its resource if it is new, and say where it stands.

        Lapsed claims are dropped first and count for nothing. The rule of admission: a claim is admitted when
        its permits, and those of all live claims ahead of it, fit into the capacity.

        A new claim goes to the end of the queue, with a token greater than every earlier token of this
        resource, if it is admitted there or is `queued`. Otherwise it leaves no trace, and the answer is
        `Busy`. With a `block` of n, the n-1 numbers after its token are reserved too: no other claim ever
        gets them.

        Repeating a claim never enters it twice. A claim that is admitted lives for at least `ttl` seconds
        from now, and the answer is `Granted` with the token it already has. A claim that waits lives for at
        least `place_ttl` seconds from now, and the answer is `Busy`. Neither ever makes it lapse earlier than
        before. If an operator evicted the claim, the answer is `Gone`. If it lapsed, it enters again at the
        end of the queue, with a new token.

        Where a claim lives as long as its client's session (`Traits.lapses`), `place_ttl` is ignored, and
        `Granted.ttl` is the time that the session has at least. `Granted.sent` is the instant from which that
        time counts, if this is not the instant before the call.

        Raises `SettingsMismatch` if live claims on the resource have another capacity.
        """
        ...

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        """Return when the position of this claim may have changed, or after `timeout` seconds.

        It is called for a waiter, with the `Busy` that the waiter was answered, and for a holder, with None:
        then it waits for the claim to be removed. It may return too early, but never too late. In particular
        it returns when this same store object removes the claim, which happens when a thread closes the
        client while another one waits.

        A message wakes, and the store decides: a waiter returns a grant only if the store has said that the
        claim holds. Such a claim lapses when its place would have lapsed, as last renewed, and the holder's
        first renewal gives it the whole ttl. Where access rights can keep everybody else from sending
        messages, a store may believe a message to save a round trip, and marks the grant as `unconfirmed`:
        the first renewal is then sent at once, and a holder that only waits loses its lease by the answer.
        The grant must belong to the place that the claim has now: a claim that lapsed and entered again has a
        new token, and a late message about its first place would make two clients believe that they hold the
        resource.

        On some stores admission leaves no mark on the server: a claim is in because the claims ahead of it
        have left. Claims further back may depend on that admission as well; `admission.let_in_matters` says
        when. Such a store must make a mark that they can watch.
        """
        ...

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        """Prolong many claims, and return one answer for each, in order.

        A claim that stands lives for at least its new ttl from now, and never lapses earlier than before:
        `Renewed`. A renewal never creates a claim: one that lapsed, was released or was evicted is `Gone`. A
        store of several parts answers `NoAnswer` for claims on a part that is out of reach, so that the
        others are renewed all the same. Raising `StoreUnavailable` means that no renewal of this call was
        answered.

        A renewal is either for a place in the queue (`waiting`) or a holder's, who was told that the claim is
        admitted. A claim that only waits is `Gone` to the renewal of a holder, which changes nothing that
        counts.

        With `permits`, which is never more than the claim has now, a holder's claim shrinks and keeps its
        token, and the claims that this admits are woken: a writer becomes a reader, or a holder of a
        semaphore gives back some permits.

        If the store's trait `renewals_wake` is true, a renewal with `waiting` also looks at the claims ahead
        of that place, and ends the `wait` of its claim in three cases: the claim is admitted; something has
        changed for it; or a claim that it must watch may lapse before the place is renewed next. A waiter
        then need not ask in between.

        Where claims live with a session, the renewal of one claim keeps all claims of its session alive, and
        each answer only tells whether that claim still stands.
        """
        ...

    async def release(self, resource: str, id: str, linger: float = 0.0, timeout: float = IO_TIMEOUT) -> bool:
        """Remove a claim, whether it holds or waits, and wake the claims that this admits; False if it does
        not stand.

        With `linger`, the claim of a holder stays for that many seconds more, but nobody owns it any longer:
        it can neither be renewed nor released again. This is for locks with a `min_hold`, and only for stores
        whose trait `lingers` is true.
        """
        ...

    async def inspect(self, resource: str, timeout: float = IO_TIMEOUT, *, limit: int | None = None) -> Queue:
        """Return the live claims on one resource in the order of the queue; with `limit`, only so many from
        its front.

        With a limit, the work of the server does not grow with the length of the queue.
        """
        ...

    async def scan(self, prefix: str, after: str, limit: int) -> list[str]:
        """Return names of resources that have live claims and begin with `prefix`.

        They are those greater than `after`, at most `limit` of them, sorted by code points.
        """
        ...

    async def evict(
        self, resource: str, id: str | None, reason: str, *, foreign: bool = False, no_expiry: bool = False
    ) -> list[Standing]:
        """Remove one claim, or all holders if `id` is None, on behalf of an operator; return the claims that
        were removed.

        The next renewal or claim of a victim is answered `Gone(evicted=True, reason)`, for at least the ttl
        of the victim. A victim in `wait` is woken.

        A key of another program under this name (`Standing.foreign`) is removed only with `foreign`; if it
        would never lapse by itself, only with `no_expiry` as well. Otherwise the key stays as it is, and
        `ForeignKey` is raised. A key that cannot be a lock is never removed, and raises `ForeignKey` too.
        """
        ...

    async def watch(self, resource: str, seen: Queue, timeout: float) -> None:
        """Return when the queue may differ from `seen`, or after `timeout` seconds. May return early, and
        does when this store is closed.

        The queue differs if a claim came, left, lapsed or was admitted, or if a note changed. A renewal is no
        difference.
        """
        ...

    # ---- what has a default: see `StoreDefaults` ------------------------------------------------

    @property
    def decides_here(self) -> bool:
        """Whether this store decides on the caller's own thread, so that `claim_idle` and `release_alone`
        are worth a try.
        """
        ...

    def claim_idle(self, claim: Claim) -> Granted | None:
        """Enter this claim as `claim` does, if nobody else stands on its resource and nothing has to be
        waited for.

        Otherwise, or where this store cannot tell, the answer is None, and the caller asks `claim`. It never
        suspends, and does not wait for other threads or processes. Both ask for the same claim, so it enters
        once at most.
        """
        ...

    def release_alone(self, resource: str, id: str) -> bool:
        """Remove a claim as `release` does, if nobody stands behind it and nothing has to be waited for; True
        if that is done.

        Otherwise the caller asks `release`. It waits for nothing, as `claim_idle`.
        """
        ...

    def expect_ttl(self, ttl: float, *, at_most: bool) -> None:
        """Called once, before the first request, with the ttl that the leases of this client have unless a
        lock chooses another.

        Where claims live with a session, the session lives for that long, within the bounds of the servers.
        With `at_most` nobody has chosen this ttl: if the session is shorter, so are the leases, and
        `traits.max_ttl` says it. Otherwise a claim with a ttl longer than the session raises
        `InvalidSetting`.
        """
        ...

    def on_doubt(self, call: Callable[[], None]) -> None:
        """Arrange that `call` is called whenever another server may have taken over that does not know all
        our claims.

        `call` may be called on any thread. It returns at once and does not use the store; the keeper verifies
        all leases soon afterwards.
        """
        ...

    def on_session_lost(self, call: Callable[[Collection[str] | None], None]) -> None:
        """Arrange that `call` is called when a session has ended, with the ids of its claims, or with None
        for all claims.

        `call` may be called on any thread. This is for stores whose claims live with a session: all of them
        are lost at once, and nobody has to ask for each.
        """
        ...

    def on_session_shortened(self, call: Callable[[float, float], None]) -> None:
        """Arrange that `call` is called when a session ends sooner than was answered so far: with the instant
        from which its time counts, and the seconds that it lives from then, unless it is renewed.

        `call` may be called on any thread. It returns at once and does not use the store; no lease counts on
        more from then on.
        """
        ...

    def part(self, resource: str) -> str:
        """Name the part of the store that keeps this resource; "" if the store has only one part.

        Parts fail independently of each other, as the nodes of a Cluster do.
        """
        ...

    def inside(self) -> bool:
        """Whether the calling thread is already inside a critical section of this store.

        A signal handler or the garbage collector can run a user's code between any two instructions. If that
        code releases a lease while its thread is inside the store, using the store would deadlock: the keeper
        releases instead.
        """
        ...

    def liveness_byte(self) -> tuple[str, int] | None:
        """The file, and the byte of it, that a child process must lock so that the store counts it as a part
        of this one.

        For a store that frees the claims of a process once the process is dead: they then stand until the
        child is dead, too. None where no such store is, or where it cannot tell who is dead.
        """
        ...

    async def examine(self, timeout: float = IO_TIMEOUT) -> Examination:
        """Say how the servers are set up, and what that means for locks.

        It only reads, and never raises for a server that cannot be reached or does not tell: that is a
        finding, too. Each question has its own part of the timeout, and all of them together no more than
        it. Nothing that it returns contains a password.
        """
        ...

    def blocking(self) -> Store:
        """Return the same store for use from a plain thread, such as the keeper's; a blocking store
        returns itself.
        """
        ...

    def for_keeper(self) -> Store:
        """Return the same store for the keeper alone; itself if no call of others can delay a renewal.

        A store that has connections gives the keeper one of its own, and makes it before the first claim is
        granted: otherwise a server that accepts no more connections would grant leases that nobody can renew.
        """
        ...

    def after_fork(self) -> None:
        """Called in a forked child: forget all connections without using or closing them.

        The next call makes new ones.
        """
        ...

    async def close(self) -> None:
        """Close the connections. Claims stay until they are released or lapse.

        Whoever waits in `wait`, `watch` or `watch_register` of this store object is woken: the call returns
        or raises at once, and so does one that begins later.
        """
        ...


class StoreDefaults:
    """The second half of `Store`, for a store that does nothing special: an author inherits it.

    It suits a store whose claims lapse one by one, whose server nobody takes over from, and that has no
    connection apart for the keeper. A session store overrides `on_session_lost`, a replicated one
    `on_doubt`, a store of several parts `part`, and every store with connections `after_fork` and `close`.
    """

    decides_here = False

    async def confirm_read(self, name: str, version: int, timeout: float = IO_TIMEOUT) -> bool:
        """True: what this store reads is as sure as what it writes."""
        return True

    def expect_ttl(self, ttl: float, *, at_most: bool) -> None:
        """Nothing to do: each claim has a ttl of its own, and no session bounds it."""

    def claim_idle(self, claim: Claim) -> Granted | None:
        """None: every claim is a question to a server."""
        return None

    def release_alone(self, resource: str, id: str) -> bool:
        """False: so is every release."""
        return False

    def on_doubt(self, call: Callable[[], None]) -> None:
        """Never calls: nobody can take over from this store."""

    def on_session_lost(self, call: Callable[[Collection[str] | None], None]) -> None:
        """Never calls: claims lapse one by one."""

    def on_session_shortened(self, call: Callable[[float, float], None]) -> None:
        """Never calls: what was answered stays true."""

    def part(self, resource: str) -> str:
        """The only one."""
        return ""

    def inside(self) -> bool:
        """Never: this store has no critical sections. A store that has a mutex asks it."""
        return False

    def liveness_byte(self) -> tuple[str, int] | None:
        """None: this store does not free the claims of dead processes before they lapse."""
        return None

    async def examine(self, timeout: float = IO_TIMEOUT) -> Examination:
        """Nothing is known but the traits."""
        return Examination()

    def blocking(self) -> Store:
        """Itself: this store is a blocking one. An asyncio store returns its blocking side."""
        return cast(Store, self)

    def for_keeper(self) -> Store:
        """Itself: nothing that others ask can hold up a renewal."""
        return cast(Store, self)

    def after_fork(self) -> None:
        """Nothing is shared with the parent."""

    async def close(self) -> None:
        """Nothing is open."""


class NoRegisters:
    """The methods of `Register`, as a store has them that keeps none (`Traits.registers`)."""

    no_registers: str
    """Says why there are none, and which store has them."""

    async def read(self, name: str, timeout: float = IO_TIMEOUT) -> Versioned:
        raise Unsupported(self.no_registers)

    async def compare_and_set(
        self, name: str, version: int, value: str | None, id: str, timeout: float = IO_TIMEOUT
    ) -> Versioned | None:
        raise Unsupported(self.no_registers)

    async def confirm_read(self, name: str, version: int, timeout: float = IO_TIMEOUT) -> bool:
        raise Unsupported(self.no_registers)

    async def watch_register(self, name: str, version: int, timeout: float) -> None:
        raise Unsupported(self.no_registers)
