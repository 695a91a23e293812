"""The conformance suite on a ZooKeeper ensemble of three, sync; the two faces are two files, so that they run side by side."""

from __future__ import annotations

import pytest

from interlock.testing.conformance import StoreFactory, suites
from interlock.testing.servers.zookeeper import steady
from tests.patience import give_requests_time
from tests.zookeeper.stores import abandon

_made = suites(StoreFactory(lambda: steady().fresh(), abandon=abandon))
globals().update({name: suite for name, suite in _made.items() if name.endswith("Sync")})


@pytest.fixture(autouse=True)
def time_for_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    give_requests_time(monkeypatch)
