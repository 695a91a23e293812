"""The options of a lock object, as the faces take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock._support.record import record


@record
class Settings:
    """How a resource is asked for and held. None: the client's own, or no limit."""

    ttl: float | None = None
    timeout: float | None = None
    renew: bool = True
    fair: bool = True
    max_hold: float | None = None
    min_hold: float | None = None
    on_lost: Callable[[Any], object] | None = None
    note: str = ""


DEFAULTS = (None, None, True, True, None, None, None, "")
"""The options of a lock for which nothing was asked, in the order above."""

DEFAULT_SETTINGS = Settings(*DEFAULTS)
"""Its settings: nothing in them has to be checked."""
