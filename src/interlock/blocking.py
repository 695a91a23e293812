"""The sync face: one-line methods over the core, driven on the caller's own thread.

Long because it is the list of everything public, and its docstrings are the documentation of both
faces (`interlock.aio` takes them over word for word; where it says "returns", await). Nothing is decided
here: every algorithm stands in `_core`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, cast

from interlock import events, urls
from interlock._core import lease as lease_core
from interlock._core import watching
from interlock._core.barrier import BarrierCell
from interlock._core.client import Client as CoreClient
from interlock._core.condition import HoldingMutex, Mutex, Waiting
from interlock._core.drive import drive
from interlock._core.election import Candidacy, Leader
from interlock._core.guarding import Mark
from interlock._core.holding import Holding
from interlock._core.multilock import Multi
from interlock._core.reentry import Entry, Reentrant
from interlock._core.register import Cell, EventCell, LatchCell
from interlock._core.semaphore import SemaphoreHolding
from interlock._core.settings import Settings
from interlock._runtime import lifetimes
from interlock._runtime.foreign import ForeignLock
from interlock._runtime.statements import ExitMethod, OtherExit, entered
from interlock._runtime.threads import blocking_runtime
from interlock.errors import Skipped
from interlock.making import MadeByClients, Origin, _Staying, made, made_again
from interlock.model import EVERYTHING, Queue, Standing, Traits

if TYPE_CHECKING:
    from interlock._core.once import Once as OnceCore
    from interlock._core.once import OnceHolding
    from interlock._runtime.generators import Iteration

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

OnLost = Callable[["Lease"], object]

if TYPE_CHECKING:

    def _exit(
        self: object,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What a type checker sees of `ExitMethod`."""


class Lease(_Staying, lease_core.Lease):
    """A granted claim in the holder's hand.

    Truthy, and equal to True as what `threading` locks return. It knows by its own clock when it is
    lost; its `token` is greater than that of every earlier grant of the resource.
    """

    __slots__ = ()

    @property
    def lost(self) -> threading.Event:
        """An event that is set once the lease is lost."""
        signal = self._lost_signal()
        assert isinstance(signal, threading.Event)
        return signal

    def renew(self) -> None:
        """Ask the store for a whole ttl from now; raise `LeaseLost` if it no longer knows the lease."""
        drive(self._holding.renew_now(self))

    def release(self) -> None:
        """Give the resource back; raise `LeaseLost` if the lease was lost, `NotHeld` if released before."""
        drive(self._holding.give_back(self, strict=True))

    def adopt(self) -> None:
        """Make the calling thread or task the owner: renewal goes on as long as *it* lives."""
        self._owner = self._runtime.owner()

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


class MultiLease(_Staying):
    """The leases of a multilock, in sorted order of their resources."""

    def __init__(self, multi: Multi, leases: list[Lease]) -> None:
        self._multi = multi
        self.leases = tuple(leases)

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing token of each resource."""
        return {lease.resource: lease.token for lease in self.leases}

    def remaining(self) -> float:
        """Seconds until the first of the leases ends unless it is renewed."""
        return min(lease.remaining() for lease in self.leases)

    def check(self) -> None:
        """Return if all leases are held; raise `LeaseLost` for the first that was lost."""
        for lease in self.leases:
            lease.check()

    def release(self) -> None:
        """Give all of them back, whatever happens on the way; then raise the first failure."""
        drive(self._multi.give_back(self.leases, None, strict=True))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tokens}>"


class _Named(_Staying, metaclass=MadeByClients):
    """What has a name and shows it."""

    _name: str

    @property
    def name(self) -> str:
        """The name of the resource."""
        return self._name


class _Decorator(ABC):
    """A `with` that can stand over a function, too."""

    @abstractmethod
    def __enter__(self) -> Any: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """As a decorator: run the function under it, each call under a lease of its own.

        A generator holds its lease from its first step until it has ended, is closed, or nobody has it any more.
        """
        from interlock._runtime import generators  # here, not above: `import interlock` stays light

        if (method := generators.rewrapped(self, function)) is not None:
            return cast("Callable[P, R]", method)
        _refuse_coroutine(function)
        generators.refuse_context_manager(function, asynchronous=False)
        if generators.kind_of(function) == "generator function":
            return cast("Callable[P, R]", self._over_generator(cast(Any, function)))

        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return guarded

    def _over_generator(
        self, function: Callable[P, Generator[Any, Any, R]]
    ) -> Callable[P, Generator[Any, Any, R]]:
        from interlock._runtime.generators import Steps

        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> Generator[Any, Any, R]:
            with self as held:
                iteration = self._iterate(held, function)
                steps: Any = Steps(iteration, function(*args, **kwargs))
                return cast(R, (yield from steps))

        return guarded

    def _iterate(self, held: Any, function: object) -> Iteration:
        """What a generator holds while it is iterated: a lease that belongs to the generator."""
        from interlock._runtime.generators import Iteration

        return Iteration([held], function)


class _Held(_Named):
    """A `with` body under one lease."""

    _core: Any  # a kind of Holding

    def __enter__(self) -> Lease:
        attempt = self._core.attempt()
        statement = entered(self, attempt)
        try:
            lease: Lease = drive(attempt.demand())
            self._core.enter(attempt)
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


class _Body(_Held, _Decorator):
    """A `with` body, or a function, under one lease."""


class _LockFace(_Body):
    """acquire, release, `with` and decorator, the same for all that is locked."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> Lease | None:
        """Take the lock; return the lease, or None if it could not be had.

        As `threading.Lock.acquire`: waits for ever by default, up to `timeout` seconds if given (-1
        means the `timeout` this object was made with), not at all with `blocking=False`. Raises
        `StoreUnavailable` when the store does not answer. Whatever interrupts it leaves nothing behind.
        """
        attempt = self._core.attempt(blocking, timeout)
        try:
            lease: Lease | None = drive(attempt.run())
            return lease
        except BaseException:  # Ctrl-C between the grant and our return: nobody would release it
            drive(attempt.undo())
            raise

    def release(self) -> None:
        """Give back the lease the calling thread or task took; if it took none, the one this object holds.

        Raises `NotHeld` (a RuntimeError) if there is none, and `LeaseLost` if it was lost; another's
        lease is never touched.
        """
        drive(self._core.release())

    def locked(self) -> bool:
        """Whether anyone holds the resource now. Asks the store."""
        return bool(drive(self._core.locked()))

    def owned(self) -> bool:
        """Whether the calling thread or task holds the lock through this object. Asks nobody."""
        return bool(self._core.owned())

    def __repr__(self) -> str:
        state = "locked" if self._core.held() else "unlocked"
        return f"<{state} interlock.{type(self).__name__} object {self._name!r} at {id(self):#x}>"


class Lock(_LockFace):
    """A lock between processes and machines, used as `threading.Lock`; acquire returns a `Lease`."""

    def __init__(self, holding: Holding) -> None:
        self._core: Holding = holding
        self._name = holding.resource


class RLock(_LockFace):
    """A lock its owner, a thread or task, may take again: same lease, same token, no round trip."""

    def __init__(self, reentrant: Reentrant) -> None:
        self._core: Reentrant = reentrant
        self._name = reentrant.resource

    def _iterate(self, held: Lease, function: object) -> Iteration:
        from interlock._runtime.generators import Iteration

        return Iteration([held], function, moves=False)

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
    """The reading side of a read-write lock: shared with other readers."""


class WriteLock(RLock):
    """The writing side of a read-write lock: shared with nobody."""


class RWLock(_Named):
    """A read-write lock. Readers share; a waiting writer is not overtaken by later readers."""

    def __init__(self, read: Holding, write: Holding) -> None:
        self._name = read.resource
        self._read = made(ReadLock, Reentrant(read, "read"))
        self._write = made(WriteLock, Reentrant(write, "write"))

    def read(self) -> ReadLock:
        """The lock for readers. Its owner may take it again, also while it holds the write lock."""
        return self._read

    def write(self) -> WriteLock:
        """The lock for writers. A reader that asks for it gets `WouldDeadlock`.

        A writer becomes a reader by taking the read lock and then releasing the write lock.
        """
        return self._write

    def __repr__(self) -> str:
        return f"<interlock.{type(self).__name__} {self._name!r} at {id(self):#x}>"


class Semaphore(_Body):
    """A number of permits shared by processes and machines, used as `threading.Semaphore`."""

    def __init__(self, holding: SemaphoreHolding) -> None:
        self._core: SemaphoreHolding = holding
        self._name = holding.resource

    @property
    def capacity(self) -> int:
        """How many permits there are in all."""
        return self._core.capacity

    def acquire(
        self, blocking: bool = True, timeout: float | None = None, *, permits: int = 1
    ) -> Lease | Literal[False]:
        """Take `permits` at once; return the lease, or False (as `threading.Semaphore`) if not to be had."""
        attempt = self._core.attempt(blocking, timeout, permits=permits)
        try:
            lease = drive(attempt.run())
            return False if lease is None else _own(lease)
        except BaseException:  # as in Lock.acquire
            drive(attempt.undo())
            raise

    def release(self, n: int = 1) -> None:
        """Give back `n` permits: those the caller took last first, then others taken through this object.

        Permits beyond those are kept for this object's next acquire, as `threading.Semaphore` would;
        a bounded semaphore raises ValueError instead.
        """
        drive(self._core.release_permits(n))

    def locked(self) -> bool:
        """Whether no permit is left to take now. Asks the store."""
        return drive(self._core.full())

    def owned(self) -> bool:
        """Whether the calling thread or task holds permits through this object. Asks nobody."""
        return self._core.owned()

    def __repr__(self) -> str:
        bound = f"/{self._core.capacity}" if self._core.bounded else ""
        return f"<interlock.{type(self).__name__} at {id(self):#x} {self._name!r}: value={self._core.value}{bound}>"


class BoundedSemaphore(Semaphore):
    """A semaphore that refuses, with ValueError, permits it never gave out."""


class MultiLock(_Decorator, _Staying, metaclass=MadeByClients):
    """Several resources at once, taken in sorted order: all or none, and no deadlock by order."""

    def __init__(self, multi: Multi) -> None:
        self._core = multi

    @property
    def names(self) -> list[str]:
        """The names of the resources, sorted."""
        return self._core.names

    def acquire(self, blocking: bool = True, timeout: float = -1) -> MultiLease | None:
        """Take all of them under one timeout; return their leases, or None, and then none is held."""
        attempt = self._core.attempt(blocking, timeout)
        try:
            leases = drive(attempt.run())
            return None if leases is None else MultiLease(self._core, [_own(lease) for lease in leases])
        except BaseException:  # as in Lock.acquire
            drive(attempt.undo())
            raise

    def release(self) -> None:
        """Give all of them back, whatever happens on the way; then raise the first failure."""
        drive(self._core.release())

    def locked(self) -> bool:
        """Whether any of them is held by anyone. Asks the store."""
        return drive(self._core.locked())

    def owned(self) -> bool:
        """Whether the calling thread or task holds all of them through this object. Asks nobody."""
        return self._core.owned()

    def __enter__(self) -> MultiLease:
        attempt = self._core.attempt()
        statement = entered(self, attempt)
        try:
            leases = drive(attempt.demand())
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

    def _iterate(self, held: MultiLease, function: object) -> Iteration:
        from interlock._runtime.generators import Iteration

        return Iteration(held.leases, function)

    def __repr__(self) -> str:
        state = "locked" if self._core.held() else "unlocked"
        return f"<{state} interlock.{type(self).__name__} object {self.names} at {id(self):#x}>"


class Once(_Held):
    """Run once: the first gets the lease, and the others do not wait.

    Over a function: whoever does not get it skips, gets a false `Skipped` that names the holder, and one line of the log
    says so. In a `with`, which cannot skip its body, `Skipped` is raised.
    """

    def __init__(self, once: OnceCore) -> None:
        self._once = once
        self._core = once.holding
        self._name = once.text

    def __call__(self, function: Callable[P, R]) -> Callable[P, R | Skipped]:
        """As a decorator: run the function under a lease of its own, or skip."""
        from interlock._runtime import generators

        if (method := generators.rewrapped(self, function)) is not None:
            return cast("Callable[P, R | Skipped]", method)
        generators.refuse_context_manager(function, asynchronous=False)
        _refuse_generator(function)
        _refuse_coroutine(function)
        holding = self._once.over(function)

        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | Skipped:
            run = made(_Run, holding(args, kwargs))
            try:
                with run:
                    return function(*args, **kwargs)
            except Skipped as skipped:
                if skipped is not run.skipped:  # the function's own, of something that it runs once itself
                    raise
                return Skipped(skipped.resource, skipped.holder)

        return guarded

    def __repr__(self) -> str:
        return f"<interlock.{type(self).__name__} {self._name!r} at {id(self):#x}>"


class _Run(_Held):
    """One run of what runs once."""

    def __init__(self, holding: OnceHolding) -> None:
        self._core: OnceHolding = holding
        self._name = holding.resource

    @property
    def skipped(self) -> Skipped | None:
        """What its `with` raised, if it was skipped."""
        return self._core.skipped


class Election(_Named):
    """Leadership: at most one candidate leads, and everyone can read who and what it proclaims."""

    def __init__(self, holding: Holding) -> None:
        self._core = Candidacy(holding)
        self._name = holding.resource

    def campaign(self, value: str = "", *, blocking: bool = True, timeout: float = -1) -> Lease | None:
        """Stand for election with `value` (an address, say); return the lease once elected, or None."""
        attempt = self._core.attempt(value, blocking, timeout)
        try:
            lease = drive(attempt.run())
            return None if lease is None else _own(lease)
        except BaseException:  # as in Lock.acquire
            drive(attempt.undo())
            raise

    def proclaim(self, value: str) -> None:
        """Change the leader's value without a new election; raise `NotHeld` or `LeaseLost` if not leading."""
        drive(self._core.proclaim(value))

    def resign(self) -> None:
        """Give leadership up; the next candidate is elected."""
        drive(self._core.resign())

    def leading(self) -> bool:
        """Whether this candidate leads, by its own clock. Asks nobody."""
        return self._core.leading()

    def leader(self) -> Leader | None:
        """Who leads now, or None."""
        return drive(self._core.leader())

    def observe(self, timeout: float | None = None) -> Iterator[Leader | None]:
        """Yield the leader now, and again whenever it or its value changes; end after `timeout` quiet seconds."""
        seen: Queue | None = None
        known: Leader | None = None
        while (found := drive(self._core.next(seen, known, timeout))) is not None:
            seen, known = found
            yield known

    def __repr__(self) -> str:
        state = "leading" if self._core.leading() else "not leading"
        return f"<interlock.{type(self).__name__} {self._name!r} at {id(self):#x}: {state}>"


class Value(Generic[T]):
    """What a register held when it was read: a value, and the version to compare with."""

    __slots__ = ("value", "version")

    def __init__(self, value: T, version: int) -> None:
        self.value = value
        self.version = version

    def __repr__(self) -> str:
        return f"Value({self.value!r}, version={self.version})"


class Register(_Named):
    """A JSON value with a version: the optimistic lock. Versions strictly grow and are never reused."""

    def __init__(self, cell: Cell) -> None:
        self._core = cell
        self._name = cell.name

    def read(self) -> Value[Any]:
        """The value and its version; (None, 0) when there is none."""
        return Value(*drive(self._core.read()))

    def compare_and_set(self, expected: Value[Any] | int, value: Any) -> Value[Any] | None:
        """Write `value` if the register is still at the version `expected`; None if it has changed.

        Writing None deletes it. A lost reply does not make a write that succeeded look like a conflict.
        """
        version = expected.version if isinstance(expected, Value) else expected
        written = drive(self._core.compare_and_set(version, value))
        return None if written is None else Value(value, written)

    def update(self, function: Callable[[Any], Any]) -> Value[Any]:
        """Replace the value by `function(value)`, again if another came between; return what was written."""

        def decide(value: Any) -> tuple[Any, Any]:
            new = function(value)
            return new, new

        return Value(*drive(self._core.change(decide)))

    def watch(self, timeout: float | None = None) -> Iterator[Value[Any]]:
        """Yield the value now and after each change seen; end after `timeout` quiet seconds."""
        seen = -1
        while (found := drive(self._core.differing(seen, timeout))) is not None:
            seen = found[1]
            yield Value(*found)

    def __repr__(self) -> str:
        return f"<interlock.{type(self).__name__} {self._name!r} at {id(self):#x}>"


class Event(_Named):
    """A flag for all processes, used as `threading.Event`."""

    def __init__(self, cell: EventCell) -> None:
        self._core = cell
        self._name = cell.name

    def is_set(self) -> bool:
        """Whether the flag is set. Asks the store."""
        return drive(self._core.is_set())

    def set(self) -> None:
        """Set the flag and wake everyone who waits for it."""
        drive(self._core.set())

    def clear(self) -> None:
        """Take the flag down again."""
        drive(self._core.clear())

    def wait(self, timeout: float | None = None) -> bool:
        """True once the flag was set, even if cleared at once; False when `timeout` seconds passed first."""
        return drive(self._core.wait(timeout))

    def __repr__(self) -> str:
        state = "set" if self._core.known else "unset"
        return f"<interlock.{type(self).__name__} at {id(self):#x} {self._name!r}: {state}>"


class Latch(_Named):
    """A count that goes down to 0 once; whoever waits for that goes on."""

    def __init__(self, cell: LatchCell) -> None:
        self._core = cell
        self._name = cell.name

    def count(self) -> int:
        """How much is left. Asks the store."""
        return drive(self._core.count())

    def count_down(self, n: int = 1) -> int:
        """Take `n` off the count, not below 0; return what is left."""
        return drive(self._core.count_down(n))

    def wait(self, timeout: float | None = None) -> bool:
        """True once the count is 0; False when `timeout` seconds passed first."""
        return drive(self._core.wait(timeout))

    def reset(self) -> None:
        """Start again from the full count, and leave nothing in the store meanwhile."""
        drive(self._core.reset())

    def __repr__(self) -> str:
        return f"<interlock.{type(self).__name__} at {id(self):#x} {self._name!r}: from {self._core.start}>"


class Barrier(_Named):
    """A place where `parties` processes wait for each other, used as `threading.Barrier`."""

    def __init__(self, cell: BarrierCell) -> None:
        self._core = cell
        self._name = cell.name

    @property
    def parties(self) -> int:
        """How many must arrive."""
        return self._core.parties

    @property
    def n_waiting(self) -> int:
        """How many have arrived and wait. Asks the store."""
        return drive(self._core.n_waiting())

    @property
    def broken(self) -> bool:
        """Whether the barrier is broken. Asks the store."""
        return drive(self._core.broken())

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the others; return the order of arrival, 0 to parties - 1.

        Raises `BrokenBarrier` if the barrier is aborted or reset meanwhile, or after `timeout` seconds, and
        then it is broken for everybody. The last to arrive runs the `action` first.
        """
        return drive(self._core.wait(timeout))

    def abort(self) -> None:
        """Break the barrier: everyone who waits, and whoever comes, gets `BrokenBarrier`."""
        drive(self._core.abort())

    def reset(self) -> None:
        """Make it whole and empty again; those who wait get `BrokenBarrier`."""
        drive(self._core.reset())

    def __repr__(self) -> str:
        if self._core.known_broken:
            return f"<interlock.{type(self).__name__} at {id(self):#x} {self._name!r}: broken>"
        return f"<interlock.{type(self).__name__} at {id(self):#x} {self._name!r}: waiters={self._core.known}/{self.parties}>"


class Condition(_Named):
    """A condition variable for all processes, used as `threading.Condition`; its lock is an rlock by default."""

    def __init__(self, client: CoreClient, name: str, lock: Any) -> None:
        self._lock = lock
        self._core = Waiting(client, name, _mutex(lock))
        self._name = self._core.name

    def acquire(self, blocking: bool = True, timeout: float = -1) -> Any:
        """Take the condition's lock; return what its own acquire returns."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Release the condition's lock."""
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Give the lock up, wait to be notified, take it again; False when `timeout` seconds passed first.

        May return True for no reason after the store was out of reach: check your predicate in a loop, or
        use `wait_for`.
        """
        return drive(self._core.wait(timeout))

    def wait_for(self, predicate: Callable[[], R], timeout: float | None = None) -> R:
        """Wait until the predicate holds; return its last value."""
        return drive(self._core.wait_for(predicate, timeout))

    def notify(self, n: int = 1) -> None:
        """Wake up to `n` of those who wait, first come first; the caller must hold the lock."""
        drive(self._core.notify(n))

    def notify_all(self) -> None:
        """Wake everyone who waits; the caller must hold the lock."""
        drive(self._core.notify_all())

    def __enter__(self) -> Any:
        return self._lock.__enter__()

    if TYPE_CHECKING:
        __exit__ = _exit
    else:

        @OtherExit
        def __exit__(self):
            return self._lock

    def __repr__(self) -> str:
        return f"<interlock.{type(self).__name__} at {id(self):#x} {self._name!r}: {self._lock!r}>"


class Guard(_Named):
    """A high-water mark for tokens in the store: for resources that cannot check tokens themselves."""

    def __init__(self, mark: Mark) -> None:
        self._core = mark
        self._name = mark.name

    def accept(self, lease: Lease | int) -> int:
        """Accept a lease's token, or raise `StaleToken` if a higher one was accepted before."""
        return drive(self._core.accept(lease))

    def highest(self) -> int:
        """The highest token accepted so far; 0 when there is none."""
        return drive(self._core.highest())


class Client:
    """A connection to one store, and the maker of everything that is locked in it.

    Safe to use from any number of threads. All its leases are renewed by one thread of its own.
    """

    _origin: Origin | None = None  # how it was made, for another process to do the same

    def __init__(self, core: CoreClient, store: str = "") -> None:
        if not isinstance(core, CoreClient):
            raise TypeError("a client is made by interlock.connect(url)")
        self._core = core
        self._store = store or core.store.traits.backend  # its name, without passwords

    def __reduce__(self) -> Any:
        return made_again(self._core, self._origin)

    @property
    def traits(self) -> Traits:
        """What the store promises, as data."""
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
        """A lock on the resource `name`.

        `ttl`: how long the lease lives unrenewed (default: the client's). `timeout`: how long `with` and
        acquire wait (None: for ever). `renew=False`: let it end after its ttl. `fair=False`: try
        without queueing. `max_hold`: lost after this many seconds, however alive the holder. `min_hold`: stays
        taken at least this long, also after its release. `on_lost(lease)`: called once if it is lost.
        """
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
        """A lock its owner may take again; any rlock of this client on `name` counts together. As `lock`."""
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
        """A read-write lock: `.read()` and `.write()` are the locks. Options as of `lock`."""
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
        """A semaphore of `capacity` permits; contenders that disagree on it get `SettingsMismatch`. As `lock`."""
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
        """A semaphore that refuses permits it never gave out. As `semaphore`."""
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
        """Locks on all of `names` at once, under one timeout, all or none. Options as of `lock`."""
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
        """What runs once at a time among all workers: the others skip it. For a decorator or a `with`.

        `name` may take its parts from the arguments of the function, as in "invoice:{order_id}", or be a callable that
        gets these arguments and returns the name. `min_hold`: whoever comes less than this many seconds after the start
        skips, too, also if the run is over by then or has failed. The other options are as of `lock`.
        """
        from interlock._core.once import Once as OnceCore

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
        """An election: campaign, observe, proclaim, resign. Options as of `lock`."""
        return made(Election, Holding(self._core, name, Settings(ttl, timeout, on_lost=on_lost)))

    def register(self, name: str) -> Register:
        """A register: a JSON value with a version, for optimistic locking."""
        return made(Register, Cell(self._core, "register", name))

    def event(self, name: str) -> Event:
        """A flag for all processes."""
        return made(Event, EventCell(self._core, name))

    def latch(self, name: str, count: int) -> Latch:
        """A latch that opens after `count` count-downs."""
        return made(Latch, LatchCell(self._core, name, count))

    def barrier(
        self,
        name: str,
        parties: int,
        action: Callable[[], object] | None = None,
        timeout: float | None = None,
    ) -> Barrier:
        """A barrier for `parties` processes; the last to arrive runs `action`."""
        return made(Barrier, BarrierCell(self._core, name, parties, action, timeout))

    def condition(self, name: str, lock: Any = None) -> Condition:
        """A condition variable; its lock is `rlock(name)` unless given one."""
        return made(Condition, self._core, name, self.rlock(name) if lock is None else lock)

    def guard(self, name: str) -> Guard:
        """A high-water mark for the tokens of one resource."""
        return made(Guard, Mark(self._core, name))

    # ---- for operators -------------------------------------------------------------

    def inspect(self, name: str) -> Queue:
        """Who holds the resource and who waits, in order."""
        return drive(watching.inspected(self._core, name))

    def scan(self, prefix: str = "") -> Iterator[str]:
        """Names of resources with live claims, in order, read page by page."""
        after = ""
        while names := drive(watching.page(self._core, prefix, after)):
            yield from watching.shown(names)
            after = names[-1]

    def watch(self, name: str, timeout: float | None = None) -> Iterator[Queue]:
        """Yield the queue now, and again whenever it changes; end after `timeout` quiet seconds."""
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
        """Take the resource from its holders (or the claim `id` from its place); say whom it met.

        The holder is told `LeaseLost` with the reason at its next renewal; until then it may believe
        it holds: only a guard that checks tokens keeps its late writes out.

        A key of another program under this name (an old `SET NX` lock, or anything else) raises `ForeignKey`
        and is left alone unless `foreign` is given; one without an expiry needs `no_expiry` as well.
        """
        return drive(watching.evicted(self._core, name, id, reason, foreign, no_expiry))

    # ---- the end ---------------------------------------------------------------------

    def close(self) -> None:
        """Give back what is held, end the keeper, give up connections. Closing twice is harmless."""
        drive(self._core.close())

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._core.closed else f"{len(self._core.leases)} leases"
        return f"<interlock.{type(self).__name__} {self._store} at {id(self):#x}: {state}>"


def connect(
    url: urls.Place | None = None,
    *,
    ttl: float = 30.0,
    connect_timeout: float | None = None,
    listener: Callable[[events.Event], object] | None = None,
) -> Client:
    """Connect to the store behind `url`, or $INTERLOCK_URL, or the embedded SQLite file of this user.

    In place of a URL it takes a client of redis-py (or valkey-py), of either colour: its address, TLS and
    credentials are used, its connections are not.

    `ttl` is the default of all leases. `listener` gets every event, besides what is written to the log `interlock`.
    `connect_timeout` is how long connecting to a server may take, 5 seconds unless the URL says otherwise
    (`?connect_timeout=2`); it comes on top of the timeout of a call that must connect first, `blocking=False`
    included. Embedded stores take it and have no use for it.
    """
    from interlock.log import Log  # here, not above: `import interlock` stays light

    client = _connected(url, ttl, Log(listener), connect_timeout)
    options = {"ttl": ttl, "listener": listener, "connect_timeout": connect_timeout}
    client._origin = (connect, urls.settled(url), options)
    return client


def _connected(
    url: urls.Place | None,
    ttl: float,
    listen: Callable[[events.Event], object],
    connect_timeout: float | None = None,
) -> Client:
    """A client whose events go to `listen` alone, and not to the log."""
    from interlock.log import callback_reporter

    runtime = blocking_runtime(callback_reporter(listen))
    store = urls.open_store(url, runtime, asynchronous=False, connect_timeout=connect_timeout)
    core = CoreClient(store, runtime, runtime.for_keeper(), ttl=ttl, listener=listen, lease_type=Lease)
    lifetimes.follow(core)
    return Client(core, urls.named(url))


def _own(lease: lease_core.Lease) -> Lease:
    assert isinstance(lease, Lease)
    return lease


def _refuse_coroutine(function: Callable[..., object]) -> None:
    from interlock._runtime.generators import kind_of, name_of

    kind = kind_of(function)
    if kind in ("coroutine function", "async generator function"):
        article = "an" if kind.startswith("a") else "a"
        raise TypeError(f"{name_of(function)} is {article} {kind}: use a lock of interlock.aio")


def _refuse_generator(function: Callable[..., object]) -> None:
    from interlock._runtime.generators import kind_of, name_of

    if kind_of(function) in ("generator function", "async generator function"):
        raise TypeError(
            f"{name_of(function)} is a generator function, which a decorator cannot skip: iterate inside "
            "`with client.once(...)`"
        )


def _mutex(lock: Any) -> Mutex:
    """A condition's lock, as the core wants it: interlock's own, or any with acquire and release."""
    if isinstance(lock, RLock):
        return lock._core
    if isinstance(lock, Lock):
        return HoldingMutex(lock._core)
    return ForeignLock(lock)
