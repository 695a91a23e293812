"""One cluster for all tests of a worker that do not break it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from interlock.testing.servers.etcd import EtcdCluster, running, steady
from tests.patience import give_servers_time


@pytest.fixture
def cluster() -> EtcdCluster:
    return steady()


@pytest.fixture
def url(cluster: EtcdCluster) -> str:
    """A place of this test's own."""
    return cluster.url(f"{uuid4().hex}/")


@pytest.fixture
def key() -> str:
    """A key of this test's own: what a guard writes does not stand under its prefix."""
    return uuid4().hex


@pytest.fixture(scope="module")
def fragile() -> Iterator[EtcdCluster]:
    """A cluster for tests that break it and mend it again."""
    with running() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    give_servers_time(monkeypatch)
