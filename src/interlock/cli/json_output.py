"""Queues as JSON: the same shape in `ls`, `inspect`, `watch` and `evict`."""

from __future__ import annotations

from typing import Any

from interlock.cli import formatting
from interlock.model import NEVER, Queue, Standing


def of_standing(standing: Standing) -> dict[str, Any]:
    who = standing.caller
    return {
        # The id of another program's key is its value, which may be a secret.
        "id": "" if standing.foreign else standing.id,
        "state": state(standing),
        "token": standing.token,
        "permits": standing.permits,
        "age": round(standing.age, 3),
        "lapses_in": None if standing.lapses_in == NEVER else round(standing.lapses_in, 3),
        "note": standing.note,
        "foreign": standing.foreign,
        "host": "" if standing.foreign else who.host,
        "pid": who.pid,
        "thread": who.thread,
        "site": who.site,
    }


def of_value(value: object) -> object:
    """A value of an event as JSON has it."""
    if isinstance(value, Standing):
        return of_standing(value)
    return value if value is None or isinstance(value, (str, int, float)) else repr(value)


def state(standing: Standing) -> str:
    """`held`, `waiting`, or `lingering`: released, and standing on for its `min_hold`."""
    if standing.lingering:
        return "lingering"
    return "held" if standing.admitted else "waiting"


def of_queue(queue: Queue) -> dict[str, Any]:
    return {
        "resource": queue.resource,
        "capacity": queue.capacity,
        "kind": formatting.kind(queue),
        "holders": [of_standing(standing) for standing in queue.holders],
        "waiters": [of_standing(standing) for standing in queue.waiters],
    }
