"""The async face: the same names as `interlock`, awaited.

    async with interlock.aio.connect() as client:
        async with client.lock("report:daily") as lease:
            ...

If a lease is lost while an `async with` body runs under it, the body is cancelled at its next await, before
the lease can end, and `LeaseLost` leaves the `async with`.

Long because it is the list of everything public, as `interlock.blocking` is, whose docstrings it takes over;
a test compares the two. Nothing is decided here: every algorithm stands in `_core`.
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import wraps
from inspect import isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast, overload

from interlock import blocking, events, urls
from interlock._core import lease as lease_core
from interlock._core import watching
from interlock._core.barrier import BarrierCell
from interlock._core.client import Client as CoreClient
from interlock._core.condition import HoldingMutex, Mutex, Waiting
from interlock._core.election import Candidacy, Leader
from interlock._core.guarding import Mark
from interlock._core.holding import Holding
from interlock._core.multilock import Multi, MultiAttempt
from interlock._core.once import Once as OnceCore
from interlock._core.once import OnceHolding
from interlock._core.reentry import Reentrant
from interlock._core.register import Cell, EventCell, LatchCell
from interlock._core.semaphore import SemaphoreHolding
from interlock._core.settings import Settings
from interlock._runtime import lifetimes
from interlock._runtime.foreign import ForeignLock
from interlock._runtime.generators import Iteration, kind_of, name_of, refuse_context_manager, rewrapped
from interlock._runtime.statements import ExitMethod, OtherExit, Statement, entered
from interlock._runtime.tasks import LoopOwner, TaskOwner, Tasks, TaskSignal
from interlock._runtime.threads import Threads
from interlock.blocking import Value
from interlock.errors import LeaseLost, Skipped
from interlock.log import Log, callback_reporter
from interlock.making import MadeByClients, Origin, _Staying, made, made_again
from interlock.model import EVERYTHING, Queue, Standing, Traits
from interlock.ports import Owner

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
F = TypeVar("F", bound=type)
M = TypeVar("M", bound=Callable[..., Any])
A = TypeVar("A", bound=AsyncIterator[Any])

OnLost = Callable[["Lease"], object | Awaitable[object]]


def _as(face: type) -> Callable[[F], F]:
    """Take over the documentation of the sync face: one text for both."""

    def document(mine: F) -> F:
        mine.__doc__ = face.__doc__
        for name, member in list(vars(mine).items()):
            theirs = vars(face).get(name)
            if theirs is None or name.startswith("__"):
                continue
            if callable(member):
                member.__doc__ = theirs.__doc__
            elif isinstance(member, property):
                setattr(mine, name, property(member.fget, doc=theirs.__doc__))
        return mine

    return document


if TYPE_CHECKING:

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
    """An `__aexit__`: from here on the coroutine gives back, also if it is cancelled; the statement is not watched."""
    leaving: Coroutine[Any, Any, None] = manager._leave(statement.entered, error)
    statement.end()
    return leaving


def _coroutine_function(method: M) -> M:
    """Mark a method that returns a coroutine for those who ask what it is: mocks, say.

    It is not `async def`, because the owner is whoever calls it: `wait_for(lock.acquire(), 5)` runs the coroutine in a
    task of asyncio's own.
    """
    if sys.version_info >= (3, 12):
        return markcoroutinefunction(method)
    method._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return method


@_as(blocking.Lease)
class Lease(_Staying, lease_core.Lease):
    __slots__ = ("_cancelling",)

    _cancelling: int  # how often the body's task had been cancelled by others when the body began

    @property
    def lost(self) -> TaskSignal:
        signal = self._lost_signal()
        assert isinstance(signal, TaskSignal)
        return signal

    async def renew(self) -> None:
        await self._holding.renew_now(self)

    async def release(self) -> None:
        await self._holding.give_back(self, strict=True)

    def adopt(self) -> None:
        self._owner = self._runtime.owner()

    async def __aenter__(self) -> Lease:
        entered(self, self)
        self.check()
        _begin([self])
        return self

    async def _leave(self, entered: object, error: BaseException | None) -> None:
        await self._holding.leave(self, _end([self], error))

    if TYPE_CHECKING:
        __aexit__ = _aexit
    else:
        __aexit__ = ExitMethod(_leave_soon)


@_as(blocking.MultiLease)
class MultiLease(_Staying):
    def __init__(self, multi: Multi, leases: Sequence[Lease]) -> None:
        self._multi = multi
        self.leases = tuple(leases)

    @property
    def tokens(self) -> dict[str, int]:
        return {lease.resource: lease.token for lease in self.leases}

    def remaining(self) -> float:
        return min(lease.remaining() for lease in self.leases)

    def check(self) -> None:
        for lease in self.leases:
            lease.check()

    async def release(self) -> None:
        await self._multi.give_back(self.leases, None, strict=True)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tokens}>"


def _begin(leases: Sequence[Lease]) -> None:
    """A body begins under these leases: from now on the loss of one cancels it."""
    task = asyncio.current_task()
    for lease in leases:
        if not lease._bodies:
            lease._cancelling = 0 if task is None else task.cancelling()
            lease._body = lease._runtime.runner()
        lease._enter_body()


def _end(leases: Sequence[Lease], error: BaseException | None) -> BaseException | None:
    """The body's own exception; None in place of a cancellation that was ours, for the loss of a lease."""
    task = asyncio.current_task()
    ours = False
    for lease in leases:
        if lease._leave_body() and task is not None:
            # Only if nobody else wants this task cancelled too: theirs must go on.
            ours = task.uncancel() <= lease._cancelling and isinstance(error, asyncio.CancelledError)
    return None if ours else error


class _Steps(Iteration):
    """As in sync code; and a loss cancels the step that runs, but not whoever iterates, between two steps.

    The `async with` around it has begun a body, and ends one: the last step ends there.
    """

    def __init__(self, leases: Sequence[Lease], function: object, *, moves: bool = True) -> None:
        super().__init__(leases, function, moves=moves)
        self._running = leases

    def resume(self) -> LeaseLost | None:
        loss = super().resume()
        if loss is None:
            _begin(self._running)
        else:
            for lease in self._running:
                lease._bodies += 1  # it is told of the loss in another way than by a cancellation
        return loss

    def suspend(self) -> None:
        super().suspend()
        _end(self._running, None)


@_as(blocking._Named)
class _Named(_Staying, metaclass=MadeByClients):
    _name: str

    @property
    def name(self) -> str:
        return self._name


@_as(blocking._Decorator)
class _Decorator(ABC):
    @abstractmethod
    async def __aenter__(self) -> Any: ...

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, A]) -> Callable[P, A]: ...
    def __call__(self, function: Callable[P, Any]) -> Callable[P, Any]:
        if (method := rewrapped(self, function)) is not None:
            return cast("Callable[P, Any]", method)
        refuse_context_manager(function, asynchronous=True)
        if kind_of(function) == "async generator function":
            return self._over_generator(function)
        _demand_coroutine(function)

        @wraps(function)
        async def guarded(*args: P.args, **kwargs: P.kwargs) -> Any:
            async with self:
                return await function(*args, **kwargs)

        return guarded

    def _over_generator(
        self, function: Callable[P, AsyncGenerator[Any, Any]]
    ) -> Callable[P, AsyncGenerator[Any, Any]]:
        @wraps(function)
        async def guarded(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[Any, Any]:
            async with self as held:
                body, generator = self._iterate(held, function), function(*args, **kwargs)
                step = generator.asend(None)
                while True:
                    try:
                        item = await step
                    except StopAsyncIteration:
                        return
                    body.suspend()
                    try:
                        sent = yield item
                    except GeneratorExit:
                        body.resume()
                        await generator.aclose()
                        raise
                    except BaseException as error:
                        body.resume()
                        step = generator.athrow(error)
                    else:
                        loss = body.resume()
                        step = generator.asend(sent) if loss is None else generator.athrow(loss)

        return guarded

    def _iterate(self, held: Any, function: object) -> _Steps:
        """What a generator holds while it is iterated: a lease that belongs to the generator."""
        return _Steps([held], function)


@_as(blocking._Held)
class _Held(_Named):
    _core: Any  # a kind of Holding

    async def __aenter__(self) -> Lease:
        attempt = self._core.attempt()
        entered(self, attempt)
        lease: Lease = await attempt.demand()
        self._core.enter(attempt)
        _begin([lease])
        return lease

    async def _leave(self, entered: Any, error: BaseException | None) -> None:
        attempt = entered or self._core.exit()
        if attempt is not None:
            await self._core.leave(attempt, _end([attempt.lease], error))

    if TYPE_CHECKING:
        __aexit__ = _aexit
    else:
        __aexit__ = ExitMethod(_leave_soon)


@_as(blocking._Body)
class _Body(_Held, _Decorator):
    pass


@_as(blocking._LockFace)
class _LockFace(_Body):
    @_coroutine_function
    def acquire(self, blocking: bool = True, timeout: float = -1) -> Coroutine[Any, Any, Lease | None]:
        return self._acquire(self._core.client.runtime.owner(), blocking, timeout)

    async def _acquire(self, owner: Owner, blocking: bool, timeout: float) -> Lease | None:
        return _owned_by(owner, await self._core.attempt(blocking, timeout, owner=owner).run())

    @_coroutine_function
    def release(self) -> Coroutine[Any, Any, None]:
        return self._release(self._core.client.runtime.owner())

    async def _release(self, owner: Owner) -> None:
        await self._core.release(owner)

    async def locked(self) -> bool:
        return bool(await self._core.locked())

    def owned(self) -> bool:
        return bool(self._core.owned())

    def __repr__(self) -> str:
        state = "locked" if self._core.held() else "unlocked"
        return f"<{state} interlock.aio.{type(self).__name__} object {self._name!r} at {id(self):#x}>"


@_as(blocking.Lock)
class Lock(_LockFace):
    def __init__(self, holding: Holding) -> None:
        self._core: Holding = holding
        self._name = holding.resource


@_as(blocking.RLock)
class RLock(_LockFace):
    def __init__(self, reentrant: Reentrant) -> None:
        self._core: Reentrant = reentrant
        self._name = reentrant.resource

    def _iterate(self, held: Lease, function: object) -> _Steps:
        return _Steps([held], function, moves=False)


@_as(blocking.ReadLock)
class ReadLock(RLock):
    pass


@_as(blocking.WriteLock)
class WriteLock(RLock):
    pass


@_as(blocking.RWLock)
class RWLock(_Named):
    def __init__(self, read: Holding, write: Holding) -> None:
        self._name = read.resource
        self._read = made(ReadLock, Reentrant(read, "read"))
        self._write = made(WriteLock, Reentrant(write, "write"))

    def read(self) -> ReadLock:
        return self._read

    def write(self) -> WriteLock:
        return self._write

    def __repr__(self) -> str:
        return f"<interlock.aio.{type(self).__name__} {self._name!r} at {id(self):#x}>"


@_as(blocking.Semaphore)
class Semaphore(_Body):
    def __init__(self, holding: SemaphoreHolding) -> None:
        self._core: SemaphoreHolding = holding
        self._name = holding.resource

    @property
    def capacity(self) -> int:
        return self._core.capacity

    @_coroutine_function
    def acquire(
        self, blocking: bool = True, timeout: float | None = None, *, permits: int = 1
    ) -> Coroutine[Any, Any, Lease | Literal[False]]:
        return self._acquire(self._core.client.runtime.owner(), blocking, timeout, permits)

    async def _acquire(
        self, owner: Owner, blocking: bool, timeout: float | None, permits: int
    ) -> Lease | Literal[False]:
        lease = _owned_by(
            owner, await self._core.attempt(blocking, timeout, permits=permits, owner=owner).run()
        )
        return False if lease is None else lease

    @_coroutine_function
    def release(self, n: int = 1) -> Coroutine[Any, Any, None]:
        return self._core.release_permits(n, self._core.client.runtime.owner())

    async def locked(self) -> bool:
        return await self._core.full()

    def owned(self) -> bool:
        return self._core.owned()

    def __repr__(self) -> str:
        bound = f"/{self._core.capacity}" if self._core.bounded else ""
        at = f"at {id(self):#x} {self._name!r}"
        return f"<interlock.aio.{type(self).__name__} {at}: value={self._core.value}{bound}>"


@_as(blocking.BoundedSemaphore)
class BoundedSemaphore(Semaphore):
    pass


@_as(blocking.MultiLock)
class MultiLock(_Decorator, _Staying, metaclass=MadeByClients):
    def __init__(self, multi: Multi) -> None:
        self._core = multi

    @property
    def names(self) -> list[str]:
        return self._core.names

    @_coroutine_function
    def acquire(self, blocking: bool = True, timeout: float = -1) -> Coroutine[Any, Any, MultiLease | None]:
        return self._acquire(self._core.client.runtime.owner(), blocking, timeout)

    async def _acquire(self, owner: Owner, blocking: bool, timeout: float) -> MultiLease | None:
        leases = await self._core.attempt(blocking, timeout, owner).run()
        if leases is None:
            return None
        for lease in leases:
            _owned_by(owner, lease)
        return MultiLease(self._core, [_own(lease) for lease in leases])

    @_coroutine_function
    def release(self) -> Coroutine[Any, Any, None]:
        return self._core.release(self._core.client.runtime.owner())

    async def locked(self) -> bool:
        return await self._core.locked()

    def owned(self) -> bool:
        return self._core.owned()

    async def __aenter__(self) -> MultiLease:
        attempt = self._core.attempt()
        entered(self, attempt)
        leases = [_own(lease) for lease in await attempt.demand()]
        self._core.enter(attempt)
        _begin(leases)
        return MultiLease(self._core, leases)

    async def _leave(self, entered: MultiAttempt | None, error: BaseException | None) -> None:
        attempt = entered or self._core.exit()
        await self._core.leave(attempt, _end([_own(lease) for lease in attempt.leases], error))

    if TYPE_CHECKING:
        __aexit__ = _aexit
    else:
        __aexit__ = ExitMethod(_leave_soon)

    def _iterate(self, held: MultiLease, function: object) -> _Steps:
        return _Steps(held.leases, function)

    def __repr__(self) -> str:
        state = "locked" if self._core.held() else "unlocked"
        return f"<{state} interlock.aio.{type(self).__name__} object {self.names} at {id(self):#x}>"


@_as(blocking.Once)
class Once(_Held):
    def __init__(self, once: OnceCore) -> None:
        self._once = once
        self._core = once.holding
        self._name = once.text

    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Callable[P, Coroutine[Any, Any, R | Skipped]]:
        if (method := rewrapped(self, function)) is not None:
            return cast("Callable[P, Coroutine[Any, Any, R | Skipped]]", method)
        refuse_context_manager(function, asynchronous=True)
        blocking._refuse_generator(function)
        _demand_coroutine(function)
        holding = self._once.over(function)

        @wraps(function)
        async def guarded(*args: P.args, **kwargs: P.kwargs) -> R | Skipped:
            run = made(_Run, holding(args, kwargs))
            try:
                async with run:
                    return await function(*args, **kwargs)
            except Skipped as skipped:
                if skipped is not run.skipped:  # the function's own, of something that it runs once itself
                    raise
                return Skipped(skipped.resource, skipped.holder)

        return guarded

    def __repr__(self) -> str:
        return f"<interlock.aio.{type(self).__name__} {self._name!r} at {id(self):#x}>"


@_as(blocking._Run)
class _Run(_Held):
    def __init__(self, holding: OnceHolding) -> None:
        self._core: OnceHolding = holding
        self._name = holding.resource

    @property
    def skipped(self) -> Skipped | None:
        return self._core.skipped


@_as(blocking.Election)
class Election(_Named):
    def __init__(self, holding: Holding) -> None:
        self._core = Candidacy(holding)
        self._name = holding.resource

    @_coroutine_function
    def campaign(
        self, value: str = "", *, blocking: bool = True, timeout: float = -1
    ) -> Coroutine[Any, Any, Lease | None]:
        return self._campaign(self._core.client.runtime.owner(), value, blocking, timeout)

    async def _campaign(self, owner: Owner, value: str, blocking: bool, timeout: float) -> Lease | None:
        return _owned_by(owner, await self._core.attempt(value, blocking, timeout, owner).run())

    async def proclaim(self, value: str) -> None:
        await self._core.proclaim(value)

    async def resign(self) -> None:
        await self._core.resign()

    def leading(self) -> bool:
        return self._core.leading()

    async def leader(self) -> Leader | None:
        return await self._core.leader()

    async def observe(self, timeout: float | None = None) -> AsyncIterator[Leader | None]:
        seen: Queue | None = None
        known: Leader | None = None
        while (found := await self._core.next(seen, known, timeout)) is not None:
            seen, known = found
            yield known

    def __repr__(self) -> str:
        state = "leading" if self._core.leading() else "not leading"
        return f"<interlock.aio.{type(self).__name__} {self._name!r} at {id(self):#x}: {state}>"


@_as(blocking.Register)
class Register(_Named):
    def __init__(self, cell: Cell) -> None:
        self._core = cell
        self._name = cell.name

    async def read(self) -> Value[Any]:
        return Value(*await self._core.read())

    async def compare_and_set(self, expected: Value[Any] | int, value: Any) -> Value[Any] | None:
        version = expected.version if isinstance(expected, Value) else expected
        written = await self._core.compare_and_set(version, value)
        return None if written is None else Value(value, written)

    async def update(self, function: Callable[[Any], Any]) -> Value[Any]:
        def decide(value: Any) -> tuple[Any, Any]:
            new = function(value)
            return new, new

        return Value(*await self._core.change(decide))

    async def watch(self, timeout: float | None = None) -> AsyncIterator[Value[Any]]:
        seen = -1
        while (found := await self._core.differing(seen, timeout)) is not None:
            seen = found[1]
            yield Value(*found)

    def __repr__(self) -> str:
        return f"<interlock.aio.{type(self).__name__} {self._name!r} at {id(self):#x}>"


@_as(blocking.Event)
class Event(_Named):
    def __init__(self, cell: EventCell) -> None:
        self._core = cell
        self._name = cell.name

    async def is_set(self) -> bool:
        return await self._core.is_set()

    async def set(self) -> None:
        await self._core.set()

    async def clear(self) -> None:
        await self._core.clear()

    async def wait(self, timeout: float | None = None) -> bool:
        return await self._core.wait(timeout)

    def __repr__(self) -> str:
        state = "set" if self._core.known else "unset"
        return f"<interlock.aio.{type(self).__name__} at {id(self):#x} {self._name!r}: {state}>"


@_as(blocking.Latch)
class Latch(_Named):
    def __init__(self, cell: LatchCell) -> None:
        self._core = cell
        self._name = cell.name

    async def count(self) -> int:
        return await self._core.count()

    async def count_down(self, n: int = 1) -> int:
        return await self._core.count_down(n)

    async def wait(self, timeout: float | None = None) -> bool:
        return await self._core.wait(timeout)

    async def reset(self) -> None:
        await self._core.reset()

    def __repr__(self) -> str:
        return (
            f"<interlock.aio.{type(self).__name__} at {id(self):#x} {self._name!r}: from {self._core.start}>"
        )


class Barrier(_Named):
    """A place where `parties` tasks wait for each other, used as `asyncio.Barrier`; asking is awaited."""

    def __init__(self, cell: BarrierCell) -> None:
        self._core = cell
        self._name = cell.name

    @property
    def parties(self) -> int:
        """How many must arrive."""
        return self._core.parties

    async def n_waiting(self) -> int:
        """How many have arrived and wait. Asks the store."""
        return await self._core.n_waiting()

    async def broken(self) -> bool:
        """Whether the barrier is broken. Asks the store."""
        return await self._core.broken()

    async def wait(self, timeout: float | None = None) -> int:
        return await self._core.wait(timeout)

    async def abort(self) -> None:
        await self._core.abort()

    async def reset(self) -> None:
        await self._core.reset()

    def __repr__(self) -> str:
        state = "broken" if self._core.known_broken else f"waiters={self._core.known}/{self.parties}"
        return f"<interlock.aio.{type(self).__name__} at {id(self):#x} {self._name!r}: {state}>"


for _method in ("wait", "abort", "reset"):
    getattr(Barrier, _method).__doc__ = getattr(blocking.Barrier, _method).__doc__


@_as(blocking.Condition)
class Condition(_Named):
    def __init__(self, client: CoreClient, name: str, lock: Any) -> None:
        self._lock = lock
        self._core = Waiting(client, name, _mutex(lock))
        self._name = self._core.name

    @_coroutine_function
    def acquire(self, blocking: bool = True, timeout: float = -1) -> Coroutine[Any, Any, Any]:
        if isinstance(self._lock, _LockFace):
            return self._lock.acquire(blocking, timeout)
        acquiring: Coroutine[Any, Any, Any] = self._lock.acquire()  # asyncio's locks take no arguments
        return acquiring

    @_coroutine_function
    def release(self) -> Coroutine[Any, Any, None]:
        if isinstance(self._lock, _LockFace):
            return self._lock.release()
        return self._release()

    async def _release(self) -> None:
        released = self._lock.release()
        if isawaitable(released):
            await released

    @_coroutine_function
    def wait(self, timeout: float | None = None) -> Coroutine[Any, Any, bool]:
        return self._core.wait(timeout, self._core.client.runtime.owner())

    @_coroutine_function
    def wait_for(
        self, predicate: Callable[[], R | Awaitable[R]], timeout: float | None = None
    ) -> Coroutine[Any, Any, R]:
        return self._core.wait_for(predicate, timeout, self._core.client.runtime.owner())

    @_coroutine_function
    def notify(self, n: int = 1) -> Coroutine[Any, Any, None]:
        return self._core.notify(n, self._core.client.runtime.owner())

    @_coroutine_function
    def notify_all(self) -> Coroutine[Any, Any, None]:
        return self._core.notify_all(self._core.client.runtime.owner())

    async def __aenter__(self) -> Any:
        return await self._lock.__aenter__()

    if TYPE_CHECKING:
        __aexit__ = _aexit
    else:

        @OtherExit
        def __aexit__(self):
            return self._lock

    def __repr__(self) -> str:
        return f"<interlock.aio.{type(self).__name__} at {id(self):#x} {self._name!r}: {self._lock!r}>"


@_as(blocking.Guard)
class Guard(_Named):
    def __init__(self, mark: Mark) -> None:
        self._core = mark
        self._name = mark.name

    async def accept(self, lease: lease_core.Lease | int) -> int:
        return await self._core.accept(lease)

    async def highest(self) -> int:
        return await self._core.highest()


@_as(blocking.Client)
class Client:
    _origin: Origin | None = None  # how it was made, for another process to do the same

    def __init__(self, core: CoreClient, store: str = "") -> None:
        if not isinstance(core, CoreClient):
            raise TypeError("a client is made by interlock.aio.connect(url)")
        self._core = core
        self._store = store or core.store.traits.backend  # its name, without passwords

    def __reduce__(self) -> Any:
        return made_again(self._core, self._origin)

    @property
    def traits(self) -> Traits:
        return self._core.store.traits

    def lock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        fair: bool = True,
        max_hold: float | None = None,
        min_hold: float | None = None,
        on_lost: OnLost | None = None,
    ) -> Lock:
        settings = Settings(ttl, timeout, renew, fair, max_hold, min_hold, on_lost)
        return made(Lock, Holding(self._core, name, settings, passes=True))

    def rlock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        fair: bool = True,
        max_hold: float | None = None,
        min_hold: float | None = None,
        on_lost: OnLost | None = None,
    ) -> RLock:
        settings = Settings(ttl, timeout, renew, fair, max_hold, min_hold, on_lost)
        return made(RLock, Reentrant(Holding(self._core, name, settings, passes=True)))

    def rwlock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        fair: bool = True,
        max_hold: float | None = None,
        on_lost: OnLost | None = None,
    ) -> RWLock:
        settings = Settings(ttl, timeout, renew, fair, max_hold, None, on_lost)
        return made(
            RWLock,
            Holding(self._core, name, settings, permits=1, capacity=EVERYTHING),
            Holding(self._core, name, settings, permits=EVERYTHING, capacity=EVERYTHING),
        )

    def semaphore(
        self,
        name: str,
        capacity: int = 1,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        fair: bool = True,
        max_hold: float | None = None,
        min_hold: float | None = None,
        on_lost: OnLost | None = None,
    ) -> Semaphore:
        settings = Settings(ttl, timeout, renew, fair, max_hold, min_hold, on_lost)
        return made(Semaphore, SemaphoreHolding(self._core, name, settings, capacity=capacity, bounded=False))

    def bounded_semaphore(
        self,
        name: str,
        capacity: int = 1,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        fair: bool = True,
        max_hold: float | None = None,
        min_hold: float | None = None,
        on_lost: OnLost | None = None,
    ) -> BoundedSemaphore:
        settings = Settings(ttl, timeout, renew, fair, max_hold, min_hold, on_lost)
        return made(
            BoundedSemaphore, SemaphoreHolding(self._core, name, settings, capacity=capacity, bounded=True)
        )

    def multilock(
        self,
        names: Iterable[str],
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        fair: bool = True,
        max_hold: float | None = None,
        on_lost: OnLost | None = None,
    ) -> MultiLock:
        return made(
            MultiLock, Multi(self._core, names, Settings(ttl, timeout, renew, fair, max_hold, None, on_lost))
        )

    def once(
        self,
        name: str | Callable[..., str],
        *,
        ttl: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        min_hold: float | None = None,
        on_lost: OnLost | None = None,
    ) -> Once:
        settings = Settings(ttl, 0.0, renew, True, max_hold, min_hold, on_lost)
        return made(Once, OnceCore(self._core, name, settings))

    def election(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        on_lost: OnLost | None = None,
    ) -> Election:
        return made(Election, Holding(self._core, name, Settings(ttl, timeout, on_lost=on_lost)))

    def register(self, name: str) -> Register:
        return made(Register, Cell(self._core, "register", name))

    def event(self, name: str) -> Event:
        return made(Event, EventCell(self._core, name))

    def latch(self, name: str, count: int) -> Latch:
        return made(Latch, LatchCell(self._core, name, count))

    def barrier(
        self,
        name: str,
        parties: int,
        action: Callable[[], object | Awaitable[object]] | None = None,
        timeout: float | None = None,
    ) -> Barrier:
        return made(Barrier, BarrierCell(self._core, name, parties, action, timeout))

    def condition(self, name: str, lock: Any = None) -> Condition:
        return made(Condition, self._core, name, self.rlock(name) if lock is None else lock)

    def guard(self, name: str) -> Guard:
        return made(Guard, Mark(self._core, name))

    # ---- for operators -------------------------------------------------------------

    async def inspect(self, name: str) -> Queue:
        return await watching.inspected(self._core, name)

    async def scan(self, prefix: str = "") -> AsyncIterator[str]:
        after = ""
        while names := await watching.page(self._core, prefix, after):
            for name in watching.shown(names):
                yield name
            after = names[-1]

    async def watch(self, name: str, timeout: float | None = None) -> AsyncIterator[Queue]:
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
        return await watching.evicted(self._core, name, id, reason, foreign, no_expiry)

    # ---- the end ---------------------------------------------------------------------

    async def close(self) -> None:
        await self._core.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._core.closed else f"{len(self._core.leases)} leases"
        return f"<interlock.aio.{type(self).__name__} {self._store} at {id(self):#x}: {state}>"


def connect(
    url: urls.Place | None = None,
    *,
    ttl: float = 30.0,
    connect_timeout: float | None = None,
    listener: Callable[[events.Event], object] | None = None,
    keeper: Literal["thread", "task"] = "thread",
) -> Client:
    """Connect to the store behind `url`, or $INTERLOCK_URL, or the embedded SQLite file of this user.

    As `interlock.connect`. Leases are renewed from a thread, so that a busy event loop does not lose them;
    `keeper="task"` renews from a task of the loop instead, for programs that must not start threads.
    """
    if keeper not in ("thread", "task"):
        raise ValueError(f"keeper is 'thread' or 'task', not {keeper!r}")
    listen = Log(listener)
    report = callback_reporter(listen)
    runtime = Tasks(report)
    store = urls.open_store(url, runtime, asynchronous=True, connect_timeout=connect_timeout)
    keeping = Threads(report) if keeper == "thread" else runtime
    core = CoreClient(store, runtime, keeping, ttl=ttl, listener=listen, lease_type=Lease)
    lifetimes.follow(core)
    client = Client(core, urls.named(url))
    options = {"ttl": ttl, "listener": listener, "keeper": keeper, "connect_timeout": connect_timeout}
    client._origin = (connect, urls.settled(url), options)
    return client


def _owned_by(owner: Owner, lease: lease_core.Lease | None) -> Lease | None:
    """The lease of whoever called `acquire`, which may have run in a task that was made only for it.

    gather, create_task, shield and, before Python 3.12, wait_for make a task of what they are given. It is over when
    it has the lease, and nobody would renew that. If the caller itself is gone by then, the loop owns the lease: somebody
    else waits for it.
    """
    if lease is None:
        return None
    if not owner.alive():
        lease._owner = LoopOwner(asyncio.get_running_loop())
    if type(owner) is not TaskOwner:
        lease._runtime.owner()  # a thread that asked this loop: where a loss is told must be known
    return _own(lease)


def _own(lease: lease_core.Lease) -> Lease:
    assert isinstance(lease, Lease)
    return lease


def _demand_coroutine(function: Callable[..., object]) -> None:
    kind = kind_of(function)
    if kind != "coroutine function":
        not_so = (
            "a generator function, but not an async one"
            if kind == "generator function"
            else "not a coroutine function"
        )
        raise TypeError(f"{name_of(function)} is {not_so}: use a lock of interlock, not of interlock.aio")


def _mutex(lock: Any) -> Mutex:
    if isinstance(lock, RLock):
        return lock._core
    if isinstance(lock, Lock):
        return HoldingMutex(lock._core)
    return cast(Mutex, ForeignLock(lock))
