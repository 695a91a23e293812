"""Register writes and evictions whose reply is lost, or whose first copy arrives late, on one member of etcd."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from interlock.testing.servers.etcd import running
from tests.attacks.servers.repeated import Repeated
from tests.attacks.servers.site import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(1) as cluster:
        member = cluster.members[0]
        yield Site(member.port, lambda session: cluster.url(f"{uuid4().hex}/"), lambda: [member.pid])


class TestRepeated(Repeated):
    pass
