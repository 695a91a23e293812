"""The Redis store keeps every promise of the port, and the clients on it theirs."""

from __future__ import annotations

from uuid import uuid4

from interlock.testing.conformance import StoreFactory, suites
from tests.redis.server import steady

globals().update(suites(StoreFactory(lambda: steady().url(f"{uuid4().hex}:"))))
