"""The notice that a run is waiting, and for which holder, so that nobody believes that it hangs."""

from __future__ import annotations

import os
from collections.abc import Callable

from interlock._support.record import replaced
from interlock.blocking import Client
from interlock.cli import formatting
from interlock.errors import InterlockError
from interlock.events import Waiting
from interlock.model import Standing


def with_holder(event: Waiting, client: Client) -> Waiting:
    """The event with its holder, for which the store is asked if it has not told."""
    if event.holder is not None:
        return event
    try:
        queue = client.inspect(event.resource, limit=1)
    except InterlockError:
        return event  # the acquire meets the same error, and reports it
    return replaced(event, holder=next(iter(queue.holders), None))


def sentence(event: Waiting, capacity: int) -> str:
    """For whom a run waits, and where it stands in the queue."""
    name, holder = formatting.printable(event.resource), event.holder
    if holder is not None and _is_above_us(event.resource, holder):
        return f"{name}: waiting for itself: it is held by the `interlock run` that started this command"
    held = [] if holder is None else [formatting.held(holder)]
    return "; ".join([f"{name}: waiting", *held, *_place(capacity, event.ahead)])


def _place(capacity: int, ahead: int) -> list[str]:
    """The place in the queue; where several hold at once, only the number of claims ahead is known without
    a long look.
    """
    if ahead <= 0:  # the store keeps no queue, or has not told
        return []
    if capacity == 1:
        return ["next in the queue" if ahead == 1 else f"place {ahead} in the queue"]
    return ["1 claim ahead" if ahead == 1 else f"{ahead} claims ahead, holders included"]


def _is_above_us(
    resource: str, holder: Standing, environment: Callable[[str], str | None] = os.environ.get
) -> bool:
    """Whether this process runs under the very lease that it waits for."""
    return (
        environment("INTERLOCK_RESOURCE") == resource
        and environment("INTERLOCK_TOKEN") == str(holder.token)
        and bool(holder.token)
    )
