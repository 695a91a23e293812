"""One server for all tests of a worker that do not break it."""

from __future__ import annotations

import pytest

from interlock.testing.servers.mysql import Server, steady
from tests.patience import give_servers_time


@pytest.fixture(scope="session")
def server() -> Server:
    return steady()


@pytest.fixture
def url(server: Server) -> str:
    """A place of this test's own."""
    return server.fresh_url()


@pytest.fixture(autouse=True)
def time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    give_servers_time(monkeypatch)
