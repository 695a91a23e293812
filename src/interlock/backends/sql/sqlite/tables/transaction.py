"""What a transaction offers to the steps that run inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

Rings: TypeAlias = dict[str, list[str]]
"""Whom to ring: the address of a doorbell, and the topics to name."""


class Cursor(Protocol):
    """The rows that a statement has found, or how many it has changed."""

    @property
    def rowcount(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def close(self) -> None: ...


class Connection(Protocol):
    """What the tables need of a connection: to run one statement."""

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ..., /) -> Cursor: ...


class Transaction:
    """One transaction: how it runs statements, what time it is, who lives, and whom to ring once it is
    committed.
    """

    __slots__ = ("alive", "change", "execute", "life", "now", "rings")

    def __init__(
        self, connection: Connection, cursor: Connection, now: float, life: int, alive: Callable[[int], bool]
    ) -> None:
        """`cursor` is one of the connection."""
        self.execute = connection.execute
        # As `execute`, for a statement that finds no rows: it makes no cursor. One that reads needs its own,
        # which an interrupt destroys before all rows are fetched; a shared one would keep its snapshot, and
        # what is read next would be old.
        self.change = cursor.execute
        self.now = now
        self.life = life  # of this process
        self.alive = alive  # whether the process with a life exists
        self.rings: Rings = {}

    def ring(self, address: str, topic: str) -> None:
        """Ring this bell about this topic after the commit; '' is nobody's address."""
        if address:
            self.rings.setdefault(address, []).append(topic)
