"""What a client still owes the store: a claim that could not be taken back in time."""

from __future__ import annotations

from interlock.model import Renewal, RenewAnswer


class Debt:
    """A claim that must still be taken back: its caller could not wait for a store that did not answer."""

    def __init__(self, resource: str, id: str, linger: float, until: float, now: float) -> None:
        self.resource = resource
        self.id = id
        self.linger = linger
        self.deadline = float("inf")
        self._over = False
        self.until = until  # by then it has lapsed by itself
        self._when = now

    def _renewal(self, now: float) -> Renewal | None:
        return None

    def _answered(self, asked: float, answer: RenewAnswer) -> None:
        """Never asked: a debt is not renewed."""

    def _unanswered(self) -> None:
        """Never asked: a debt is not renewed."""

    def _look(self, now: float) -> None:
        """A debt has no holder to tell."""
