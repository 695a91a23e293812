"""One server for all tests of a worker that do not break it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from uuid import uuid4

import pytest

from interlock.testing.servers.redis import Server, running


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    """A place of this test's own."""
    return server.url(f"{uuid4().hex}:")


@pytest.fixture
def collected() -> Iterator[None]:
    """What a test leaves behind complains in it, not in the next."""
    yield
    gc.collect()
