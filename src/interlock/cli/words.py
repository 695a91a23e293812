"""Ages, states and foreign text, as an operator reads them. Pure."""

from __future__ import annotations

from interlock.model import EVERYTHING, Queue, Standing
from interlock.who import Who
from interlock.wording import JOINER as JOINER
from interlock.wording import printable as printable


def age(seconds: float) -> str:
    """`41 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    whole = max(0, int(seconds))
    if whole < 1:
        return "<1 s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def who(standing: Standing) -> str:
    return printable(str(Who.parse(standing.who)))


def kind(queue: Queue) -> str:
    """What contenders take it for: `lock`, `read`, `write`, `2 of 3`; `idle` if there are none."""
    if not queue.standings:
        return "idle"
    if queue.capacity == 1:
        return "lock"
    if queue.capacity == EVERYTHING:
        return "write" if queue.standings[0].permits == EVERYTHING else "read"
    return f"{sum(holder.permits for holder in queue.holders)} of {queue.capacity}"


def state(standing: Standing) -> str:
    return f"{'held' if standing.admitted else 'waiting'} {age(standing.age)}"


def permits(standing: Standing, capacity: int) -> str:
    """What a claim takes, where that is not plain: `2 permits`, `read`, `write`."""
    if capacity == 1:
        return ""
    if capacity == EVERYTHING:
        return "write" if standing.permits == EVERYTHING else "read"
    return "1 permit" if standing.permits == 1 else f"{standing.permits} permits"
