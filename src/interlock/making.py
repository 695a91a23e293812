"""How the objects of a program are made: clients by `connect`, everything else by clients.

Whoever calls the class of a lock, as those of `threading`, is told how to get one. In another process a client that was made from
a URL is made again from it, password included; locks and leases stay where they were made.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from interlock._core.client import Client

__all__ = ["MadeByClients", "Origin", "_Staying", "made", "made_again"]

P = ParamSpec("P")
T = TypeVar("T")

MAKERS = {
    "Lock": 'lock("name")',
    "RLock": 'rlock("name")',
    "RWLock": 'rwlock("name")',
    "ReadLock": 'rwlock("name").read()',
    "WriteLock": 'rwlock("name").write()',
    "Semaphore": 'semaphore("name", capacity=3)',
    "BoundedSemaphore": 'bounded_semaphore("name", capacity=3)',
    "MultiLock": 'multilock(["one", "other"])',
    "Once": 'once("name")',
    "Election": 'election("name")',
    "Register": 'register("name")',
    "Event": 'event("name")',
    "Latch": 'latch("name", count=3)',
    "Barrier": 'barrier("name", parties=3)',
    "Condition": 'condition("name")',
    "Guard": 'guard("name")',
}


class MadeByClients(ABCMeta):
    """The class of classes that users do not call."""

    if not TYPE_CHECKING:  # to a type checker `Lock("x")` is an error of its own

        def __call__(cls, *args: object, **options: object) -> Any:
            face = cls.__module__.replace("interlock.blocking", "interlock")
            raise TypeError(
                f"{cls.__name__} objects are made by a client: {face}.connect().{MAKERS[cls.__name__]}"
            )


if TYPE_CHECKING:

    def made(kind: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """An object of a class that users do not call."""
        ...

else:
    made = type.__call__  # past the metaclass's own, and at no cost: locks are made for every pair


Origin = tuple[Callable[..., Any], str | list[str] | None, Mapping[str, Any]]
"""How a client was made: `connect`, the URLs (None: it was given an object), and the options."""


def made_again(core: Client, origin: Origin | None) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What pickle needs to make a client again in another process; TypeError for one that can only be made there."""
    core.open()
    if origin is None:
        raise TypeError("this client was not made by connect(): connect in the worker")
    if core.store.traits.reach == "process":
        raise TypeError(
            f"{core.store.traits.backend}:// is seen by one process alone: connect in the worker, to a store that both see"
        )
    connect, urls, options = origin
    if urls is None:
        raise TypeError(
            "this client was made from another client's object, and not from a URL: connect in the worker"
        )
    return _connected_again, (connect, urls, dict(options))


def _connected_again(connect: Callable[..., Any], urls: str | list[str], options: dict[str, Any]) -> Any:
    return connect(urls, **options)


class _Staying:
    """What cannot be sent to another process."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} stays in the process that made it: send names and tokens, and a client that was made "
            "from a URL, or connect in the worker"
        )
