"""Forks, greenlets, threads that wait: what happens to a connection that all threads of a program share."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

import interlock
from interlock.testing.servers.etcd import EtcdCluster
from tests.environment import environment
from tests.patience import PATIENCE, until


def sockets() -> int:
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
        except OSError:
            pass
    return found


def test_waiting_threads_share_two_connections(url: str) -> None:
    before = sockets()
    with interlock.connect(url) as holding, interlock.connect(url) as waiting:
        held = [holding.lock(f"x{n}").acquire() for n in range(50)]
        got: list[int] = []

        def wait(n: int) -> None:
            with waiting.lock(f"x{n}", timeout=PATIENCE) as lease:
                got.append(lease.token)

        threads = [threading.Thread(target=wait, args=(n,)) for n in range(50)]
        for thread in threads:
            thread.start()
        until(lambda: all(len(holding.inspect(f"x{n}").waiters) == 1 for n in range(50)))
        assert sockets() - before <= 4
        for lease in held:
            assert lease
            lease.release()
        for thread in threads:
            thread.join(PATIENCE)
        assert len(got) == 50


def test_a_forked_child_holds_nothing_and_the_parents_lease_lives_on(url: str) -> None:
    program = f"""
import os, sys, time, interlock
client = interlock.connect({url!r}, ttl=3)
lease = client.lock("x").acquire()
pid = os.fork()
if pid == 0:
    try:
        lease.check()
        os._exit(1)
    except interlock.LeaseLost:
        pass
    assert client.lock("x").acquire(blocking=False) is None
    with client.lock("y"):
        pass
    client.close()
    os._exit(0)
_, status = os.waitpid(pid, 0)
assert status == 0, status
time.sleep(4)
lease.check()
assert len(client.inspect("x").holders) == 1
lease.release()
client.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


def test_greenlets_use_keys_again_and_wait_behind_each_other(url: str) -> None:
    """Decisions 0029 and 0030, where switching happens at each wait and nowhere else."""
    pytest.importorskip("gevent")
    program = f"""
from gevent import monkey
monkey.patch_all()
import gevent, interlock
from interlock.backends.etcd.algorithm.queue_view import MAX_WHOLE_CLAIMS
with interlock.connect({url!r}, ttl=60) as client, interlock.connect({url!r}, ttl=60) as other:
    sessions = client._core.store._side.sessions
    def key(lease):
        return sessions.own(lease.id).key
    used = set()
    for _ in range(20):
        with client.lock("x") as lease:
            used.add(key(lease))
    assert len(used) == 1, used
    tokens, first = [], other.lock("x").acquire()
    def wait():
        with client.lock("x", timeout=60) as lease:
            tokens.append(lease.token)
            used.add(key(lease))
            gevent.sleep(0)
    for _ in range(2):
        waiting = [gevent.spawn(wait) for _ in range(2 * MAX_WHOLE_CLAIMS)]
        while len(other.inspect("x").waiters) < len(waiting):
            gevent.sleep(0.01)
        first.release()
        gevent.joinall(waiting, raise_error=True)
        first = other.lock("x").acquire()
    first.release()
    assert tokens == sorted(tokens) and len(set(tokens)) == 4 * MAX_WHOLE_CLAIMS, tokens
    assert len(used) == 2 * MAX_WHOLE_CLAIMS, used
    assert not sessions._names._in_use and not sessions._crowds and not sessions.places
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr


def test_the_sessions_of_a_client_are_few_and_gone_when_it_is_closed(cluster: EtcdCluster, url: str) -> None:
    with interlock.connect(url) as client:
        for ttl in (9.1, 9.2, 9.5, 9.99, 10.0):
            client.lock(f"x{ttl}", ttl=ttl, max_hold=7.77).acquire()
        leases = {client._core.store._side.sessions.of_claim(lease.id).lease for lease in client._core.leases}  # type: ignore[attr-defined]
        assert len(leases) == 1
        ours = f"{leases.pop():016x}"
        assert ours in cluster.ctl("lease", "list")
    until(lambda: ours not in cluster.ctl("lease", "list"))
