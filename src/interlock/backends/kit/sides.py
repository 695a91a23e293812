"""The sides of one client: the store that its callers use, the keeper's, and the blocking one of asyncio.

Callers take turns on their connections, and a renewal that waited for its turn would come too late just when
the client is busiest. So the keeper has a store over connections of its own. It is made when the client first
asks for it, and shares with the callers' store what the client knows of its claims. A store for asyncio has a
blocking side as well, for a keeper on a thread and for the end of the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

S = TypeVar("S")


class Sides(Generic[S]):
    """The other sides of a store. It does not hold the store itself, which would then outlive its user."""

    __slots__ = ("_kept", "blocking", "make_keeper")

    def __init__(self, blocking: S | None = None, make_keeper: Callable[[], S] | None = None) -> None:
        self.blocking = blocking
        self.make_keeper = make_keeper
        """Makes the keeper's side, once; None if the store itself keeps, or the side was made."""
        self._kept: S | None = None

    def keeper(self, own: S) -> S:
        """Return the keeper's side, made now if it was not asked for before; `own` if the store itself
        keeps.
        """
        if self.make_keeper is not None:
            make, self.make_keeper = self.make_keeper, None
            if (kept := make()) is not own:
                self._kept = kept
        return own if self._kept is None else self._kept

    @property
    def kept(self) -> list[S]:
        """The keeper's side, if it was made and is another one than the store itself."""
        return [] if self._kept is None else [self._kept]

    @property
    def made(self) -> list[S]:
        """The other sides that exist: the keeper's, and the blocking one."""
        return self.kept if self.blocking is None else [*self.kept, self.blocking]
