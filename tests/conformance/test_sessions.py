"""The reference for session stores passes the conformance suite, and so do clients over it."""

from __future__ import annotations

from uuid import uuid4

from interlock._core.runtime import Runtime
from interlock._runtime.threads import Threads
from interlock.backends.memory import Space
from interlock.store import Store
from interlock.testing.conformance import StoreFactory, suites
from interlock.testing.sessions import SessionStore

_spaces: dict[str, Space] = {}


def open_store(place: str, runtime: Runtime, asynchronous: bool) -> Store:
    space = _spaces.setdefault(place, Space(runtime.now, runtime.mutex()))
    return SessionStore(space, runtime, SessionStore(space, Threads()) if asynchronous else None)


def abandon(store: Store) -> None:
    assert isinstance(store, SessionStore)
    store.expire()


globals().update(suites(StoreFactory(lambda: uuid4().hex, open_store, abandon)))
