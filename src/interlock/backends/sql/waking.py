"""How those who wait are woken: what `listener` (a subscription to a server) and `sqlite.notifier`
(doorbells) have in common.

Topics are `c<id>` for a claim, `q<resource>` for a queue, and `r<name>` for a register.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from interlock._core.runtime import Signal
from interlock.backends.sql.steps import Rows


class ChangeRead(NamedTuple):
    """How a watcher finds out whether anything has changed: a step that only reads, and what its rows
    tell.
    """

    step: str
    args: tuple[Any, ...]
    changed: Callable[[Rows], bool]


class Waiter:
    """One call that waits for topics: for a claim on a resource, or for anything that a look can find out."""

    __slots__ = (
        "__weakref__",
        "change_read",
        "holds",
        "polled",
        "reads",
        "resource",
        "signal",
        "topics",
        "wake",
    )

    def __init__(
        self,
        signal: Signal,
        *topics: str,
        resource: str = "",
        change_read: ChangeRead | None = None,
        holds: bool = False,
        reads: bool = False,
    ) -> None:
        self.signal = signal
        self.topics = topics
        self.resource = resource
        self.change_read = change_read
        self.holds = holds  # whether its claim is in, and it waits for the claim to go
        self.reads = reads  # whether its thread may wait for something else than the signal
        self.wake: Callable[[], None] | None = None  # wakes its thread, if it does
        self.polled = False  # whether a poll has seen where its claim stands

    def set(self) -> None:
        self.signal.set()  # first: a thread that wakes must see it
        if (wake := self.wake) is not None:
            wake()

    def is_set(self) -> bool:
        return self.signal.is_set()


class Waking(Protocol):
    """Wakes the waiters of one store. Any thread may call."""

    @property
    def bell(self) -> str:
        """The address at which we are rung, as it stands in rows; '' while nothing would be received
        there.
        """
        ...

    def listen(self, waiter: Waiter) -> None:
        """From now on a ring for one of its topics sets the waiter. Look once more after this; then wait."""
        ...

    def subscribed(self, waiter: Waiter) -> bool:
        """Whether rings arrive.

        If not, the waiter is set once they do, or once it is clear that they cannot.
        """
        ...

    def forget(self, waiter: Waiter) -> None: ...

    def wake(self, topic: str) -> None:
        """Set all waiters of a topic: we have changed something about it ourselves."""
        ...
