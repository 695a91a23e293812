"""A release that the store has not answered yet: its caller could not wait for it, so the keeper repeats it."""

from __future__ import annotations

FIRST_PAUSE = 0.5  # seconds until an unanswered release is tried again; doubled each time
LONGEST_PAUSE = 4.0


class PendingRelease:
    """A claim that must still be taken back."""

    __slots__ = ("due", "id", "linger", "resource", "tries", "until")

    def __init__(self, resource: str, id: str, linger: float, *, due: float, until: float) -> None:
        self.resource = resource
        self.id = id
        self.linger = linger
        self.due = due  # the next try
        self.until = until  # by then the claim has lapsed by itself
        self.tries = 0

    def put_off(self, now: float) -> bool:
        """Plan the next try; False if the claim will have lapsed by then."""
        self.due = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2**self.tries)
        self.tries += 1
        return self.due < self.until
