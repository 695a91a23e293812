"""With plain messages the store on a Cluster keeps the promises of the port, and the clients on it theirs.

The suites in which somebody waits, or is told; with `dev.py test --full`, all of them.
"""

from __future__ import annotations

from uuid import uuid4

from interlock.testing.conformance import CLIENT_SUITES, STORE_SUITES, StoreFactory, suites
from interlock.testing.servers.cluster import steady
from tests.full import FULL

TOLD = {"Wakeups", "Operators"}
ALL = [*STORE_SUITES, *CLIENT_SUITES]
WANTED = [suite for suite in ALL if suite.__name__ in TOLD or FULL]


globals().update(suites(StoreFactory(lambda: steady().url(f"{uuid4().hex}:", notices="plain")), WANTED))
