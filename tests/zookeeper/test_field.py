"""Problems that users of other locks report, and what interlock does instead, on ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from interlock.testing.conformance import suites
from interlock.testing.servers.zookeeper import steady
from tests.field.kinds import Kind
from tests.field.sentences import FIELD
from tests.zookeeper.stores import abandon


@contextmanager
def nodes(place: str) -> Iterator[tuple[Any, str]]:
    """A client of kazoo, and the path below which everything of a place is."""
    client = KazooClient(hosts=steady().hosts)
    client.start()
    try:
        yield client, f"{urlsplit(place).path}/interlock"
    finally:
        client.stop()
        client.close()


def wipe(place: str) -> None:
    with nodes(place) as (client, root), suppress(NoNodeError):
        client.delete(root, recursive=True)


def keys(place: str) -> int:
    """Those that would not vanish by themselves: the servers remove the folder of a name once it is empty."""
    with nodes(place) as (client, root):
        folders = client.get_children(root)
        return sum(len(client.get_children(f"{root}/{name}")) for name in folders)


pytestmark = pytest.mark.soak  # minutes, and most of it is about what all stores share

ZOOKEEPER = Kind(lambda: steady().fresh(), abandon=abandon, wipe=wipe, keys=keys)

_made: dict[str, Any] = suites(ZOOKEEPER, FIELD)
for _losing in ("TestLosingSync", "TestLosingAsync"):
    # A claim lapses with its session alone; `test_sessions` has what that means for a renewal.
    _made[_losing].test_04_a_renewal_after_another_took_and_released_it_re_creates_nothing = None
globals().update(_made)
