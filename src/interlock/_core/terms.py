"""The settings of a lock, checked once, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock._core import timing
from interlock._core.cohort import TOKENS_PER_GRANT
from interlock._core.names import checked_note
from interlock._core.settings import Settings
from interlock.errors import InvalidSetting, Unsupported
from interlock.model import EVERYTHING, Traits


class Terms:
    """How a resource is asked for and held.

    All locks of a client that ask for nothing special share one object.
    """

    __slots__ = (
        "block",
        "capacity",
        "fair",
        "kind",
        "max_hold",
        "min_hold",
        "note",
        "on_lost",
        "permits",
        "place_ttl",
        "renew",
        "timeout",
        "ttl",
        "validity",
    )

    def __init__(
        self, traits: Traits, ttl: float, settings: Settings, *, permits: int, capacity: int, passes: bool
    ) -> None:
        """`ttl` is the client's.

        With `passes`, the waiters of one client may pass a claim on among themselves.
        """
        self.permits = permits
        self.capacity = capacity
        self.kind = "lock" if capacity == 1 else "semaphore"  # for listeners that count
        if capacity == EVERYTHING:
            self.kind = "read" if permits == 1 else "write"
        self.ttl = ttl if settings.ttl is None else timing.checked_ttl(settings.ttl, traits)
        self.timeout = timing.checked_timeout(settings.timeout)
        self.max_hold = timing.checked_duration(settings.max_hold, "max_hold")
        self.min_hold = timing.checked_min_hold(settings.min_hold)
        if self.max_hold is not None:  # or the store would keep others out when this lease has long been lost
            self.ttl = min(self.ttl, max(self.max_hold, traits.min_ttl))
        self.validity, self.place_ttl = timing.validity(self.ttl), timing.place_ttl(self.ttl)
        self.renew = settings.renew
        self.fair = settings.fair and traits.fair  # whether its claims queue
        self.on_lost: Callable[[Any], object] | None = settings.on_lost
        self.note = checked_note(settings.note)
        # An heir gets the rest of a ttl and the claim of another: only locks that ask for nothing special are
        # passed on.
        plain = settings.renew and settings.fair and self.max_hold is None and not self.min_hold
        self.block = TOKENS_PER_GRANT if passes and plain and not self.note and traits.blocks else 1
        self._check(traits)

    def _check(self, traits: Traits) -> None:
        if self.on_lost is not None and not callable(self.on_lost):
            raise TypeError("on_lost must be callable")
        if self.max_hold is not None and self.min_hold > self.max_hold:
            raise InvalidSetting("min_hold must not exceed max_hold")
        exclusive_or_pairwise = self.capacity in (1, EVERYTHING)
        if traits.shares == "none" and self.capacity != 1:
            raise Unsupported(f"{traits.backend} keeps only exclusive locks")
        if traits.shares == "pairwise" and not exclusive_or_pairwise:
            raise Unsupported(
                f"{traits.backend} keeps no semaphores: its majorities settle only pairwise conflicts; "
                "keep them on one server"
            )
