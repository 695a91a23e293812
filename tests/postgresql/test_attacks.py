"""The attacks that every server store must survive, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interlock.testing.servers.postgresql import fresh_schema, running
from tests.attacks.servers.between import Between
from tests.attacks.servers.hanging import Hanging
from tests.attacks.servers.inside import Inside
from tests.attacks.servers.repeated import Repeated
from tests.attacks.servers.restarted import Restarted
from tests.attacks.servers.site import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running() as server:
        yield Site(server.port, lambda session: server.url(fresh_schema()), server.processes)


class TestInside(Inside):
    pass


class TestBetween(Between):
    pass


class TestRepeated(Repeated):
    pass


class TestHanging(Hanging):
    pass


class TestRestarted(Restarted):
    pass
