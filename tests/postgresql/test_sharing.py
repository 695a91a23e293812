"""Clients of one process share the connection that listens, and wake one another within the process."""

from __future__ import annotations

from interlock.testing.conformance import CLIENT_SUITES, STORE_SUITES, StoreFactory, suites
from interlock.testing.servers.postgresql import fresh_schema, steady

WAKING = [suite for suite in (*STORE_SUITES, *CLIENT_SUITES) if suite.__name__ in ("Wakeups", "Conditions")]

globals().update(suites(StoreFactory(lambda: steady().url(fresh_schema())), WAKING))
