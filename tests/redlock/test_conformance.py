"""A quorum of five servers keeps the promises of the port that its traits make, and the clients on it theirs.

The suites that depend on the store; with INTERLOCK_FULL=1 in the environment, all of them.
"""

from __future__ import annotations

import os
from uuid import uuid4

from interlock.testing.conformance import CLIENT_SUITES, STORE_SUITES, StoreFactory, suites
from tests.redlock.servers import steady

CLIENTS = {"LockAsMutex", "RWLocks", "RLocks", "MultiLocks", "Elections", "Conditions", "Leases"}
KEPT = {*(suite.__name__ for suite in STORE_SUITES), *CLIENTS}
ALL = [*STORE_SUITES, *CLIENT_SUITES]
WANTED = [suite for suite in ALL if suite.__name__ in KEPT or os.environ.get("INTERLOCK_FULL")]


globals().update(suites(StoreFactory(lambda: steady().url(f"{uuid4().hex}:")), WANTED))
