"""The Redis store keeps every promise of the port, and the clients on it theirs."""

from __future__ import annotations

import atexit
from functools import cache
from uuid import uuid4

from interlock.testing.conformance import StoreFactory, suites
from tests.redis.server import Server


@cache
def server() -> Server:
    """Started by the first test that needs it, not by collecting the tests."""
    started = Server()
    atexit.register(started.close)
    started.start()
    return started


globals().update(suites(StoreFactory(lambda: server().url(f"{uuid4().hex}:"))))
