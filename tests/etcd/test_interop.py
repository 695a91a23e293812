"""etcd's own locks and interlock exclude each other: `etcdctl lock`, and the key layout of Go's concurrency package."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

import interlock
from interlock.errors import AcquireTimeout, ForeignKey
from interlock.testing.servers.etcd import EtcdCluster
from tests.patience import PATIENCE, until


@contextmanager
def etcdctl_lock(cluster: EtcdCluster, key: str) -> Iterator[str]:
    """Hold a lock by etcdctl; the name of its key."""
    process = subprocess.Popen(
        ["etcdctl", "--endpoints", cluster.hosts, "lock", key],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "ETCDCTL_API": "3"},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


def test_etcdctl_keeps_interlock_out_and_hands_over(cluster: EtcdCluster) -> None:
    prefix = uuid4().hex
    with interlock.connect(cluster.url(f"{prefix}/")) as client:
        taken = threading.Event()
        with etcdctl_lock(cluster, f"{prefix}/job") as key:
            assert key.startswith(f"{prefix}/job/")
            assert client.lock("job").acquire(blocking=False) is None
            with pytest.raises(AcquireTimeout) as refusal, client.lock("job", timeout=0.2):
                pass
            assert refusal.value.holders[0].foreign

            def take() -> None:
                with client.lock("job", timeout=PATIENCE):
                    taken.set()

            thread = threading.Thread(target=take)
            thread.start()
            until(lambda: len(client.inspect("job").waiters) == 1)
            assert not taken.is_set()
        thread.join(PATIENCE)
        assert taken.is_set()


def test_interlock_keeps_etcdctl_out_and_hands_over(cluster: EtcdCluster) -> None:
    prefix = uuid4().hex
    with interlock.connect(cluster.url(f"{prefix}/")) as client:
        lease = client.lock("job").acquire()
        assert lease
        process = subprocess.Popen(
            ["etcdctl", "--endpoints", cluster.hosts, "lock", f"{prefix}/job", "echo", "inside"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ETCDCTL_API": "3"},
        )
        until(lambda: len(client.inspect("job").standings) == 2)
        assert process.poll() is None
        assert [standing.foreign for standing in client.inspect("job").standings] == [False, True]
        lease.release()
        out, _ = process.communicate(timeout=PATIENCE)
        assert "inside" in out


def test_a_name_with_a_slash_is_escaped_for_etcdctl(cluster: EtcdCluster) -> None:
    prefix = uuid4().hex
    with interlock.connect(cluster.url(f"{prefix}/")) as client:
        with etcdctl_lock(cluster, f"{prefix}/a%2Fb"):
            assert client.lock("a/b").acquire(blocking=False) is None
            with client.lock("a"):  # whose keys do not contain those of a/b
                pass
        until(lambda: not client.inspect("a/b").standings)


def test_a_stranger_has_no_say_in_the_capacity_of_a_semaphore(cluster: EtcdCluster) -> None:
    prefix = uuid4().hex
    with interlock.connect(cluster.url(f"{prefix}/")) as client:
        with etcdctl_lock(cluster, f"{prefix}/pool"):
            assert not client.semaphore("pool", capacity=3).acquire(blocking=False)
        until(lambda: not client.inspect("pool").standings)
        with client.semaphore("pool", capacity=3), client.semaphore("pool", capacity=3):
            pass


def test_a_strangers_lock_is_evicted_only_on_demand(cluster: EtcdCluster) -> None:
    prefix = uuid4().hex
    with interlock.connect(cluster.url(f"{prefix}/")) as client:
        with etcdctl_lock(cluster, f"{prefix}/job"):
            (theirs,) = client.inspect("job").standings
            with pytest.raises(ForeignKey):
                client.evict("job", reason="drill")
            assert client.inspect("job").standings
            (met,) = client.evict("job", reason="drill", foreign=True)
            assert met.id == theirs.id
            with client.lock("job", timeout=5.0):
                pass


def test_a_key_that_never_lapses_is_evicted_only_if_that_is_said(cluster: EtcdCluster) -> None:
    prefix = uuid4().hex
    cluster.ctl("put", f"{prefix}/job/theirs", "a value of theirs")
    with interlock.connect(cluster.url(f"{prefix}/")) as client:
        with pytest.raises(ForeignKey, match="--no-expiry"):
            client.evict("job", reason="drill", foreign=True)
        client.evict("job", reason="drill", foreign=True, no_expiry=True)
        assert client.inspect("job").standings == ()


def test_other_peoples_keys_beside_ours_are_never_shown(cluster: EtcdCluster) -> None:
    prefix = uuid4().hex
    for key in (f"{prefix}x", f"{prefix}-other/y", f"{prefix}/plain", f"{prefix}/%zz/id"):
        cluster.ctl("put", key, "theirs")
    with interlock.connect(cluster.url(f"{prefix}/")) as client, client.lock("ours"):
        assert list(client.scan("")) == ["ours"]
    assert cluster.ctl("get", f"{prefix}/plain").split() == [f"{prefix}/plain", "theirs"]
