"""When a command must end so that it never runs beyond its lease. Pure.

    granted/renewed                       TERM               KILL     lease ends
        |---------------- renewed at 1/3 ---|----- grace -----|- margin -|

TERM comes while the lease still lives, at the last moment that leaves the whole grace: until then a
renewal may still be answered, and the command never knows that there was trouble.
"""

from __future__ import annotations

import math

from interlock.errors import InvalidSetting

MAX_DEFAULT_GRACE_S = 10.0


def margin(ttl: float) -> float:
    """Seconds between KILL and the end of the lease: for the kernel to end the last process."""
    return min(0.5, ttl / 20)


def renew_every(ttl: float) -> float:
    """Seconds between two renewals of a lease."""
    return ttl / 3


def checked_grace(grace: float | None, ttl: float) -> float:
    """The grace that was asked for, or a quarter of the ttl; `InvalidSetting` if the ttl has no room for
    it.
    """
    if grace is None:
        return min(MAX_DEFAULT_GRACE_S, ttl / 4)
    # A lease is renewed at a third of its ttl. With more than half of it kept for ending, a renewal
    # that is a little late would end a healthy command.
    if not (0 <= grace <= ttl / 2 and math.isfinite(grace)):
        raise InvalidSetting(
            f"--grace must be between 0 and half of --ttl ({ttl / 2:g} s), not {grace:g}: the command gets "
            "SIGTERM, and SIGKILL after the grace, before its lease ends; for a longer grace give a longer "
            "--ttl"
        )
    return grace


def kill_at(deadline: float, ttl: float) -> float:
    """The instant by which everything must be killed, for a lease that ends at `deadline`."""
    return deadline - margin(ttl)


def term_at(deadline: float, ttl: float, grace: float) -> float:
    """The instant at which an unrenewed lease costs the command its life."""
    return kill_at(deadline, ttl) - grace
