"""Saying for whom a run waits: once, after a second, so that nobody believes that it hangs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType

from interlock._core.attempt import Attempt
from interlock._core.client import Client
from interlock._core.drive import drive
from interlock._core.signature import all_signed
from interlock.cli import document, words
from interlock.cli.outlet import Outlet
from interlock.errors import InterlockError
from interlock.model import Standing

AFTER = 1.0  # seconds of waiting


class Waiting:
    """While its body waits for the attempt: after a second it says who holds the resource, and how many are ahead."""

    def __init__(self, client: Client, attempt: Attempt, outlet: Outlet) -> None:
        self._client = client
        self._attempt = attempt
        self._outlet = outlet
        self._over = threading.Event()

    def __enter__(self) -> None:
        threading.Thread(target=self._watch, name="interlock-waiting", daemon=True).start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def _watch(self) -> None:
        if self._over.wait(AFTER):
            return
        claim, ahead = self._attempt.claim, self._attempt.ahead
        try:
            queue = all_signed(drive(self._client.store.inspect(claim.resource, limit=1)))
        except InterlockError:
            return  # whoever waits meets the same trouble, and tells it
        if self._over.is_set():
            return
        holder = queue.holders[0] if queue.holders else None
        if self._outlet.json:
            held = None if holder is None else document.of_standing(holder)
            self._outlet.event("waiting", resource=claim.resource, ahead=ahead, holder=held)
        else:
            self._outlet.say(sentence(claim.resource, claim.capacity, ahead, holder))


def sentence(resource: str, capacity: int, ahead: int, holder: Standing | None) -> str:
    """For whom a run waits, and where it stands in the queue."""
    name = words.printable(resource)
    if holder is not None and _is_above_us(resource, holder):
        return f"{name}: waiting for itself: it is held by the `interlock run` that started this command"
    parts = [f"{name}: waiting", *([] if holder is None else [words.held(holder)]), *_place(capacity, ahead)]
    return "; ".join(parts)


def _place(capacity: int, ahead: int) -> list[str]:
    """The place in the queue; where several hold at once, only the number of claims ahead is known without a long look."""
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
