"""When a lease ends for its holder, when it is renewed, and which durations are accepted. Pure."""

from __future__ import annotations

import math

from interlock._support.wording import duration
from interlock.errors import InvalidSetting
from interlock.model import Traits
from interlock.store import IO_TIMEOUT

TIMEOUT_MAX = 9223372036.0
"""The longest wait accepted, seconds; as `threading.TIMEOUT_MAX`: no caller lives to see it end."""

MAX_HOLD_S = 365 * 86400.0
"""The longest `min_hold`, seconds."""

DEFAULT_TTL_S = 30.0
"""Seconds that leases live unrenewed, unless the client or the lock says otherwise, or the store permits
no more.
"""

PLACE_TTL_S = 10.0
"""How long a waiter's place lives unrefreshed, seconds; a dead waiter delays the queue at most this."""

GRACE_S = 0.15
"""Seconds that a request may take beyond its caller's time: a call that may not wait must still be
answered.
"""

MIN_REQUEST_S = 0.01
"""Seconds for a request once the grace is used up: enough to send it, hardly enough for an answer."""

INTERRUPTED_RELEASE_S = 0.1
"""Seconds, beside the grace, that a cancelled or interrupted caller waits for its claim to be taken back."""

WATCHED_BY_RENEWALS_PART = 1 / 2
"""A waiter whose place is renewed asks for itself only about a lapse ahead of it that comes sooner than this
part of the place's ttl, which is more than the time between two renewals. Later lapses are noticed by a
renewal of the place.
"""

OVERDUE_PART = 2 / 3
"""The part of a place's ttl after which a place that was not renewed is asked for: a renewal is missing by
then.
"""

FRESH_PART = 1 / 2
"""The part of a grant's ttl that may have passed when its answer arrives; after that it is asked for
again.
"""

PASSED_ON_PART = 1 / 2
"""The time that must be left of a lease that is passed on, as part of a place's ttl.

Of a place's, because a lease that was granted with a wake-up lives only as long as its waiter's place.
"""

TAKEN_OVER_PART = PASSED_ON_PART / 2
"""The time that must be left when the heir takes it over, as part of the same: after a longer stall of its
event loop, the heir gives the claim back.
"""

DRIFT_PART = 0.02
"""How far two clocks may drift apart, as part of the time that passes."""

REACTION_S = 0.002
"""Seconds that a holder needs to stop."""


def margin(ttl: float) -> float:
    """Seconds that a holder subtracts from its lease, for clock drift and for its own reaction: so it stops
    before the store forgets the lease.
    """
    return REACTION_S + ttl * DRIFT_PART


def validity(ttl: float) -> float:
    """How long a holder counts on its lease, from before it was asked for."""
    return ttl - (REACTION_S + ttl * DRIFT_PART)


def deadline(asked: float, ttl: float) -> float:
    """The instant a lease ends for its holder: the ttl counts from before the request, less a margin."""
    return asked + validity(ttl)


def patience(left: float) -> float:
    """Seconds that a request may take if its caller has `left` seconds (below 0 once its time is up).

    Requests that follow each other share one grace: a call that asks, gives up and takes its claim back is
    late once, not three times.
    """
    return min(IO_TIMEOUT, max(MIN_REQUEST_S, left + GRACE_S))


def time_for(error: BaseException | None) -> float:
    """Seconds that the end of a `with` body may wait for the store: few if the body was interrupted."""
    interrupted = error is not None and not isinstance(error, (Exception, GeneratorExit))
    return INTERRUPTED_RELEASE_S if interrupted else math.inf


RENEWALS_PER_TTL = 3
"""How often a lease is renewed within its ttl: two renewals may get no answer before it is lost."""


def renew_every(ttl: float) -> float:
    return ttl / RENEWALS_PER_TTL


def place_ttl(ttl: float) -> float:
    return min(ttl, PLACE_TTL_S)


def checked_ttl(ttl: object, traits: Traits) -> float:
    """A ttl the store can keep, as a float; `InvalidSetting` or TypeError otherwise."""
    seconds = _seconds(ttl, "ttl")
    if not traits.min_ttl <= seconds <= traits.max_ttl:  # also refuses nan and inf
        raise InvalidSetting(
            f"ttl must be between {traits.min_ttl:g} s and {duration(traits.max_ttl)} on {traits.backend}, "
            f"not {seconds:g} s"
        )
    return seconds


def checked_duration(seconds: object, name: str) -> float | None:
    """An optional duration above 0; None stays None."""
    if seconds is None:
        return None
    value = _seconds(seconds, name)
    if not (value > 0 and math.isfinite(value)):
        raise InvalidSetting(f"{name} must be a positive number of seconds or None, not {value:g}")
    return value


def checked_min_hold(seconds: object) -> float:
    """The seconds for which others are kept out; 0 for None.

    Bounded as the longest ttl is: a store has to keep it.
    """
    value = checked_duration(seconds, "min_hold") or 0.0
    if value > MAX_HOLD_S:
        raise InvalidSetting(f"min_hold must be at most {duration(MAX_HOLD_S)}, not {value:g} s")
    return value


def checked_wait(blocking: bool, timeout: float | None, otherwise: float | None) -> float | None:
    """How long an acquire may wait: seconds, 0 for a single try, None for ever. As `threading.Lock.acquire`.

    -1 and None mean the lock's own timeout, `otherwise`.
    """
    if timeout is None or timeout == -1:
        return otherwise if blocking else 0.0
    seconds = _seconds(timeout, "timeout")
    if not blocking:
        raise InvalidSetting("can't specify a timeout for a non-blocking call")
    return checked_timeout(seconds)


def checked_timeout(timeout: object) -> float | None:
    """A timeout as `threading` takes it: None, or 0 and above."""
    if timeout is None:
        return None
    seconds = _seconds(timeout, "timeout")
    if math.isnan(seconds) or seconds < 0:
        raise InvalidSetting("timeout value must be a non-negative number")
    if seconds > TIMEOUT_MAX:
        raise OverflowError("timeout value is too large")
    return seconds


def checked_count(count: object, name: str, least: int = 1) -> int:
    """A whole number of at least `least` that every store can keep."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} must be an integer, not {type(count).__name__}")
    if not least <= count < 2**31 - 1:
        raise InvalidSetting(f"{name} must be between {least} and {2**31 - 2}, not {count}")
    return count


def _seconds(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        return math.inf
