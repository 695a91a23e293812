"""The store on MariaDB keeps every promise of the port, and the clients on it theirs: the faces for threads. Tasks have a file of their own."""

from __future__ import annotations

from interlock.testing.conformance import suites
from tests.mysql.stores import STORES

globals().update({name: suite for name, suite in suites(STORES).items() if name.endswith("Sync")})
