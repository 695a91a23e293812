"""How a program gets its objects: clients are made by `connect`, everything else by clients.

A user who calls the class of a lock, as with those of `threading`, is told how to get one. A client that was
made from a URL can be sent to another process, where it is made again from the URL, password included. Locks
and leases stay in the process that made them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from interlock._core.client import Client
from interlock.errors import InvalidSetting, Unsupported
from interlock.store import Store

__all__ = ["MadeByClients", "Origin", "check_reach", "made", "made_again", "public_path"]

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


class MadeByClients(type):
    """The metaclass of classes that users do not call."""

    if not TYPE_CHECKING:  # to a type checker `Lock("x")` is an error of its own

        def __call__(cls, *args: object, **options: object) -> Any:
            package = public_path(cls).rpartition(".")[0]
            raise TypeError(
                f"{cls.__name__} objects are made by a client: {package}.connect().{MAKERS[cls.__name__]}"
            )


def public_path(kind: type) -> str:
    """The name by which users know a class of ours: `interlock.Lock`, `interlock.aio.Lock`."""
    return f"{kind.__module__.replace('interlock.blocking', 'interlock')}.{kind.__name__}"


if TYPE_CHECKING:

    def made(kind: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Make an object of a class that users do not call."""
        ...

else:
    made = (
        type.__call__
    )  # not the metaclass's own; and without a frame, as many programs make a lock each time


REACHES = ("process", "machine", "network")
"""How far apart contenders may be, the nearest first: see `Traits.reach`."""


def check_reach(store: Store, requires: str | None) -> None:
    """Refuse a store that does not reach as far as the program needs, or $INTERLOCK_REQUIRES says it does.

    A lock file that was meant for a laptop would let the workers of a cluster run beside each other.
    """
    wanted = os.environ.get("INTERLOCK_REQUIRES") or None if requires is None else requires
    if wanted is None:
        return
    if wanted not in REACHES:
        named = "$INTERLOCK_REQUIRES" if requires is None else "requires"
        raise InvalidSetting(f"{named} is process, machine or network, not {wanted!r}")
    reach = store.traits.reach
    if REACHES.index(reach) < REACHES.index(wanted):
        raise Unsupported(
            f"{store.traits.backend} locks exclude the programs of one {reach} only, and requires={wanted} "
            "was asked for: name a store that all of them reach, with a URL or $INTERLOCK_URL"
        )


Origin = tuple[Callable[..., Any], str | list[str] | None, Mapping[str, Any]]
"""How a client was made: `connect`, the URLs (None: it was given a client object), and the options."""


def made_again(core: Client, origin: Origin | None) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return what pickle needs to make a client again in another process; TypeError if nobody can."""
    core.check_open()
    if origin is None:
        raise TypeError("this client was not made by connect(): connect in the worker")
    if core.store.traits.reach == "process":
        raise TypeError(
            f"{core.store.traits.backend}:// is seen by one process alone: connect in the worker, to a store "
            "that both see"
        )
    connect, urls, options = origin
    if urls is None:
        raise TypeError(
            "this client was made from another client's object, and not from a URL: connect in the worker"
        )
    return _connected_again, (connect, urls, dict(options))


def _connected_again(connect: Callable[..., Any], urls: str | list[str], options: dict[str, Any]) -> Any:
    return connect(urls, **options)
