"""The async API: the same names as in `interlock`, awaited.

    async with interlock.aio.connect() as client:
        async with client.lock("report:daily") as lease:
            ...

If a lease is lost while the body of an `async with` runs under it, the body is cancelled at its next await,
before the lease can end, and `LeaseLost` leaves the `async with`.

Nothing is decided here: each method asks the core, where every algorithm stands. What needs no `await` stands
in `_mixins.py`, once for this API and for the sync one. A test keeps the names, arguments and docstrings of
the two in step.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import wraps
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

from interlock import events, urls
from interlock._api.construction import check_reach, made
from interlock._api.decorated import (
    LOCK_INSIDE,
    NOT_SKIPPED,
    UNFINISHED,
    refuse_context_manager,
    refuse_generator,
    require_coroutine,
    rewrapped,
    unfinished,
)
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
from interlock._core import watching
from interlock._core.client import Client as CoreClient
from interlock._core.election import Leader
from interlock._core.multilock import MultiAttempt
from interlock._core.runtime import Owner
from interlock._runtime import lifetimes
from interlock._runtime.identity import described_at
from interlock._runtime.tasks import LoopOwner, TaskOwner, Tasks, TaskSignal
from interlock._runtime.threads import Threads
from interlock._runtime.with_statements import ExitMethod, OtherExit, Statement, entered, entering
from interlock._support.inline_resume import task_of
from interlock._support.log import Log, callback_reporter
from interlock.errors import Skipped
from interlock.model import Queue, Standing, Value

if sys.version_info >= (3, 12):
    from inspect import markcoroutinefunction

__all__ = [
    "Barrier",
    "BoundedSemaphore",
    "Client",
    "Condition",
    "Election",
    "Event",
    "Guard",
    "Latch",
    "Lease",
    "Lock",
    "MultiLease",
    "MultiLock",
    "Once",
    "RLock",
    "RWLock",
    "ReadLock",
    "Register",
    "Semaphore",
    "Value",
    "WriteLock",
    "connect",
]

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=Callable[..., Any])

if TYPE_CHECKING:
    from interlock.doctor.diagnosis import Diagnosis, Health

    async def _aexit(
        self: object,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What a type checker sees of `ExitMethod`."""


def _leave_soon(
    statement: Statement,
    manager: Any,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> Coroutine[Any, Any, None]:
    """An `__aexit__`: from here on the coroutine releases, even if it is cancelled; nobody need watch the
    statement.
    """
    leaving: Coroutine[Any, Any, None] = manager._leave(statement.entered, error)
    statement.end()
    return leaving


def _coroutine_function(method: M) -> M:
    """Mark a method that returns a coroutine, for mocks and others that ask whether it is a coroutine
    function.

    It is not `async def`, because its caller owns the lease: `wait_for(lock.acquire(), 5)` runs the coroutine
    in a task of asyncio's own.
    """
    if sys.version_info >= (3, 12):
        return markcoroutinefunction(method)
    method._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return method


class Lease(LeaseMixin):
    """The proof that you hold a resource, from the grant until you release it or it is lost.

    A lease is renewed in the background for as long as its owner lives. It knows by its own clock when it is
    lost: then `check()` raises `LeaseLost`, `lost` is set and `on_lost` is called. Its `token` is greater
    than the token of every earlier lease on the resource, so that the resource can refuse the late writes of
    an earlier holder.

    A lease is true, and equal to True, which is what the locks of `threading` return.
    """

    __slots__ = ("_cancelling",)

    _cancelling: int  # how often the body's task had been cancelled by others when the body began

    @property
    def lost(self) -> TaskSignal:
        """An event that is set once the lease is lost."""
        signal = self._lost_signal()
        assert isinstance(signal, TaskSignal)
        return signal

    async def renew(self) -> None:
        """Extend the lease to a whole ttl from now.

        Raises `LeaseLost` if the lease was lost, and `StoreUnavailable` if the store does not answer.
        """
        await self._renew_now()

    async def wait_for_loss(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost or released; return False after `timeout` seconds (default: never).

        It watches the store, so that an eviction is noticed at once; otherwise a holder learns of it when the
        lease is renewed.
        """
        return await self._wait_for_loss(timeout)

    @_coroutine_function
    def release(self) -> Coroutine[Any, Any, None]:
        """Give the resource back.

        Raises `LeaseLost` if the lease was lost, and `NotHeld` if it was released before.
        """
        return self._give_back(strict=True, by=self._runtime.owner())

    async def __aenter__(self) -> Lease:
        entered(self, self)
        self.check()
        self._begin_body()
        return self

    async def _leave(self, entered: object, error: BaseException | None) -> None:
        await self._holding.leave(self, self._end_body(error))

    def _begin_body(self) -> None:
        """From here on a loss of the lease cancels the calling task, which runs the body."""
        body = self._body
        if not self._bodies:
            task = task_of(asyncio.get_running_loop())
            self._cancelling = 0 if task is None else task.cancelling()
            # Another task may have taken it.
            if task is None or type(body) is not TaskOwner or body._task() is not task:
                body = self._runtime.runner()
        self._enter_body(body)

    def _end_body(self, error: BaseException | None) -> BaseException | None:
        """Return the exception of the body; None in place of a cancellation that only told it of the loss."""
        if self._leave_body() and (task := asyncio.current_task()) is not None:
            # Only if nobody else wants this task cancelled: their cancellation must go on.
            if task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
                return None
        return error

    def _belong_to(self, owner: Owner) -> Lease:
        """Belong to the caller of `acquire`, which may have run in a task that was made only for it.

        gather, create_task, shield and, before Python 3.12, wait_for make a task of the coroutine that they
        get. That task is over when it has the lease, so that nobody would renew it. If the caller itself is
        gone by then, the event loop owns the lease, because somebody else waits for it.
        """
        if not owner.alive():
            self._set_owner(LoopOwner(asyncio.get_running_loop()))
        if type(owner) is not TaskOwner:
            # Another thread asked this loop: the runtime must know where to tell of a loss.
            self._runtime.owner()
        return self

    if TYPE_CHECKING:
        __aexit__ = _aexit
    else:
        __aexit__ = ExitMethod(_leave_soon)


class MultiLease(MultiLeaseMixin[Lease]):
    """The leases of a multilock, in `leases`, sorted by the names of their resources."""

    @_coroutine_function
    def release(self) -> Coroutine[Any, Any, None]:
        """Release all of them, even if one fails; then raise the first failure."""
        return self._multi.give_back(self.leases, None, by=self._multi.client.runtime.owner())


class _Decorator(DecoratorMixin):
    """A context manager that also works as a decorator."""

    if TYPE_CHECKING:

        async def __aenter__(self) -> Any: ...

        __aexit__ = _aexit

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Decorate a function: each call takes a lease of its own and runs the function under it.

        Parts of the name may come from the arguments of a call, as in "ship:{order_id}"; write {{ and }} for
        braces that belong to the name. A name that no call can fill in raises `InvalidName` here.

        A generator function raises TypeError, because no task owns a generator: take the lock inside it.
        """
        if (method := rewrapped(self, function)) is not None:
            return cast("Callable[P, Coroutine[Any, Any, R]]", method)
        refuse_context_manager(function)
        refuse_generator(function, LOCK_INSIDE)
        require_coroutine(function)
        lock = self._for_calls(function)

        @wraps(function)
        async def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            async with lock(args, kwargs):
                result = await function(*args, **kwargs)
                if type(result) in UNFINISHED:
                    raise unfinished(function, result)
                return result

        return guarded


class _Context(Named):
    """A context manager whose body runs under one lease."""

    _core: Any  # a kind of Holding

    async def __aenter__(self) -> Lease:
        attempt = self._core.attempt()
        entered(self, attempt)
        lease: Lease | None = await attempt.run()
        if lease is None:
            raise await attempt.timed_out()
        self._core.enter(attempt)
        lease._begin_body()
        return lease

    async def _leave(self, entered: Any, error: BaseException | None) -> None:
        attempt = entered or self._core.exit()
        if attempt is not None:
            await self._core.leave(attempt, attempt.lease._end_body(error))

    if TYPE_CHECKING:
        __aexit__ = _aexit
    else:
        __aexit__ = ExitMethod(_leave_soon)


class _Body(_Context, _Decorator):
    """A context manager or decorator whose body runs under one lease."""


class _AnyLock(LockMixin, _Body):
    """The methods that all locks have."""

    @_coroutine_function
    def acquire(self, blocking: bool = True, timeout: float = -1) -> Coroutine[Any, Any, Lease | None]:
        """Take the lock and return its lease, or None if it could not be taken in time.

        The arguments are those of `threading.Lock.acquire`. It waits for ever by default, for at most
        `timeout` seconds if that is given (-1 stands for the `timeout` that this object was made with), and
        not at all with `blocking=False`. Raises `StoreUnavailable` if the store does not answer. Whatever
        interrupts it, nothing is left behind in the store.
        """
        return self._acquire(self._core.client.runtime.owner(), blocking, timeout)

    async def _acquire(self, owner: Owner, blocking: bool, timeout: float) -> Lease | None:
        attempt = self._core.attempt(blocking, timeout, owner=owner)
        lease: Lease | None = await attempt.run()
        if lease is None or (attempt.runner is owner and type(owner) is TaskOwner):
            return lease  # the task that asked runs this itself
        return lease._belong_to(owner)

    @_coroutine_function
    def acquire_or_raise(self, blocking: bool = True, timeout: float = -1) -> Coroutine[Any, Any, Lease]:
        """Take the lock and return its lease; raise `AcquireTimeout`, which names the holder, if it could not
        be taken in time.

        The arguments are those of `acquire`.
        """
        return self._acquire_or_raise(self._core.client.runtime.owner(), blocking, timeout)

    async def _acquire_or_raise(self, owner: Owner, blocking: bool, timeout: float) -> Lease:
        attempt = self._core.attempt(blocking, timeout, owner=owner)
        lease: Lease | None = await attempt.run()
        if lease is None:
            raise await attempt.timed_out()
        return lease._belong_to(owner)

    @_coroutine_function
    def release(self) -> Coroutine[Any, Any, None]:
        """Release the lease that the calling thread or task took; if it took none, the one that this object
        holds.

        Raises `NotHeld` (a RuntimeError) if there is none, and `LeaseLost` if the lease was lost. A lease
        that was taken through another object is never touched.
        """
        releasing: Coroutine[Any, Any, None] = self._core.release()
        return releasing

    async def locked(self) -> bool:
        """Ask the store whether anybody holds the resource now."""
        return bool(await self._core.locked())


class Lock(_AnyLock):
    """A lock between threads, processes and machines, used as `threading.Lock`.

        async with client.lock("report:daily", timeout=5) as lease:
            save(report, token=lease.token)

    `async with` waits for the lock, and raises `AcquireTimeout`, which names the holder, if it is not granted
    in time. If the lease is lost while the body runs, the body is cancelled at its next await, and
    `LeaseLost` leaves the `async with`. Over a function, as a decorator, it takes a lease for each call.
    """


class RLock(_AnyLock):
    """A lock that its owner, a thread or a task, may take again: same lease, same token, and no request to
    the store.
    """


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

    @_coroutine_function
    def acquire(
        self, blocking: bool = True, timeout: float | None = None, *, permits: int = 1
    ) -> Coroutine[Any, Any, Lease | Literal[False]]:
        """Take `permits` at once and return their lease, or False if they could not be taken in time.

        The arguments are those of `threading.Semaphore.acquire`: by default it waits for as long as the
        `timeout` that this object was made with.
        """
        return self._acquire(self._core.client.runtime.owner(), blocking, timeout, permits)

    async def _acquire(
        self, owner: Owner, blocking: bool, timeout: float | None, permits: int
    ) -> Lease | Literal[False]:
        lease = await self._core.attempt(blocking, timeout, permits=permits, owner=owner).run()
        return False if lease is None else _own(lease)._belong_to(owner)

    @_coroutine_function
    def acquire_or_raise(
        self, blocking: bool = True, timeout: float | None = None, *, permits: int = 1
    ) -> Coroutine[Any, Any, Lease]:
        """Take `permits` at once and return their lease; raise `AcquireTimeout`, which names the holders, if
        they could not be taken in time.

        The arguments are those of `acquire`.
        """
        return self._acquire_or_raise(self._core.client.runtime.owner(), blocking, timeout, permits)

    async def _acquire_or_raise(
        self, owner: Owner, blocking: bool, timeout: float | None, permits: int
    ) -> Lease:
        attempt = self._core.attempt(blocking, timeout, permits=permits, owner=owner)
        lease = await attempt.run()
        if lease is None:
            raise await attempt.timed_out()
        return _own(lease)._belong_to(owner)

    @_coroutine_function
    def release(self, n: int = 1) -> Coroutine[Any, Any, None]:
        """Release `n` permits: first those that the caller took last, then others that were taken through
        this object.

        Permits beyond those are kept for the next acquire of this object, as `threading.Semaphore` does. A
        bounded semaphore raises ValueError instead.
        """
        return self._core.release_permits(n, self._core.client.runtime.owner())

    async def locked(self) -> bool:
        """Ask the store whether all permits are taken now."""
        return await self._core.full()


class BoundedSemaphore(Semaphore):
    """A semaphore that raises ValueError when more permits are released than were taken."""


class MultiLock(MultiLockMixin, _Decorator):
    """Several resources as one lock: all of them are taken, in sorted order, or none.

    The order is the same for everybody, so that two multilocks cannot wait for each other.
    """

    @_coroutine_function
    def acquire(self, blocking: bool = True, timeout: float = -1) -> Coroutine[Any, Any, MultiLease | None]:
        """Take all of them within one timeout and return their leases; or return None, and hold none.

        The arguments are those of `Lock.acquire`.
        """
        return self._acquire(self._core.client.runtime.owner(), blocking, timeout)

    async def _acquire(self, owner: Owner, blocking: bool, timeout: float) -> MultiLease | None:
        leases = await self._core.attempt(blocking, timeout, owner).run()
        if leases is None:
            return None
        return MultiLease(self._core, [_own(lease)._belong_to(owner) for lease in leases])

    @_coroutine_function
    def acquire_or_raise(self, blocking: bool = True, timeout: float = -1) -> Coroutine[Any, Any, MultiLease]:
        """Take all of them within one timeout and return their leases; raise `AcquireTimeout`, and hold none,
        if that fails.

        The arguments are those of `acquire`.
        """
        return self._acquire_or_raise(self._core.client.runtime.owner(), blocking, timeout)

    async def _acquire_or_raise(self, owner: Owner, blocking: bool, timeout: float) -> MultiLease:
        attempt = self._core.attempt(blocking, timeout, owner)
        leases = await attempt.run()
        if leases is None:
            raise await attempt.timed_out()
        return MultiLease(self._core, [_own(lease)._belong_to(owner) for lease in leases])

    @_coroutine_function
    def release(self) -> Coroutine[Any, Any, None]:
        """Release all of them, even if one fails; then raise the first failure."""
        return self._core.release(self._core.client.runtime.owner())

    async def locked(self) -> bool:
        """Ask the store whether anybody holds any of them now."""
        return await self._core.locked()

    async def __aenter__(self) -> MultiLease:
        attempt = self._core.attempt()
        entered(self, attempt)
        taken = await attempt.run()
        if taken is None:
            raise await attempt.timed_out()
        self._core.enter(attempt)
        leases = [_own(lease) for lease in taken]
        for lease in leases:
            lease._begin_body()
        return MultiLease(self._core, leases)

    async def _leave(self, entered: MultiAttempt | None, error: BaseException | None) -> None:
        attempt = entered or self._core.exit()
        for lease in attempt.leases:
            error = _own(lease)._end_body(error)
        await self._core.leave(attempt, error)

    if TYPE_CHECKING:
        __aexit__ = _aexit
    else:
        __aexit__ = ExitMethod(_leave_soon)


class Once(OnceMixin, _Context):
    """Run something once at a time among all workers: the first one runs it, and the others do not wait.

    As a decorator: if another worker runs the function, a call skips it, writes one line to the log and
    returns a false `Skipped`, which names the holder. In an `async with`, which cannot skip its body,
    `Skipped` is raised.
    """

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R | Skipped]]:
        """Decorate a function: each call runs it under a lease of its own, or skips it."""
        if (method := rewrapped(self, function)) is not None:
            return cast("Callable[P, Coroutine[Any, Any, R | Skipped]]", method)
        refuse_context_manager(function)
        refuse_generator(function, NOT_SKIPPED)
        require_coroutine(function)
        holding = self._once.over(function)

        @wraps(function)
        async def guarded(*args: P.args, **kwargs: P.kwargs) -> R | Skipped:
            run = made(_OnceRun, holding(args, kwargs))
            try:
                async with run:
                    result = await function(*args, **kwargs)
                    if type(result) in UNFINISHED:
                        raise unfinished(function, result)
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

    @_coroutine_function
    def campaign(
        self, value: str = "", *, blocking: bool = True, timeout: float = -1
    ) -> Coroutine[Any, Any, Lease | None]:
        """Stand for election with `value`, an address for example; return the lease once elected, or None.

        `blocking` and `timeout` are those of `Lock.acquire`.
        """
        return self._campaign(self._core.client.runtime.owner(), value, blocking, timeout)

    async def _campaign(self, owner: Owner, value: str, blocking: bool, timeout: float) -> Lease | None:
        lease = await self._core.attempt(value, blocking, timeout, owner).run()
        return None if lease is None else _own(lease)._belong_to(owner)

    async def proclaim(self, value: str) -> None:
        """Change the leader's value without a new election; raise `NotHeld` or `LeaseLost` if this one
        does not lead.
        """
        await self._core.proclaim(value)

    @_coroutine_function
    def resign(self) -> Coroutine[Any, Any, None]:
        """Give up leadership: the next candidate is elected."""
        return self._core.resign(self._core.client.runtime.owner())

    async def leader(self) -> Leader | None:
        """Ask the store who leads now; None if nobody does."""
        return await self._core.leader()

    async def observe(self, timeout: float | None = None) -> AsyncIterator[Leader | None]:
        """Yield the leader now, and again after each change of the leader or its value.

        Ends if nothing changes for `timeout` seconds (default: never).
        """
        seen: Queue | None = None
        known: Leader | None = None
        while (found := await self._core.next(seen, known, timeout)) is not None:
            seen, known = found
            yield known


class Register(RegisterMixin):
    """A JSON value with a version, for optimistic locking. Versions only grow, and none is used twice."""

    async def read(self) -> Value[Any]:
        """Return the value and its version; None and 0 if nothing was written yet."""
        return Value(*await self._core.read())

    async def compare_and_set(self, expected: Value[Any] | int, value: Any) -> Value[Any] | None:
        """Write `value` if the register is still at the version `expected`; return None if it has changed.

        Writing None deletes the value. A write that succeeded is not taken for a conflict when its reply is
        lost. What is returned has the value as everybody reads it from then on: JSON knows no tuples, and its
        keys are texts.
        """
        version = expected.version if isinstance(expected, Value) else expected
        value = self._core.as_read(value)
        written = await self._core.compare_and_set(version, value)
        return None if written is None else Value(value, written)

    async def update(self, function: Callable[[Any], Any]) -> Value[Any]:
        """Replace the value by `function(value)` and return what was written.

        If somebody else writes in between, the function is called again with the new value.
        """

        def decide(value: Any) -> tuple[Any, Any]:
            new = self._core.as_read(function(value))
            return new, new

        return Value(*await self._core.change(decide))

    async def watch(self, timeout: float | None = None) -> AsyncIterator[Value[Any]]:
        """Yield the value now, and again after each change that is seen.

        Ends if nothing changes for `timeout` seconds (default: never).
        """
        seen = -1
        while (found := await self._core.differing(seen, timeout)) is not None:
            seen = found[1]
            yield Value(*found)


class Event(EventMixin):
    """A flag that all processes see, used as `threading.Event`."""

    async def is_set(self) -> bool:
        """Ask the store whether the flag is set."""
        return await self._core.is_set()

    async def set(self) -> None:
        """Set the flag, and wake everybody who waits for it."""
        await self._core.set()

    async def clear(self) -> None:
        """Clear the flag."""
        await self._core.clear()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the flag: return True once it was set, even if it was cleared at once; False after
        `timeout` seconds.
        """
        return await self._core.wait(timeout)


class Latch(LatchMixin):
    """A count that goes down to 0 once, and wakes everybody who waits for that."""

    async def count(self) -> int:
        """Ask the store how much is left of the count."""
        return await self._core.count()

    async def count_down(self, n: int = 1) -> int:
        """Take `n` off the count, but not below 0; return how much is left."""
        return await self._core.count_down(n)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the count to be 0: return True then, and False after `timeout` seconds."""
        return await self._core.wait(timeout)

    async def reset(self) -> None:
        """Start again from the full count.

        Until it is counted down again, the store keeps nothing of the latch.
        """
        await self._core.reset()


class Barrier(BarrierMixin):
    """A point at which `parties` processes wait for each other, used as `asyncio.Barrier`."""

    async def n_waiting(self) -> int:
        """How many have arrived and wait. Asks the store."""
        return await self._core.n_waiting()

    async def broken(self) -> bool:
        """Whether the barrier is broken. Asks the store."""
        return await self._core.broken()

    async def wait(self, timeout: float | None = None) -> int:
        """Wait until all parties have arrived; return the caller's number in the order of arrival, from 0 to
        parties - 1.

        The last one to arrive runs the `action` first. Raises `BrokenBarrier` if the barrier is aborted or
        reset meanwhile. After `timeout` seconds it breaks the barrier for everybody, and raises
        `BrokenBarrier`.
        """
        return await self._core.wait(timeout)

    async def abort(self) -> None:
        """Break the barrier: everybody who waits or arrives gets `BrokenBarrier` until it is reset."""
        await self._core.abort()

    async def reset(self) -> None:
        """Empty the barrier, and mend it if it is broken; those who wait get `BrokenBarrier`."""
        await self._core.reset()


class Condition(ConditionMixin):
    """A condition variable for all processes, used as `threading.Condition`; its lock is an rlock by
    default.
    """

    @_coroutine_function
    def acquire(self, blocking: bool = True, timeout: float = -1) -> Coroutine[Any, Any, Any]:
        """Take the condition's lock; return what its own `acquire` returns."""
        if isinstance(self._lock, _AnyLock):
            return self._lock.acquire(blocking, timeout)
        acquiring: Coroutine[Any, Any, Any] = self._lock.acquire()  # asyncio's locks take no arguments
        return acquiring

    @_coroutine_function
    def release(self) -> Coroutine[Any, Any, None]:
        """Release the condition's lock."""
        if isinstance(self._lock, _AnyLock):
            return self._lock.release()
        return self._release()

    async def _release(self) -> None:
        released = self._lock.release()
        if isawaitable(released):
            await released

    @_coroutine_function
    def wait(self, timeout: float | None = None) -> Coroutine[Any, Any, bool]:
        """Release the lock, wait to be notified and take the lock again; return False after `timeout`
        seconds.

        It may return True without a notification after the store was out of reach. So check what you wait for
        in a loop, or use `wait_for`.

        Raises `NotHeld` unless the caller holds the lock. When it returns or is interrupted, the caller has
        taken the lock again, as in `threading`; only if the store does not answer, it raises
        without it.
        """
        return self._core.wait(timeout, self._core.client.runtime.owner())

    @_coroutine_function
    def wait_for(
        self, predicate: Callable[[], R | Awaitable[R]], timeout: float | None = None
    ) -> Coroutine[Any, Any, R]:
        """Wait until `predicate()` is true, or for `timeout` seconds; return its last value."""
        return self._core.wait_for(predicate, timeout, self._core.client.runtime.owner())

    @_coroutine_function
    def notify(self, n: int = 1) -> Coroutine[Any, Any, None]:
        """Wake up to `n` of those who wait, in the order in which they came.

        The caller must hold the lock.
        """
        return self._core.notify(n, self._core.client.runtime.owner())

    @_coroutine_function
    def notify_all(self) -> Coroutine[Any, Any, None]:
        """Wake everybody who waits. The caller must hold the lock."""
        return self._core.notify_all(self._core.client.runtime.owner())

    async def __aenter__(self) -> Any:
        entering(self, self._lock)
        return await self._lock.__aenter__()

    if TYPE_CHECKING:
        __aexit__ = _aexit
    else:

        @OtherExit
        def __aexit__(self):
            return self._lock


class Guard(GuardMixin):
    """The highest token that was accepted so far, kept in the store, for resources that cannot check
    tokens themselves.
    """

    async def accept(self, lease: lease_core.Lease | int) -> int:
        """Accept the token of a lease and return it; raise `StaleToken` if a higher one was accepted before.

        Raises `LeaseLost` or `NotHeld` if the lease is known to have ended, and `Unsupported` if it is the
        lease of another resource, of a semaphore or of a read lock.
        """
        return await self._core.accept(lease)

    async def highest(self) -> int:
        """Ask the store for the highest token that was accepted; 0 if there is none."""
        return await self._core.highest()


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

    Any number of tasks may use one client. A thread of its own renews all leases that are held through it.
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

    async def inspect(self, name: str, *, limit: int | None = None) -> Queue:
        """Ask the store who holds the resource and who waits for it, in order; with `limit`, only so many of
        them.
        """
        return await watching.inspected(self._core, name, limit)

    async def scan(self, prefix: str = "") -> AsyncIterator[str]:
        """Yield the names of all resources that are held or waited for, in order; they are read page by
        page.
        """
        after = ""
        while names := await watching.page(self._core, prefix, after):
            for name in watching.without_internal_queues(names):
                yield name
            after = names[-1]

    async def watch(self, name: str, timeout: float | None = None) -> AsyncIterator[Queue]:
        """Yield the holders and waiters of a resource now, and again after each change.

        Ends if nothing changes for `timeout` seconds (default: never).
        """
        seen: Queue | None = None
        while (seen := await watching.watched(self._core, name, seen, timeout)) is not None:
            yield seen

    async def evict(
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
        return await watching.evicted(self._core, name, id, reason, foreign, no_expiry)

    async def health(self, timeout: float = 2.0) -> Health:
        """Ask the store one question within `timeout` seconds, for a readiness probe; `if client.health():`.

        Never raises for a store that does not answer: `Health.why` says why not.
        """
        from interlock.doctor import examination

        return await examination.checked_health(self._core, timeout)

    async def diagnose(self, timeout: float = 15.0, *, probe: bool = False) -> Diagnosis:
        """Say what this deployment promises: what is dangerous, what mends it, what each failure would do.

        It reads only, within `timeout` seconds, and raises nothing for servers that do not answer. With
        `probe` it also takes, renews, hands over and releases one lock under the name `interlock/doctor`, and
        measures that.
        """
        from interlock.doctor import examination

        return await examination.diagnosed(self._core, self._store, timeout, probe=probe)

    # ---- the end ---------------------------------------------------------------------

    @_coroutine_function
    def close(self) -> Coroutine[Any, Any, None]:
        """Release everything that is held, and close the connections. Closing twice is harmless."""
        return self._core.close(by=self._core.runtime.owner())

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._core.close(error)


def connect(
    url: urls.URLOrClient | None = None,
    *,
    ttl: float | None = None,
    connect_timeout: float | None = None,
    listener: Callable[[events.Event], object] | None = None,
    log: bool = True,
    call_site: str | None = None,
    requires: Literal["process", "machine", "network"] | None = None,
    keeper: Literal["thread", "task"] = "thread",
) -> Client:
    """Return a client of the store at `url`; without one, at $INTERLOCK_URL, else in this user's own SQLite
    file.

        async with interlock.aio.connect("redis://localhost:6379/0", ttl=10) as client:
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
    - `keeper`: "thread" renews leases from a thread, so that a busy event loop does not lose them; "task"
      renews them from a task of the loop, for programs that must not start threads.
    """
    if keeper not in ("thread", "task"):
        raise ValueError(f"keeper is 'thread' or 'task', not {keeper!r}")
    load_parts()
    listen = Log(listener) if log else listener
    report = callback_reporter(listen)
    runtime = Tasks(report)
    if call_site is not None:
        runtime.who = described_at(call_site)
    store = urls.open_store(url, runtime, asynchronous=True, connect_timeout=connect_timeout)
    check_reach(store, requires)
    keeping = Threads(report) if keeper == "thread" else runtime
    core = CoreClient(store, runtime, keeping, ttl=ttl, listener=listen, lease_type=Lease)
    lifetimes.follow(core)
    client = Client(core, urls.named(url))
    options = {
        "ttl": ttl,
        "connect_timeout": connect_timeout,
        "keeper": keeper,
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
