"""The attacks that every server store must survive, on one member of etcd."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from interlock.testing.servers.etcd import running
from tests.attacks.servers.between import Between
from tests.attacks.servers.hanging import Stalling
from tests.attacks.servers.inside import Inside
from tests.attacks.servers.restarted import Restarted
from tests.attacks.servers.site import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(1) as cluster:
        member = cluster.members[0]
        yield Site(member.port, lambda session: cluster.url(f"{uuid4().hex}/"), lambda: [member.pid])


class TestInside(Inside):
    pass


class TestBetween(Between):
    pass


class TestStalling(Stalling):
    pass


class TestRestarted(Restarted):
    pass
