"""The Redis store keeps every promise of the port, and the clients on it theirs."""

from __future__ import annotations

from uuid import uuid4

import pytest

from interlock.testing.conformance import StoreFactory, suites
from interlock.testing.servers.redis import steady
from tests.patience import give_servers_time

globals().update(suites(StoreFactory(lambda: steady().url(f"{uuid4().hex}:"))))


@pytest.fixture(autouse=True)
def time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    give_servers_time(monkeypatch)
