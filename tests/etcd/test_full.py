"""A server whose database is full: nobody new is let in, and nobody who holds is harmed."""

from __future__ import annotations

import json
import time

import pytest

import interlock
from interlock.errors import StoreUnfit
from interlock.testing.lag import stretched
from interlock.testing.servers.etcd import EtcdCluster, running
from tests.patience import PATIENCE, until

QUOTA = 2_000_000


def fill(cluster: EtcdCluster) -> None:
    for n in range(2 * QUOTA // 100_000):
        try:
            cluster.ctl("put", f"filler{n}", "x" * 100_000)
        except AssertionError:
            break
    assert "NOSPACE" in cluster.ctl("alarm", "list")


def drain(cluster: EtcdCluster) -> None:
    cluster.ctl("del", "filler", "--prefix")
    status = json.loads(cluster.ctl("endpoint", "status", "--write-out", "json"))
    cluster.ctl("compact", str(status[0]["Status"]["header"]["revision"]))
    cluster.ctl("defrag")
    cluster.ctl("alarm", "disarm")


def test_holders_keep_and_release_newcomers_are_told_and_all_goes_on_after_the_repair() -> None:
    ttl = stretched(2.0)
    with running(1, ("--quota-backend-bytes", str(QUOTA))) as cluster:
        with interlock.connect(cluster.url(), ttl=ttl) as client, interlock.connect(cluster.url()) as other:
            held, released = client.lock("held").acquire(), client.lock("released").acquire()
            assert held
            assert released
            fill(cluster)
            with pytest.raises(StoreUnfit, match="etcdctl alarm disarm"):
                client.lock("new").acquire()
            with pytest.raises(StoreUnfit, match="etcdctl alarm disarm"):
                other.lock("held").acquire(timeout=1.0)  # it has no session yet
            time.sleep(1.5 * ttl)
            held.renew()
            released.release()
            assert not client.inspect("released").standings
            drain(cluster)
            with other.lock("released", timeout=PATIENCE):
                held.check()
            held.release()
            until(lambda: not client.inspect("held").standings)
