"""The sync API: what `import interlock` offers, driven on the caller's own thread.

Nothing is decided here: each method asks the core, where every algorithm stands. What needs no waiting stands
in `_mixins.py`, once for this API and for `interlock.aio`. A test keeps the names, arguments and docstrings
of the two in step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

from interlock import events, urls
from interlock._api.construction import check_reach, made
from interlock._api.mixins import (
    BarrierMixin,
    ClientMixin,
    ConditionMixin,
    DecoratorMixin,
    ElectionMixin,
    EventMixin,
    GuardMixin,
    LatchMixin,
    LeaseMixin,
    LockMixin,
    MultiLeaseMixin,
    MultiLockMixin,
    Named,
    OnceMixin,
    OnceRunMixin,
    RegisterMixin,
    RWLockMixin,
    SemaphoreMixin,
    load_parts,
)
from interlock._core import lease as lease_core
from interlock._core.client import Client as CoreClient
from interlock._core.drive import drive
from interlock._core.reentry import Entry, Reentrant
from interlock._runtime import lifetimes
from interlock._runtime.identity import described_at
from interlock._runtime.threads import blocking_runtime
from interlock._runtime.with_statements import ExitMethod, OtherExit, entered, entering
from interlock.errors import Skipped
from interlock.model import Queue, Standing, Value

if TYPE_CHECKING:
    from interlock._core.election import Leader
    from interlock.doctor.diagnosis import Diagnosis, Health

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:

    def _exit(
        self: object,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What a type checker sees of `ExitMethod`."""


class Lease(LeaseMixin):
    """The proof that you hold a resource, from the grant until you release it or it is lost.

    A lease is renewed in the background for as long as its owner lives. It knows by its own clock when it is
    lost: then `check()` raises `LeaseLost`, `lost` is set and `on_lost` is called. Its `token` is greater
    than the token of every earlier lease on the resource, so that the resource can refuse the late writes of
    an earlier holder.

    A lease is true, and equal to True, which is what the locks of `threading` return.
    """

    __slots__ = ()

    @property
    def lost(self) -> threading.Event:
        """An event that is set once the lease is lost."""
        signal = self._lost_signal()
        assert isinstance(signal, threading.Event)
        return signal

    def renew(self) -> None:
        """Extend the lease to a whole ttl from now.

        Raises `LeaseLost` if the lease was lost, and `StoreUnavailable` if the store does not answer.
        """
        drive(self._renew_now())

    def wait_for_loss(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost or released; return False after `timeout` seconds (default: never).

        It watches the store, so that an eviction is noticed at once; otherwise a holder learns of it when the
        lease is renewed.
        """
        return drive(self._wait_for_loss(timeout))

    def release(self) -> None:
        """Give the resource back.

        Raises `LeaseLost` if the lease was lost, and `NotHeld` if it was released before.
        """
        drive(self._give_back(strict=True, by=self._runtime.owner()))

    def __enter__(self) -> Lease:
        entered(self, self)
        self.check()
        return self

    if TYPE_CHECKING:
        __exit__ = _exit
    else:

        @ExitMethod
        def __exit__(statement, self, kind, error, trace):
            drive(self._holding.leave(self, error))
            statement.end()


class MultiLease(MultiLeaseMixin[Lease]):
    """The leases of a multilock, in `leases`, sorted by the names of their resources."""

    def release(self) -> None:
        """Release all of them, even if one fails; then raise the first failure."""
        drive(self._multi.give_back(self.leases, None, by=self._multi.client.runtime.owner()))


class _Decorator(DecoratorMixin):
    """A context manager that also works as a decorator."""

    if TYPE_CHECKING:

        def __enter__(self) -> Any: ...

        __exit__ = _exit

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: each call takes a lease of its own and runs the function under it.

        Parts of the name may come from the arguments of a call, as in "ship:{order_id}"; write {{ and }} for
        braces that belong to the name. A name that no call can fill in raises `InvalidName` here.

        A generator function raises TypeError, because no thread owns a generator: take the lock inside it.
        """
        from interlock._api import decorated  # here, not above: `import interlock` stays light

        if (method := decorated.rewrapped(self, function)) is not None:
            return cast("Callable[P, R]", method)
        decorated.refuse_coroutine(function)
        decorated.refuse_context_manager(function)
        decorated.refuse_generator(function, decorated.LOCK_INSIDE)
        lock = self._for_calls(function)

        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            with lock(args, kwargs):
                result = function(*args, **kwargs)
                if type(result) in decorated.UNFINISHED:
                    raise decorated.unfinished(function, result)
                return result

        return guarded


class _Context(Named):
    """A context manager whose body runs under one lease."""

    _core: Any  # a kind of Holding

    def __enter__(self) -> Lease:
        attempt = self._core.attempt()
        statement = entered(self, attempt)
        try:
            taken: Any = attempt.at_once()
            if taken is None:
                taken = drive(attempt.run())
            if taken is None:
                raise drive(attempt.timed_out())
            self._core.enter(attempt)
            lease: Lease = taken
            return lease
        except BaseException:  # as in Lock.acquire
            drive(attempt.undo())
            statement.end()
            raise

    if TYPE_CHECKING:
        __exit__ = _exit
    else:

        @ExitMethod
        def __exit__(statement, self, kind, error, trace):
            attempt = statement.entered or self._core.exit()
            if attempt is not None:
                drive(self._core.leave(attempt, error))
            statement.end()


class _Body(_Context, _Decorator):
    """A context manager or decorator whose body runs under one lease."""


class _AnyLock(LockMixin, _Body):
    """The methods that all locks have."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> Lease | None:
        """Take the lock and return its lease, or None if it could not be taken in time.

        The arguments are those of `threading.Lock.acquire`. It waits for ever by default, for at most
        `timeout` seconds if that is given (-1 stands for the `timeout` that this object was made with), and
        not at all with `blocking=False`. Raises `StoreUnavailable` if the store does not answer. Whatever
        interrupts it, nothing is left behind in the store.
        """
        attempt = self._core.attempt(blocking, timeout)
        try:
            lease: Lease | None = attempt.at_once()
            if lease is None:
                lease = drive(attempt.run())
            return lease
        except BaseException:  # Ctrl-C between the grant and our return: nobody would release it
            try:
                drive(attempt.undo())
            except BaseException:  # a second Ctrl-C: the keeper does the rest
                attempt._abandon()
                raise
            raise

    def acquire_or_raise(self, blocking: bool = True, timeout: float = -1) -> Lease:
        """Take the lock and return its lease; raise `AcquireTimeout`, which names the holder, if it could not
        be taken in time.

        The arguments are those of `acquire`.
        """
        attempt = self._core.attempt(blocking, timeout)
        try:
            taken: Any = drive(attempt.run())
            if taken is None:
                raise drive(attempt.timed_out())
            lease: Lease = taken
            return lease
        except BaseException:  # as in acquire
            try:
                drive(attempt.undo())
            except BaseException:  # a second Ctrl-C: the keeper does the rest
                attempt._abandon()
                raise
            raise

    def release(self) -> None:
        """Release the lease that the calling thread or task took; if it took none, the one that this object
        holds.

        Raises `NotHeld` (a RuntimeError) if there is none, and `LeaseLost` if the lease was lost. A lease
        that was taken through another object is never touched.
        """
        drive(self._core.release())

    def locked(self) -> bool:
        """Ask the store whether anybody holds the resource now."""
        return bool(drive(self._core.locked()))


class Lock(_AnyLock):
    """A lock between threads, processes and machines, used as `threading.Lock`.

        with client.lock("report:daily", timeout=5) as lease:
            save(report, token=lease.token)

    `with` waits for the lock, and raises `AcquireTimeout`, which names the holder, if it is not granted in
    time. If the lease is lost while the body runs, `LeaseLost` is raised at the end of the body. Over a
    function, as a decorator, it takes a lease for each call.
    """


class RLock(_AnyLock):
    """A lock that its owner, a thread or a task, may take again: same lease, same token, and no request to
    the store.
    """

    _core: Reentrant

    # What threading.Condition looks for in a lock that can be taken more than once.

    def _is_owned(self) -> bool:
        return self._core.owned()

    def _recursion_count(self) -> int:
        return self._core.depth()

    def _release_save(self) -> Entry:
        return drive(self._core.release_save())

    def _acquire_restore(self, saved: Entry) -> None:
        drive(self._core.acquire_restore(saved))


class ReadLock(RLock):
    """The reading side of a read-write lock: any number of readers hold it at the same time."""


class WriteLock(RLock):
    """The writing side of a read-write lock: its holder is alone."""


class RWLock(RWLockMixin[ReadLock, WriteLock]):
    """A read-write lock: readers share it, a writer has it alone.

    Readers that come later do not overtake a waiting writer.
    """

    _read_type = ReadLock
    _write_type = WriteLock


class Semaphore(SemaphoreMixin, _Body):
    """A number of permits that processes and machines share, used as `threading.Semaphore`."""

    def acquire(
        self, blocking: bool = True, timeout: float | None = None, *, permits: int = 1
    ) -> Lease | Literal[False]:
        """Take `permits` at once and return their lease, or False if they could not be taken in time.

        The arguments are those of `threading.Semaphore.acquire`: by default it waits for as long as the
        `timeout` that this object was made with.
        """
        attempt = self._core.attempt(blocking, timeout, permits=permits)
        try:
            lease = drive(attempt.run())
            return False if lease is None else _own(lease)
        except BaseException:  # as in Lock.acquire
            try:
                drive(attempt.undo())
            except BaseException:  # a second Ctrl-C: the keeper does the rest
                attempt._abandon()
                raise
            raise

    def acquire_or_raise(
        self, blocking: bool = True, timeout: float | None = None, *, permits: int = 1
    ) -> Lease:
        """Take `permits` at once and return their lease; raise `AcquireTimeout`, which names the holders, if
        they could not be taken in time.

        The arguments are those of `acquire`.
        """
        attempt = self._core.attempt(blocking, timeout, permits=permits)
        try:
            lease = drive(attempt.run())
            if lease is None:
                raise drive(attempt.timed_out())
            return _own(lease)
        except BaseException:  # as in acquire
            try:
                drive(attempt.undo())
            except BaseException:  # a second Ctrl-C: the keeper does the rest
                attempt._abandon()
                raise
            raise

    def release(self, n: int = 1) -> None:
        """Release `n` permits: first those that the caller took last, then others that were taken through
        this object.

        Permits beyond those are kept for the next acquire of this object, as `threading.Semaphore` does. A
        bounded semaphore raises ValueError instead.
        """
        drive(self._core.release_permits(n))

    def locked(self) -> bool:
        """Ask the store whether all permits are taken now."""
        return drive(self._core.full())


class BoundedSemaphore(Semaphore):
    """A semaphore that raises ValueError when more permits are released than were taken."""


class MultiLock(MultiLockMixin, _Decorator):
    """Several resources as one lock: all of them are taken, in sorted order, or none.

    The order is the same for everybody, so that two multilocks cannot wait for each other.
    """

    def acquire(self, blocking: bool = True, timeout: float = -1) -> MultiLease | None:
        """Take all of them within one timeout and return their leases; or return None, and hold none.

        The arguments are those of `Lock.acquire`.
        """
        attempt = self._core.attempt(blocking, timeout)
        try:
            leases = drive(attempt.run())
            return None if leases is None else MultiLease(self._core, [_own(lease) for lease in leases])
        except BaseException:  # as in Lock.acquire
            try:
                drive(attempt.undo())
            except BaseException:  # a second Ctrl-C: the keeper does the rest
                attempt._abandon()
                raise
            raise

    def acquire_or_raise(self, blocking: bool = True, timeout: float = -1) -> MultiLease:
        """Take all of them within one timeout and return their leases; raise `AcquireTimeout`, and hold none,
        if that fails.

        The arguments are those of `acquire`.
        """
        attempt = self._core.attempt(blocking, timeout)
        try:
            leases = drive(attempt.run())
            if leases is None:
                raise drive(attempt.timed_out())
            return MultiLease(self._core, [_own(lease) for lease in leases])
        except BaseException:  # as in Lock.acquire
            try:
                drive(attempt.undo())
            except BaseException:  # a second Ctrl-C: the keeper does the rest
                attempt._abandon()
                raise
            raise

    def release(self) -> None:
        """Release all of them, even if one fails; then raise the first failure."""
        drive(self._core.release())

    def locked(self) -> bool:
        """Ask the store whether anybody holds any of them now."""
        return drive(self._core.locked())

    def __enter__(self) -> MultiLease:
        attempt = self._core.attempt()
        statement = entered(self, attempt)
        try:
            leases = drive(attempt.run())
            if leases is None:
                raise drive(attempt.timed_out())
            self._core.enter(attempt)
            return MultiLease(self._core, [_own(lease) for lease in leases])
        except BaseException:  # as in Lock.acquire
            drive(attempt.undo())
            statement.end()
            raise

    if TYPE_CHECKING:
        __exit__ = _exit
    else:

        @ExitMethod
        def __exit__(statement, self, kind, error, trace):
            drive(self._core.leave(statement.entered or self._core.exit(), error))
            statement.end()


class Once(OnceMixin, _Context):
    """Run something once at a time among all workers: the first one runs it, and the others do not wait.

    As a decorator: if another worker runs the function, a call skips it, writes one line to the log and
    returns a false `Skipped`, which names the holder. In a `with`, which cannot skip its body, `Skipped` is
    raised.
    """

    def __call__(self, function: Callable[P, R]) -> Callable[P, R | Skipped]:
        """Decorate a function: each call runs it under a lease of its own, or skips it."""
        from interlock._api import decorated

        if (method := decorated.rewrapped(self, function)) is not None:
            return cast("Callable[P, R | Skipped]", method)
        decorated.refuse_context_manager(function)
        decorated.refuse_generator(function, decorated.NOT_SKIPPED)
        decorated.refuse_coroutine(function)
        holding = self._once.over(function)

        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | Skipped:
            run = made(_OnceRun, holding(args, kwargs))
            try:
                with run:
                    result = function(*args, **kwargs)
                    if type(result) in decorated.UNFINISHED:
                        raise decorated.unfinished(function, result)
                    return result
            except Skipped as skipped:
                if (
                    skipped is not run.skipped
                ):  # raised by the function itself, for something else that runs once
                    raise
                return Skipped(skipped.resource, skipped.holder)

        return guarded


class _OnceRun(OnceRunMixin, _Context):
    """One run of a function that runs once."""


class Election(ElectionMixin):
    """An election: at most one candidate leads, and everybody can read which one and the value it
    proclaims.
    """

    def campaign(self, value: str = "", *, blocking: bool = True, timeout: float = -1) -> Lease | None:
        """Stand for election with `value`, an address for example; return the lease once elected, or None.

        `blocking` and `timeout` are those of `Lock.acquire`.
        """
        attempt = self._core.attempt(value, blocking, timeout)
        try:
            lease = drive(attempt.run())
            return None if lease is None else _own(lease)
        except BaseException:  # as in Lock.acquire
            try:
                drive(attempt.undo())
            except BaseException:  # a second Ctrl-C: the keeper does the rest
                attempt._abandon()
                raise
            raise

    def proclaim(self, value: str) -> None:
        """Change the leader's value without a new election; raise `NotHeld` or `LeaseLost` if this one
        does not lead.
        """
        drive(self._core.proclaim(value))

    def resign(self) -> None:
        """Give up leadership: the next candidate is elected."""
        drive(self._core.resign())

    def leader(self) -> Leader | None:
        """Ask the store who leads now; None if nobody does."""
        return drive(self._core.leader())

    def observe(self, timeout: float | None = None) -> Iterator[Leader | None]:
        """Yield the leader now, and again after each change of the leader or its value.

        Ends if nothing changes for `timeout` seconds (default: never).
        """
        seen: Queue | None = None
        known: Leader | None = None
        while (found := drive(self._core.next(seen, known, timeout))) is not None:
            seen, known = found
            yield known


class Register(RegisterMixin):
    """A JSON value with a version, for optimistic locking. Versions only grow, and none is used twice."""

    def read(self) -> Value[Any]:
        """Return the value and its version; None and 0 if nothing was written yet."""
        return Value(*drive(self._core.read()))

    def compare_and_set(self, expected: Value[Any] | int, value: Any) -> Value[Any] | None:
        """Write `value` if the register is still at the version `expected`; return None if it has changed.

        Writing None deletes the value. A write that succeeded is not taken for a conflict when its reply is
        lost. What is returned has the value as everybody reads it from then on: JSON knows no tuples, and its
        keys are texts.
        """
        version = expected.version if isinstance(expected, Value) else expected
        value = self._core.as_read(value)
        written = drive(self._core.compare_and_set(version, value))
        return None if written is None else Value(value, written)

    def update(self, function: Callable[[Any], Any]) -> Value[Any]:
        """Replace the value by `function(value)` and return what was written.

        If somebody else writes in between, the function is called again with the new value.
        """

        def decide(value: Any) -> tuple[Any, Any]:
            new = self._core.as_read(function(value))
            return new, new

        return Value(*drive(self._core.change(decide)))

    def watch(self, timeout: float | None = None) -> Iterator[Value[Any]]:
        """Yield the value now, and again after each change that is seen.

        Ends if nothing changes for `timeout` seconds (default: never).
        """
        seen = -1
        while (found := drive(self._core.differing(seen, timeout))) is not None:
            seen = found[1]
            yield Value(*found)


class Event(EventMixin):
    """A flag that all processes see, used as `threading.Event`."""

    def is_set(self) -> bool:
        """Ask the store whether the flag is set."""
        return drive(self._core.is_set())

    def set(self) -> None:
        """Set the flag, and wake everybody who waits for it."""
        drive(self._core.set())

    def clear(self) -> None:
        """Clear the flag."""
        drive(self._core.clear())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the flag: return True once it was set, even if it was cleared at once; False after
        `timeout` seconds.
        """
        return drive(self._core.wait(timeout))


class Latch(LatchMixin):
    """A count that goes down to 0 once, and wakes everybody who waits for that."""

    def count(self) -> int:
        """Ask the store how much is left of the count."""
        return drive(self._core.count())

    def count_down(self, n: int = 1) -> int:
        """Take `n` off the count, but not below 0; return how much is left."""
        return drive(self._core.count_down(n))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the count to be 0: return True then, and False after `timeout` seconds."""
        return drive(self._core.wait(timeout))

    def reset(self) -> None:
        """Start again from the full count.

        Until it is counted down again, the store keeps nothing of the latch.
        """
        drive(self._core.reset())


class Barrier(BarrierMixin):
    """A point at which `parties` processes wait for each other, used as `threading.Barrier`."""

    @property
    def n_waiting(self) -> int:
        """How many have arrived and wait. Asks the store."""
        return drive(self._core.n_waiting())

    @property
    def broken(self) -> bool:
        """Whether the barrier is broken. Asks the store."""
        return drive(self._core.broken())

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all parties have arrived; return the caller's number in the order of arrival, from 0 to
        parties - 1.

        The last one to arrive runs the `action` first. Raises `BrokenBarrier` if the barrier is aborted or
        reset meanwhile. After `timeout` seconds it breaks the barrier for everybody, and raises
        `BrokenBarrier`.
        """
        return drive(self._core.wait(timeout))

    def abort(self) -> None:
        """Break the barrier: everybody who waits or arrives gets `BrokenBarrier` until it is reset."""
        drive(self._core.abort())

    def reset(self) -> None:
        """Empty the barrier, and mend it if it is broken; those who wait get `BrokenBarrier`."""
        drive(self._core.reset())


class Condition(ConditionMixin):
    """A condition variable for all processes, used as `threading.Condition`; its lock is an rlock by
    default.
    """

    def acquire(self, blocking: bool = True, timeout: float = -1) -> Any:
        """Take the condition's lock; return what its own `acquire` returns."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Release the condition's lock."""
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait to be notified and take the lock again; return False after `timeout`
        seconds.

        It may return True without a notification after the store was out of reach. So check what you wait for
        in a loop, or use `wait_for`.

        Raises `NotHeld` unless the caller holds the lock. When it returns or is interrupted, the caller has
        taken the lock again, as in `threading`; only if the store does not answer, it raises
        without it.
        """
        return drive(self._core.wait(timeout))

    def wait_for(self, predicate: Callable[[], R], timeout: float | None = None) -> R:
        """Wait until `predicate()` is true, or for `timeout` seconds; return its last value."""
        return drive(self._core.wait_for(predicate, timeout))

    def notify(self, n: int = 1) -> None:
        """Wake up to `n` of those who wait, in the order in which they came.

        The caller must hold the lock.
        """
        drive(self._core.notify(n))

    def notify_all(self) -> None:
        """Wake everybody who waits. The caller must hold the lock."""
        drive(self._core.notify_all())

    def __enter__(self) -> Any:
        entering(self, self._lock)
        return self._lock.__enter__()

    if TYPE_CHECKING:
        __exit__ = _exit
    else:

        @OtherExit
        def __exit__(self):
            return self._lock


class Guard(GuardMixin):
    """The highest token that was accepted so far, kept in the store, for resources that cannot check
    tokens themselves.
    """

    def accept(self, lease: Lease | int) -> int:
        """Accept the token of a lease and return it; raise `StaleToken` if a higher one was accepted before.

        Raises `LeaseLost` or `NotHeld` if the lease is known to have ended, and `Unsupported` if it is the
        lease of another resource, of a semaphore or of a read lock.
        """
        return drive(self._core.accept(lease))

    def highest(self) -> int:
        """Ask the store for the highest token that was accepted; 0 if there is none."""
        return drive(self._core.highest())


class Client(
    ClientMixin[
        Lease,
        Lock,
        RLock,
        RWLock,
        Semaphore,
        BoundedSemaphore,
        MultiLock,
        Once,
        Election,
        Register,
        Event,
        Latch,
        Barrier,
        Condition,
        Guard,
    ]
):
    """A connection to one store: it makes locks and everything else that lives there.

    Any number of threads may use one client. A thread of its own renews all leases that are held through it.
    """

    _lock_type = Lock
    _rlock_type = RLock
    _rwlock_type = RWLock
    _semaphore_type = Semaphore
    _bounded_semaphore_type = BoundedSemaphore
    _multilock_type = MultiLock
    _once_type = Once
    _election_type = Election
    _register_type = Register
    _event_type = Event
    _latch_type = Latch
    _barrier_type = Barrier
    _condition_type = Condition
    _guard_type = Guard

    # ---- for operators -------------------------------------------------------------

    def inspect(self, name: str, *, limit: int | None = None) -> Queue:
        """Ask the store who holds the resource and who waits for it, in order; with `limit`, only so many of
        them.
        """
        from interlock._core import watching

        return drive(watching.inspected(self._core, name, limit))

    def scan(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all resources that are held or waited for, in order; they are read page by
        page.
        """
        from interlock._core import watching

        after = ""
        while names := drive(watching.page(self._core, prefix, after)):
            yield from watching.without_internal_queues(names)
            after = names[-1]

    def watch(self, name: str, timeout: float | None = None) -> Iterator[Queue]:
        """Yield the holders and waiters of a resource now, and again after each change.

        Ends if nothing changes for `timeout` seconds (default: never).
        """
        from interlock._core import watching

        seen: Queue | None = None
        while (seen := drive(watching.watched(self._core, name, seen, timeout))) is not None:
            yield seen

    def evict(
        self,
        name: str,
        *,
        reason: str,
        id: str | None = None,
        foreign: bool = False,
        no_expiry: bool = False,
    ) -> list[Standing]:
        """Take the resource away from its holders, or remove the one claim `id`; return what was removed.

        The holder gets `LeaseLost` with the reason at its next renewal. Until then it may believe that it
        still holds the resource: only a resource that checks tokens refuses its late writes.

        A key of another program under this name (an old `SET NX` lock, or anything else) raises `ForeignKey`
        and is left alone, unless `foreign` is given. A key without an expiry needs `no_expiry` as well.
        """
        from interlock._core import watching

        return drive(watching.evicted(self._core, name, id, reason, foreign, no_expiry))

    def health(self, timeout: float = 2.0) -> Health:
        """Ask the store one question within `timeout` seconds, for a readiness probe; `if client.health():`.

        Never raises for a store that does not answer: `Health.why` says why not.
        """
        from interlock.doctor import examination

        return drive(examination.checked_health(self._core, timeout))

    def diagnose(self, timeout: float = 15.0, *, probe: bool = False) -> Diagnosis:
        """Say what this deployment promises: what is dangerous, what mends it, what each failure would do.

        It reads only, within `timeout` seconds, and raises nothing for servers that do not answer. With
        `probe` it also takes, renews, hands over and releases one lock under the name `interlock/doctor`, and
        measures that.
        """
        from interlock.doctor import examination

        return drive(examination.diagnosed(self._core, self._store, timeout, probe=probe))

    # ---- the end ---------------------------------------------------------------------

    def close(self) -> None:
        """Release everything that is held, and close the connections. Closing twice is harmless."""
        drive(self._core.close())

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        drive(self._core.close(error))


def connect(
    url: urls.URLOrClient | None = None,
    *,
    ttl: float | None = None,
    connect_timeout: float | None = None,
    listener: Callable[[events.Event], object] | None = None,
    log: bool = True,
    call_site: str | None = None,
    requires: Literal["process", "machine", "network"] | None = None,
) -> Client:
    """Return a client of the store at `url`; without one, at $INTERLOCK_URL, else in this user's own SQLite
    file.

        with interlock.connect("redis://localhost:6379/0", ttl=10) as client:
            ...

    A client object of redis-py or valkey-py, sync or async, can stand in place of a URL: its address, TLS
    settings and credentials are used, its connections are not.

    - `ttl`: how many seconds leases live unless they are renewed; the default for all locks of this client.
      It is 30 if you do not choose one, or less where the servers end sessions sooner.
    - `connect_timeout`: how many seconds it may take to connect to a server (default: 5, or what the URL
      says, as in `?connect_timeout=2`). It comes on top of the timeout of the call that connects first, even
      with `blocking=False`. From then on connecting counts within the timeout of a call, and `blocking=False`
      gives it as long as the last connection took, and a second. Embedded stores have no use for it.
    - `listener`: called with every event, besides what is written to the log `interlock`.
    - `log`: False writes nothing to the log; then only the listener hears of events.
    - `call_site`: shown to operators as the place from which locks are taken, instead of the thread and the
      line of code: for a program whose own lines tell nobody anything.
    - `requires`: refuses a store that does not reach so far, with `Unsupported`: "network" refuses a lock
      file, "machine" also `memory://`. The default is $INTERLOCK_REQUIRES, else nothing is refused.
    """
    from interlock._support.log import (  # here, not above: `import interlock` stays light
        Log,
        callback_reporter,
    )

    load_parts()
    listen = Log(listener) if log else listener
    runtime = blocking_runtime(callback_reporter(listen))
    if call_site is not None:
        runtime.who = described_at(call_site)
    store = urls.open_store(url, runtime, asynchronous=False, connect_timeout=connect_timeout)
    check_reach(store, requires)
    core = CoreClient(store, runtime, runtime.for_keeper(), ttl=ttl, listener=listen, lease_type=Lease)
    lifetimes.follow(core)
    client = Client(core, urls.named(url))
    options = {
        "ttl": ttl,
        "connect_timeout": connect_timeout,
        "listener": listener,
        "log": log,
        "call_site": call_site,
        "requires": requires,
    }
    client._origin = (connect, urls.settled(url), options)
    return client


def _own(lease: lease_core.Lease) -> Lease:
    assert isinstance(lease, Lease)
    return lease
