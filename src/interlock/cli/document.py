"""Queues as JSON: the same shape in `ls`, `inspect`, `watch` and `evict`."""

from __future__ import annotations

from typing import Any

from interlock.cli import words
from interlock.model import Queue, Standing
from interlock.who import Who


def of_standing(standing: Standing) -> dict[str, Any]:
    who = Who.parse(standing.who)
    return {
        "id": standing.id,
        "token": standing.token,
        "permits": standing.permits,
        "age": round(standing.age, 3),
        "lapses_in": round(standing.lapses_in, 3),
        "note": standing.note,
        "host": who.host,
        "pid": who.pid,
        "thread": who.thread,
        "site": who.site,
    }


def of_queue(queue: Queue) -> dict[str, Any]:
    return {
        "resource": queue.resource,
        "capacity": queue.capacity,
        "kind": words.kind(queue),
        "holders": [of_standing(standing) for standing in queue.holders],
        "waiters": [of_standing(standing) for standing in queue.waiters],
    }
