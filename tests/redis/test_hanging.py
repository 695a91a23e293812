"""A server of Redis that hangs: alone, behind a sentinel, as a Cluster, and as the majority of a quorum."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest

from interlock.testing.servers import cluster as clusters
from interlock.testing.servers import sentinel as sentinels
from interlock.testing.servers.redis import running
from interlock.testing.servers.redlock import quorum
from tests.attacks.servers.hanging import Hanging
from tests.attacks.servers.site import Site


@pytest.fixture(scope="module", params=["alone", "sentinel", "cluster", "quorum"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        if request.param == "quorum":
            servers = stack.enter_context(quorum(3)).all
            url = f"redlock://{','.join(f'127.0.0.1:{server.port}' for server in servers)}"
        elif request.param == "cluster":
            servers = [stack.enter_context(clusters.alone())]
            url = f"redis+cluster://127.0.0.1:{servers[0].port}"
        else:
            servers = [stack.enter_context(running())]
            url = f"redis://127.0.0.1:{servers[0].port}/0"
        if request.param == "sentinel":  # it goes on answering, and names the master that hangs
            sentinel = stack.enter_context(sentinels.alone(servers[0]))
            url = f"redis+sentinel://127.0.0.1:{sentinel.port}/{sentinels.SERVICE}/0"
        hanging = [server.pid for server in servers[:2]]
        yield Site(servers[0].port, lambda _: f"{url}?prefix={uuid4().hex}:", lambda: hanging)


class TestHanging(Hanging):
    pass
