"""The attacks that every server store must survive, on MariaDB."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interlock.testing.servers.mysql import HASTY, running
from tests.attacks.servers.between import Between
from tests.attacks.servers.hanging import Hanging
from tests.attacks.servers.inside import Inside
from tests.attacks.servers.repeated import Repeated
from tests.attacks.servers.restarted import Restarted
from tests.attacks.servers.site import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(*HASTY) as server:
        yield Site(server.port, lambda session: server.fresh_url(), lambda: [server.pid])


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
