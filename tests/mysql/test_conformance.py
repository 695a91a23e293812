"""The store on MariaDB keeps every promise of the port, and the clients on it theirs: the faces for threads. Tasks have a file of their own."""

from __future__ import annotations

from interlock.testing.conformance import StoreFactory, suites
from interlock.testing.servers.mysql import steady

SUITES = suites(StoreFactory(lambda: steady().fresh_url()))

globals().update({name: suite for name, suite in SUITES.items() if name.endswith("Sync")})
