"""A URL that names members of two clusters would lead to two locks of one name, and so to two holders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import interlock
from interlock.errors import LeaseLost, StoreUnfit
from interlock.testing.servers.etcd import EtcdCluster, running
from interlock.testing.servers.proxy import Proxy
from tests.patience import until

pytestmark = pytest.mark.server

Clusters = tuple[EtcdCluster, EtcdCluster]


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    with running(1) as one, running(1) as other:
        yield one, other


def of(*ports: int) -> str:
    return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in ports)


def test_members_of_two_clusters_in_one_url_are_refused_by_name(clusters: Clusters) -> None:
    """Both lead, so each client would use the member that its URL names first."""
    one, other = (cluster.ports[0] for cluster in clusters)
    for ports in ((one, other), (other, one)):
        with interlock.connect(of(*ports)) as client:
            with pytest.raises(StoreUnfit, match=f"{ports[0]} and .*{ports[1]} are members of two clusters"):
                client.lock("held").acquire(timeout=5.0)


def test_a_member_that_has_come_to_another_cluster_is_refused_as_long_as_the_first_one_answers(
    clusters: Clusters,
) -> None:
    ours, others = (cluster.ports[0] for cluster in clusters)
    with Proxy(ours) as first, Proxy(ours) as second:
        with interlock.connect(of(first.port, second.port)) as client:
            client.lock("moved").acquire(timeout=5.0)
            first.aim(others)
            first.reset()
            second.reset()
            with pytest.raises(StoreUnfit, match="two clusters"):
                client.lock("other").acquire(timeout=5.0)


def test_a_cluster_that_was_replaced_as_a_whole_is_used_and_old_leases_are_lost(clusters: Clusters) -> None:
    """As after a restore under another cluster token: nobody has to restart his programs."""
    old, new = (cluster.ports[0] for cluster in clusters)
    with Proxy(old) as first, Proxy(old) as second:
        with interlock.connect(of(first.port, second.port), ttl=3.0) as client:
            lease = client.lock("replaced").acquire(timeout=5.0)
            assert lease
            for proxy in (first, second):
                proxy.aim(new)
            for proxy in (first, second):
                proxy.reset()
            assert client.lock("after").acquire(timeout=5.0)
            until(lambda: lease.lost.is_set())
            with pytest.raises(LeaseLost):
                lease.check()
