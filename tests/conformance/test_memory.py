"""The reference store keeps every promise of the port, and the clients on it theirs."""

from __future__ import annotations

from uuid import uuid4

from interlock.testing.conformance import StoreFactory, suites

globals().update(suites(StoreFactory(lambda: f"memory://{uuid4().hex}")))
