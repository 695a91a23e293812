"""A Redis server that restarts under those who wait."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from interlock.testing.servers.redis import running
from tests.attacks.servers.restarted import Restarted
from tests.attacks.servers.site import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running() as server:
        url = f"redis://127.0.0.1:{server.port}/0"
        yield Site(server.port, lambda _: f"{url}?prefix={uuid4().hex}:", lambda: [server.pid])


class TestRestarted(Restarted):
    pass
