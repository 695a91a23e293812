"""One ensemble for all tests of a run that do not break it."""

from __future__ import annotations

import pytest

from interlock.testing.servers.zookeeper import Servers, steady
from tests.patience import give_servers_time


@pytest.fixture(scope="session")
def ensemble() -> Servers:
    return steady()


@pytest.fixture
def url(ensemble: Servers) -> str:
    """A place of this test's own."""
    return ensemble.fresh()


@pytest.fixture(autouse=True)
def time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    give_servers_time(monkeypatch)
