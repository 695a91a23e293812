"""A quorum of five servers keeps the promises of the port that its traits make, and the clients on it theirs.

The suites that depend on the store; with `dev.py test --full`, all of them.
"""

from __future__ import annotations

from uuid import uuid4

import pytest

from interlock.testing.conformance import CLIENT_SUITES, STORE_SUITES, StoreFactory, suites
from interlock.testing.servers.redlock import steady
from tests.full import FULL
from tests.patience import give_servers_time

CLIENTS = {"LockAsMutex", "RWLocks", "RLocks", "MultiLocks", "Elections", "Conditions", "Leases"}
KEPT = {*(suite.__name__ for suite in STORE_SUITES), *CLIENTS}
ALL = [*STORE_SUITES, *CLIENT_SUITES]
WANTED = [suite for suite in ALL if suite.__name__ in KEPT or FULL]


globals().update(suites(StoreFactory(lambda: steady().url(f"{uuid4().hex}:")), WANTED))


@pytest.fixture(autouse=True)
def time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    give_servers_time(monkeypatch)
