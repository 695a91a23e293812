"""The memory of a client about its own claims, beside what the server keeps. Its sides share it."""

from __future__ import annotations

from typing import TypeVar

from interlock.errors import Unreached

MAX_REMEMBERED = 4096

K = TypeVar("K")
V = TypeVar("V")


class Remembered(dict[K, V]):
    """A dict that forgets its oldest entries, so that it never has more than `MAX_REMEMBERED`.

    It is for entries that perhaps nobody takes out: those of callers that gave up or were interrupted. It is
    a dict itself, because every claim and release asks it. Any thread may add to it.
    """

    def remember(self, key: K, value: V) -> None:
        while len(self) >= MAX_REMEMBERED:
            try:
                self.pop(next(iter(self)), None)
            except (RuntimeError, StopIteration):
                break  # another thread has changed it meanwhile
        self[key] = value


class OwnClaims:
    """The claims of a client on a server that keeps a queue: their places, and those without an answer."""

    __slots__ = ("places", "unanswered")

    def __init__(self) -> None:
        self.places: dict[str, tuple[int, int]] = {}
        """Claims that have waited: under which subscription they asked last, and the token of their place."""
        self.unanswered: Remembered[str, None] = Remembered()
        """Claims with a request that was not answered and may arrive late."""

    def leave_unanswered(self, id: str, error: BaseException) -> None:
        """Remember a claim whose request may still arrive: after its release it must not enter any more."""
        if not isinstance(error, Unreached):
            self.unanswered.remember(id, None)

    def forget(self, id: str) -> None:
        """Note that the claim was removed."""
        self.places.pop(id, None)
        self.unanswered.pop(id, None)

    def clear(self) -> None:
        """Forget everything, in a forked child."""
        self.places.clear()
        self.unanswered.clear()
