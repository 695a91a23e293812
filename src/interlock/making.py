"""Locks and their kin are made by clients. Whoever calls their classes, as those of `threading`, is told how."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

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
