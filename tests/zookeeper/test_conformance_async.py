"""The conformance suite on a ZooKeeper ensemble of three, async; the two faces are two files, so that they run side by side."""

from __future__ import annotations

import pytest

from interlock.testing.conformance import StoreFactory, suites
from interlock.testing.servers.zookeeper import steady
from tests.full import second_face
from tests.patience import give_requests_time
from tests.zookeeper.stores import abandon

globals().update(second_face(suites(StoreFactory(lambda: steady().fresh(), abandon=abandon))))


@pytest.fixture(autouse=True)
def time_for_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    give_requests_time(monkeypatch)
