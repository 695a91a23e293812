"""What can be sent to another process: a client that was made from a URL, which connects anew there.

The URL travels with it, password included. Locks and leases stay where they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from interlock._core.client import Client
from interlock.record import record

Connect = Callable[..., Any]


@record
class Origin:
    """How a client was made: the call of `connect` that makes it again."""

    connect: Connect
    place: str | list[str] | None  # None: it was made from an object, which cannot be sent
    options: Mapping[str, Any]


def reduced(core: Client, origin: Origin | None) -> tuple[Connect, tuple[Any, ...]]:
    """What pickle needs to make a client again; TypeError for one that can only be made where it is."""
    core.open()
    if origin is None:
        raise TypeError("this client was not made by connect(): connect in the worker")
    if core.store.traits.reach == "process":
        raise TypeError(
            f"{core.store.traits.backend}:// is seen by one process alone: connect in the worker, to a store that both see"
        )
    if origin.place is None:
        raise TypeError(
            "this client was made from another client's object, and not from a URL: connect in the worker"
        )
    return _connected_again, (origin.connect, origin.place, dict(origin.options))


def _connected_again(connect: Connect, place: str | list[str], options: dict[str, Any]) -> Any:
    return connect(place, **options)


class _Staying:
    """What cannot be sent to another process."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} stays in the process that made it: send names and tokens, and a client that was made "
            "from a URL, or connect in the worker"
        )
