"""One server for all tests of a worker that do not break it; and readable assertions of the shipped suite."""

from __future__ import annotations

import pytest

from tests.mysql.server import Server, steady

pytest.register_assert_rewrite("interlock.testing.conformance")


@pytest.fixture(scope="session")
def server() -> Server:
    return steady()


@pytest.fixture
def url(server: Server) -> str:
    """A place of this test's own."""
    return server.fresh_url()
