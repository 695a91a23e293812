"""Register writes and evictions whose reply is lost, or whose first copy arrives late, on Redis."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from interlock.testing.servers.redis import running
from tests.attacks.servers.repeated import Repeated
from tests.attacks.servers.site import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running() as server:
        yield Site(server.port, lambda session: server.url(f"{uuid4().hex}:"), lambda: [server.pid])


class TestRepeated(Repeated):
    pass
