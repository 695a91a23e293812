"""The store on MariaDB keeps every promise of the port, and the clients on it theirs."""

from __future__ import annotations

from interlock.testing.conformance import StoreFactory, suites
from tests.mysql.server import steady

globals().update(suites(StoreFactory(lambda: steady().fresh_url())))
