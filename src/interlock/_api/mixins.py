"""The part of the API that sync and async have in common: everything that needs no `await` stands here, once.

`blocking.py` and `aio.py` build their classes on these mixins and add the methods that ask the store. The
client's factories (`lock`, `semaphore`, ...) are generic over the classes of the API, so that an editor shows
`interlock.aio.Lock` where it is one. They list their options instead of taking `**options`, because `help()`
and an editor's hint then show each one with its default.

Locks and semaphores are made often. The core of everything else is imported when a client connects, so that
`import interlock` stays light.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, cast

from interlock._api.construction import MadeByClients, Origin, made, made_again, public_path
from interlock._core import lease as lease_core
from interlock._core.client import Client as CoreClient
from interlock._core.holding import Holding
from interlock._core.reentry import Reentrant
from interlock._core.semaphore import SemaphoreHolding
from interlock._core.settings import DEFAULT_SETTINGS, DEFAULTS, Settings
from interlock._support.wording import printable
from interlock.model import EVERYTHING, Traits

if TYPE_CHECKING:
    from interlock._core.barrier import BarrierCell
    from interlock._core.condition import ConditionCore, Mutex
    from interlock._core.election import Candidacy
    from interlock._core.high_water_mark import HighWaterMark
    from interlock._core.multilock import Multi
    from interlock._core.naming import Arguments, Keywords
    from interlock._core.once import Once as OnceCore
    from interlock._core.once import OnceHolding
    from interlock._core.register import Cell, EventCell, LatchCell
    from interlock.errors import Skipped
    from interlock.store import Store


PARTS = (
    *("_core.barrier", "_core.condition", "_core.election", "_core.high_water_mark", "_core.multilock"),
    *("_core.once", "_core.register", "_core.watching", "_runtime.foreign", "_api.decorated"),
)


def load_parts() -> None:
    """Import what later calls of a client need, for `connect`: then none of them can fail for an import.

    A program that has no descriptor left cannot import a module, and its first waiter would meet a raw
    OSError. It takes 8 ms.
    """
    import_module("json")
    for part in PARTS:
        import_module(f"interlock.{part}")


class Unpicklable:
    """An object that cannot be sent to another process: TypeError says what to send instead."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} stays in the process that made it: send names and tokens, and a client "
            "that was made from a URL, or connect in the worker"
        )


# ---- leases --------------------------------------------------------------------------


class LeaseMixin(Unpicklable, lease_core.Lease):
    """The methods of a lease that need no `await`."""

    __slots__ = ()

    def adopt(self) -> None:
        """Make the calling thread or task the owner: the lease is renewed for as long as that one lives.

        From then on it alone can enter an rlock or a read-write lock again, and release it. Raises as `check`
        does if the lease was lost or released: then there is nothing to renew; and `WouldDeadlock` if the
        caller is inside that lock already, by a lease of its own.
        """
        self.check()
        self._set_owner(self._runtime.owner())


LeaseT = TypeVar("LeaseT", bound=LeaseMixin)


class MultiLeaseMixin(Unpicklable, Generic[LeaseT]):
    """Several leases that were taken together."""

    def __init__(self, multi: Multi, leases: Sequence[LeaseT]) -> None:
        self._multi = multi
        self.leases: tuple[LeaseT, ...] = tuple(leases)

    @property
    def tokens(self) -> dict[str, int]:
        """The fencing token of each resource, by its name."""
        return {lease.resource: lease.token for lease in self.leases}

    def remaining(self) -> float:
        """Return the seconds until the first of the leases ends, unless it is renewed."""
        return min(lease.remaining() for lease in self.leases)

    def check(self) -> None:
        """Return if all leases are held; raise `LeaseLost` for the first one that was lost."""
        for lease in self.leases:
            lease.check()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tokens}>"


# ---- objects that a client makes ------------------------------------------------------


class Named(Unpicklable, metaclass=MadeByClients):
    """An object that a client makes for one resource."""

    _name: str

    @property
    def name(self) -> str:
        """The name of the resource."""
        return self._name

    def __repr__(self) -> str:
        return f"<{public_path(type(self))} {self._name!r} at {id(self):#x}>"

    def _shown(self, state: str) -> str:
        """The representation of an object with a state, as `threading` shows its own."""
        return f"<{public_path(type(self))} at {id(self):#x} {self._name!r}: {state}>"


class DecoratorMixin(Unpicklable, metaclass=MadeByClients):
    """Something that decorates functions; parts of its name may come from the arguments of a call."""

    _core: Any  # a kind of Holding, a Reentrant or a Multi
    _name: str

    def _for_calls(self, function: Callable[..., object]) -> Callable[[Arguments, Keywords], Self]:
        """Return how each call of a function gets its lock; raise now if no call can fill in the name."""
        from interlock._core.naming import names_over

        names = names_over(self._names(), function)
        if names is None:
            return lambda args, kwargs: self
        return lambda args, kwargs: made(type(self), self._renamed(names(args, kwargs)))

    def _names(self) -> Sequence[str]:
        return (self._name,)

    def _renamed(self, names: Sequence[str]) -> Any:
        """The core of the same lock over another name."""
        return self._core.renamed(names[0])


class LockMixin(Named):
    """The members that all locks share."""

    _core: Any  # a Holding, or a Reentrant

    def __init__(self, core: Holding | Reentrant) -> None:
        self._core = core
        self._name = core.resource

    def owned(self) -> bool:
        """Return whether the calling thread or task holds the lock through this object. Sends no request."""
        return bool(self._core.owned())

    def __repr__(self) -> str:
        state = "locked" if self._core.held() else "unlocked"
        return f"<{state} {public_path(type(self))} object {self._name!r} at {id(self):#x}>"


ReadLockT = TypeVar("ReadLockT", bound=LockMixin)
WriteLockT = TypeVar("WriteLockT", bound=LockMixin)


class RWLockMixin(Named, Generic[ReadLockT, WriteLockT]):
    """The two locks of a read-write lock."""

    _read_type: type[ReadLockT]
    _write_type: type[WriteLockT]

    def __init__(self, read: Holding, write: Holding) -> None:
        self._name = read.resource
        self._read = made(self._read_type, Reentrant(read, "read"))
        self._write = made(self._write_type, Reentrant(write, "write"))

    def read(self) -> ReadLockT:
        """Return the lock for readers. Its owner may take it again, also while it holds the write lock."""
        return self._read

    def write(self) -> WriteLockT:
        """Return the lock for writers.

        A reader that asks for it gets `WouldDeadlock`. A writer becomes a reader by taking the read lock and
        then releasing the write lock.
        """
        return self._write


class SemaphoreMixin(Named):
    """The members that both kinds of semaphores share."""

    def __init__(self, holding: SemaphoreHolding) -> None:
        self._core = holding
        self._name = holding.resource

    @property
    def capacity(self) -> int:
        """How many permits there are in all."""
        return self._core.terms.capacity

    def owned(self) -> bool:
        """Return whether the calling thread or task holds permits through this object. Sends no request."""
        return self._core.owned()

    def __repr__(self) -> str:
        bound = f"/{self._core.terms.capacity}" if self._core.bounded else ""
        return self._shown(f"value={self._core.value}{bound}")


class MultiLockMixin(DecoratorMixin):
    """The members of a multilock that need not ask the store."""

    def __init__(self, multi: Multi) -> None:
        self._core: Multi = multi

    def _names(self) -> Sequence[str]:
        return self._core.names

    def _renamed(self, names: Sequence[str]) -> Multi:
        return self._core.renamed(names)

    @property
    def names(self) -> list[str]:
        """The names of the resources, sorted."""
        return self._core.names

    def owned(self) -> bool:
        """Return whether the calling thread or task holds all of them through this object.

        Sends no request.
        """
        return self._core.owned()

    def __repr__(self) -> str:
        state = "locked" if self._core.held() else "unlocked"
        return f"<{state} {public_path(type(self))} object {self.names} at {id(self):#x}>"


class OnceMixin(Named):
    """The members of a job that runs once."""

    def __init__(self, once: OnceCore) -> None:
        self._once = once
        self._core: Any = once.holding
        self._name = once.text


class OnceRunMixin(Named):
    """One run of a function that runs once."""

    def __init__(self, holding: OnceHolding) -> None:
        self._core = holding
        self._name = holding.resource

    @property
    def skipped(self) -> Skipped | None:
        """The error that its `with` raised, if it was skipped."""
        return self._core.skipped


class ElectionMixin(Named):
    """The members of a candidate that need not ask the store."""

    def __init__(self, candidacy: Candidacy) -> None:
        self._core = candidacy
        self._name = candidacy.holding.resource

    def leading(self) -> bool:
        """Return whether this candidate leads, by its own clock. Sends no request."""
        return self._core.leading()

    def __repr__(self) -> str:
        state = "leading" if self._core.leading() else "not leading"
        return f"<{public_path(type(self))} {self._name!r} at {id(self):#x}: {state}>"


class RegisterMixin(Named):
    """A register and its name."""

    def __init__(self, cell: Cell) -> None:
        self._core = cell
        self._name = cell.name


class EventMixin(Named):
    """An event and its name."""

    def __init__(self, cell: EventCell) -> None:
        self._core = cell
        self._name = cell.name

    def __repr__(self) -> str:
        return self._shown("set" if self._core.known else "unset")


class LatchMixin(Named):
    """A latch and its name."""

    def __init__(self, cell: LatchCell) -> None:
        self._core = cell
        self._name = cell.name

    def __repr__(self) -> str:
        return self._shown(f"from {self._core.start}")


class BarrierMixin(Named):
    """The members of a barrier that need not ask the store."""

    def __init__(self, cell: BarrierCell) -> None:
        self._core = cell
        self._name = cell.name

    @property
    def parties(self) -> int:
        """How many must arrive before all go on."""
        return self._core.parties

    def __repr__(self) -> str:
        return self._shown(
            "broken" if self._core.known_broken else f"waiters={self._core.known}/{self._core.parties}"
        )


class ConditionMixin(Named):
    """A condition variable and its lock."""

    def __init__(self, waiting: ConditionCore, lock: Any) -> None:
        self._core = waiting
        self._name = waiting.name
        self._lock = lock

    def __repr__(self) -> str:
        return self._shown(repr(self._lock))


class GuardMixin(Named):
    """A guard and its name."""

    def __init__(self, mark: HighWaterMark) -> None:
        self._core = mark
        self._name = mark.name


# ---- the client ------------------------------------------------------------------------


LockT = TypeVar("LockT", bound=LockMixin)
RLockT = TypeVar("RLockT", bound=LockMixin)
RWLockT = TypeVar("RWLockT", bound=RWLockMixin[Any, Any])
SemaphoreT = TypeVar("SemaphoreT", bound=SemaphoreMixin)
BoundedSemaphoreT = TypeVar("BoundedSemaphoreT", bound=SemaphoreMixin)
MultiLockT = TypeVar("MultiLockT", bound=MultiLockMixin)
OnceT = TypeVar("OnceT", bound=OnceMixin)
ElectionT = TypeVar("ElectionT", bound=ElectionMixin)
RegisterT = TypeVar("RegisterT", bound=RegisterMixin)
EventT = TypeVar("EventT", bound=EventMixin)
LatchT = TypeVar("LatchT", bound=LatchMixin)
BarrierT = TypeVar("BarrierT", bound=BarrierMixin)
ConditionT = TypeVar("ConditionT", bound=ConditionMixin)
GuardT = TypeVar("GuardT", bound=GuardMixin)


class ClientMixin(
    Generic[
        LeaseT,
        LockT,
        RLockT,
        RWLockT,
        SemaphoreT,
        BoundedSemaphoreT,
        MultiLockT,
        OnceT,
        ElectionT,
        RegisterT,
        EventT,
        LatchT,
        BarrierT,
        ConditionT,
        GuardT,
    ]
):
    """The client's factories: each makes one object, and asks the store nothing until that object is used."""

    _lock_type: type[LockT]
    _rlock_type: type[RLockT]
    _rwlock_type: type[RWLockT]
    _semaphore_type: type[SemaphoreT]
    _bounded_semaphore_type: type[BoundedSemaphoreT]
    _multilock_type: type[MultiLockT]
    _once_type: type[OnceT]
    _election_type: type[ElectionT]
    _register_type: type[RegisterT]
    _event_type: type[EventT]
    _latch_type: type[LatchT]
    _barrier_type: type[BarrierT]
    _condition_type: type[ConditionT]
    _guard_type: type[GuardT]

    _origin: Origin | None = None  # how it was made, for another process to do the same

    def __init__(self, core: CoreClient, store: str = "") -> None:
        if not isinstance(core, CoreClient):
            raise TypeError(f"a client is made by {public_path(type(self)).rpartition('.')[0]}.connect(url)")
        self._core = core
        self._store = store or core.store.traits.backend  # its name, without passwords

    def __reduce__(self) -> Any:
        return made_again(self._core, self._origin)

    def __repr__(self) -> str:
        state = "closed" if self._core.closed else f"{len(self._core.leases)} leases"
        return f"<{public_path(type(self))} {printable(self._store)} at {id(self):#x}: {state}>"

    @property
    def traits(self) -> Traits:
        """What the store promises, as data: how far it reaches, whether it is fair, what a token survives."""
        return self._core.store.traits

    @property
    def store(self) -> Store:
        """The store itself, for tools that need what this API does not offer; see `interlock.store.Store`."""
        return self._core.store

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
        on_lost: Callable[[LeaseT], object] | None = None,
        note: str = "",
    ) -> LockT:
        """Make a lock on the resource `name`. Over a function, parts of it come from the arguments:
        "ship:{order_id}".

        - `ttl`: how many seconds the lease lives unless it is renewed, and so how long others wait if this
          process dies (default: the client's).
        - `timeout`: how many seconds `with` and `acquire` wait for the lock (default: for ever).
        - `renew`: False lets the lease end after its ttl instead of renewing it while its owner lives.
        - `fair`: False tries without a place in the queue, so that others may be served first.
        - `max_hold`: after this many seconds the lease is lost, even if its holder is alive.
        - `min_hold`: the resource stays taken for at least this many seconds, even if it is released before.
        - `on_lost`: called once with the lease, if the lease is lost. In `interlock.aio` it may be a
          coroutine function.
        - `note`: one line of text that `inspect` shows beside the holder, for operators.
        """
        asked = (ttl, timeout, renew, fair, max_hold, min_hold, on_lost, note)
        settings = DEFAULT_SETTINGS if asked == DEFAULTS else Settings(*asked)
        return made(self._lock_type, Holding(self._core, name, settings, passes=True))

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
        on_lost: Callable[[LeaseT], object] | None = None,
        note: str = "",
    ) -> RLockT:
        """Make a lock that its owner, a thread or a task, may take again.

        All rlocks of this client on one `name` count together. The options are those of `lock`; until the
        outermost exit, those of the first entry hold, and those of other objects have no effect.
        """
        settings = Settings(ttl, timeout, renew, fair, max_hold, min_hold, on_lost, note)
        return made(self._rlock_type, Reentrant(Holding(self._core, name, settings, passes=True)))

    def rwlock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        fair: bool = True,
        max_hold: float | None = None,
        min_hold: float | None = None,
        on_lost: Callable[[LeaseT], object] | None = None,
        note: str = "",
    ) -> RWLockT:
        """Make a read-write lock: take its `.read()` or its `.write()`. The options are those of `lock`."""
        settings = Settings(ttl, timeout, renew, fair, max_hold, min_hold, on_lost, note)
        return made(
            self._rwlock_type,
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
        on_lost: Callable[[LeaseT], object] | None = None,
        note: str = "",
    ) -> SemaphoreT:
        """Make a semaphore of `capacity` permits. The other options are those of `lock`.

        All who use one name must agree on its capacity; the others get `SettingsMismatch`.
        """
        settings = Settings(ttl, timeout, renew, fair, max_hold, min_hold, on_lost, note)
        return made(
            self._semaphore_type,
            SemaphoreHolding(self._core, name, settings, capacity=capacity, bounded=False),
        )

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
        on_lost: Callable[[LeaseT], object] | None = None,
        note: str = "",
    ) -> BoundedSemaphoreT:
        """Make a semaphore that refuses to take back permits it never gave out.

        The options are those of `semaphore`.
        """
        settings = Settings(ttl, timeout, renew, fair, max_hold, min_hold, on_lost, note)
        return made(
            self._bounded_semaphore_type,
            SemaphoreHolding(self._core, name, settings, capacity=capacity, bounded=True),
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
        on_lost: Callable[[LeaseT], object] | None = None,
        note: str = "",
    ) -> MultiLockT:
        """Make a lock on all of `names`: it takes all of them within one timeout, or none.

        The options are those of `lock`; `on_lost` is called for each lease that is lost.
        """
        from interlock._core.multilock import Multi

        settings = Settings(ttl, timeout, renew, fair, max_hold, None, on_lost, note)
        return made(self._multilock_type, Multi(self._core, names, settings))

    def once(
        self,
        name: str | Callable[..., str],
        *,
        ttl: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        min_hold: float | None = None,
        on_lost: Callable[[LeaseT], object] | None = None,
        note: str = "",
    ) -> OnceT:
        """Make a decorator, or a context manager, whose body runs once at a time among all workers; the
        others skip it.

        - `name`: may have parts that come from the arguments of the decorated function, as in
          "invoice:{order_id}"; or a function that gets these arguments and returns the name.
        - `min_hold`: others skip for at least this many seconds after the start, even if the run is over by
          then or has failed.

        The other options are those of `lock`.
        """
        from interlock._core.once import Once as OnceCore

        settings = Settings(ttl, 0.0, renew, True, max_hold, min_hold, on_lost, note)
        return made(self._once_type, OnceCore(self._core, name, settings))

    def election(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        on_lost: Callable[[LeaseT], object] | None = None,
    ) -> ElectionT:
        """Make a candidate, and an observer, of the election `name`. The options are those of `lock`."""
        from interlock._core.election import Candidacy

        settings = Settings(ttl, timeout, on_lost=on_lost)
        return made(self._election_type, Candidacy(Holding(self._core, name, settings)))

    def register(self, name: str) -> RegisterT:
        """Make a register: a JSON value with a version, for optimistic locking."""
        from interlock._core.register import Cell

        return made(self._register_type, Cell(self._core, "register", name))

    def event(self, name: str) -> EventT:
        """Make an event: a flag that all processes see and can wait for."""
        from interlock._core.register import EventCell

        return made(self._event_type, EventCell(self._core, name))

    def latch(self, name: str, count: int) -> LatchT:
        """Make a latch: it opens once it was counted down `count` times."""
        from interlock._core.register import LatchCell

        return made(self._latch_type, LatchCell(self._core, name, count))

    def barrier(
        self,
        name: str,
        parties: int,
        action: Callable[[], object] | None = None,
        timeout: float | None = None,
    ) -> BarrierT:
        """Make a barrier at which `parties` threads, tasks or processes wait for each other.

        - `action`: called by the last to arrive, before any of them goes on. In `interlock.aio` it may be a
          coroutine function.
        - `timeout`: how many seconds `wait` waits unless it is given its own (default: for ever).
        """
        from interlock._core.barrier import BarrierCell

        return made(self._barrier_type, BarrierCell(self._core, name, parties, action, timeout))

    def condition(self, name: str, lock: Any = None) -> ConditionT:
        """Make a condition variable. Its lock is `rlock(name)` unless another one is given.

        `lock` may be a lock or an rlock of this client, or any object with `acquire` and `release`.
        """
        from interlock._core.condition import ConditionCore

        lock = self.rlock(name) if lock is None else lock
        return made(self._condition_type, ConditionCore(self._core, name, self._mutex(lock)), lock)

    def _mutex(self, lock: Any) -> Mutex:
        """A condition's lock as the core wants it."""
        if isinstance(lock, self._rlock_type):
            return cast("Mutex", lock._core)
        if isinstance(lock, self._lock_type):
            from interlock._core.condition import HoldingMutex

            return HoldingMutex(lock._core)
        from interlock._runtime.foreign import ForeignLock

        return cast("Mutex", ForeignLock(lock))

    def guard(self, name: str) -> GuardT:
        """Make a guard: it remembers the highest token that was accepted for `name`, and refuses lower
        ones.
        """
        from interlock._core.high_water_mark import HighWaterMark

        return made(self._guard_type, HighWaterMark(self._core, name))
