"""The PostgreSQL store keeps every promise of the port, and the clients on it theirs."""

from __future__ import annotations

from interlock.testing.conformance import StoreFactory, suites
from tests.postgresql.server import fresh_schema, steady

globals().update(suites(StoreFactory(lambda: steady().url(fresh_schema()))))
