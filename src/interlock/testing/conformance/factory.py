"""Where a suite gets its stores from: the one thing the author of a store writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from interlock import urls
from interlock._core.runtime import Runtime
from interlock.store import Store


def _open_url(place: str, runtime: Runtime, asynchronous: bool) -> Store:
    return urls.open_store(place, runtime, asynchronous=asynchronous)


@dataclass(frozen=True)
class StoreFactory:
    """Makes stores for tests.

    `fresh()` names a place where nothing stands yet: a URL, or whatever `open` understands. It is called once
    a test. `open(place, runtime, asynchronous)` opens a store there, as often as asked: all stores of one
    place must meet each other's claims. Without `open`, the place is a URL that `interlock.connect` takes.
    `abandon(store)` ends a store's session as soon as it can, as if its client had crashed; only stores whose
    claims lapse with a session need it.
    """

    fresh: Callable[[], str]
    open: Callable[[str, Runtime, bool], Store] = _open_url
    abandon: Callable[[Store], object] | None = None
