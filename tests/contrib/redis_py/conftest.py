"""One server for all tests of a worker that do not break it, and the four kinds of lock that must behave alike."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from interlock.testing.servers.redis import Server, running
from tests.contrib.redis_py.party import KINDS, Kind, Party


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def name() -> str:
    return f"lock-{uuid4().hex}"


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def party(server: Server, kind: Kind) -> Iterator[Party]:
    """A program that locks with this kind of lock."""
    with Party(server.port, kind) as party:
        yield party


@pytest.fixture
def other(server: Server, kind: Kind) -> Iterator[Party]:
    """Another program that locks with the same kind of lock."""
    with Party(server.port, kind) as party:
        yield party
