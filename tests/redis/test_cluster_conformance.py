"""On a Cluster the Redis store keeps the promises of the port, and the clients on it theirs.

The suites that depend on how the servers are reached; with `dev.py test --full`, all of them.
"""

from __future__ import annotations

from uuid import uuid4

from interlock.testing.conformance import CLIENT_SUITES, STORE_SUITES, StoreFactory, suites
from interlock.testing.servers.cluster import steady
from tests.full import FULL

REACHED = {"Claims", "Renewals", "Wakeups", "Registers", "Operators"}
ALL = [*STORE_SUITES, *CLIENT_SUITES]
WANTED = [suite for suite in ALL if suite.__name__ in REACHED or FULL]


globals().update(suites(StoreFactory(lambda: steady().url(f"{uuid4().hex}:")), WANTED))
