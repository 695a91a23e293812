"""The attacks that every server store must survive, on one server of ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interlock.testing.servers.zookeeper import running
from tests.attacks.servers.between import Between
from tests.attacks.servers.hanging import Hanging, Stalling
from tests.attacks.servers.inside import Inside
from tests.attacks.servers.repeated import Repeated
from tests.attacks.servers.restarted import Restarted
from tests.attacks.servers.site import Site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(1) as ensemble:
        node = ensemble.nodes[0]
        yield Site(node.port, lambda session: ensemble.fresh(session=session), lambda: [node.pid])


class TestInside(Inside):
    pass


class TestBetween(Between):
    pass


class TestRepeated(Repeated):
    pass


class TestHanging(Hanging):
    pass


class TestStalling(Stalling):
    pass


class TestRestarted(Restarted):
    pass
