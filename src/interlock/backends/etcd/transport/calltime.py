"""The time of one call of the port, of which all its requests share what is left."""

from __future__ import annotations

from collections.abc import Callable

from interlock.backends.kit.deadline import Deadline


class CallTime(Deadline):
    """The instant by which a call must be back.

    Connecting has seconds of its own, `connecting`: what it uses of them, the call may take longer.
    """

    __slots__ = ("connecting",)

    def __init__(self, now: Callable[[], float], timeout: float, connecting: float = 0.0) -> None:
        self._now = now  # what `Deadline` does: one call less for each request
        self.at = now() + timeout
        self.connecting = connecting

    def to_connect(self) -> float:
        """Seconds that connecting may take now, all in all."""
        return self.left() + self.connecting

    def connected(self, took: float) -> None:
        """Connecting has taken so many seconds."""
        extra = min(took, self.connecting)
        self.connecting -= extra
        self.at += extra
