"""Forks, greenlets, threads in a crowd, signals: what happens to a connection that all threads of a program share."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import interlock
from interlock.errors import InterlockError
from tests.etcd.cluster import EtcdCluster, until
from tests.patience import PATIENCE
from tests.redis.test_connecting import environment


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


def test_many_threads_back_to_back_on_one_client(url: str) -> None:
    with interlock.connect(url, ttl=5) as client:
        kept = [client.lock(f"kept{n}").acquire() for n in range(5)]
        counts = [0] * 12

        def work(n: int) -> None:
            end = time.monotonic() + 6.0
            while time.monotonic() < end:
                with client.lock(f"own{n}"):
                    counts[n] += 1

        threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert all(counts)
        for lease in kept:
            assert lease
            lease.check()


# Python drops an exception that strikes in a destructor, or in a thread that has not begun (see `native.Thread`), and says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_exceptions_thrown_into_threads_leave_nothing_held_and_the_client_usable(url: str) -> None:
    with interlock.connect(url, ttl=20) as client:
        ended = threading.Event()

        class Thrown(BaseException):
            pass

        def work() -> None:
            while not ended.is_set():
                try:
                    with client.lock("x", timeout=10.0):
                        time.sleep(0.001)
                except (Thrown, InterlockError):
                    pass
                except RuntimeError as error:  # it struck the keeper's thread before that had begun
                    if "before it began" not in str(error):
                        raise

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(60):
            for thread in threads:
                assert thread.ident is not None
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident), ctypes.py_object(Thrown)
                )
            time.sleep(0.02)
        ended.set()
        until(lambda: not any(_joined(thread) for thread in threads))
        until(lambda: not client.inspect("x").standings, 30.0)
        with client.lock("x", timeout=10.0) as lease:
            lease.renew()


def _joined(thread: threading.Thread) -> bool:
    thread.join(0.05)
    return thread.is_alive()


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


def test_greenlets_that_pause_wait_and_compute_lose_nothing(url: str) -> None:
    pytest.importorskip("gevent")
    words = [sys.executable, "-m", "tests.redis.greenlets", "gevent", "check", url]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("after a pause") < 5
    assert found.pop("passed on after") < 5, "nobody was woken, and all looked for themselves"
    assert found.pop("told after") < 12, "the keeper's thread did not wake the greenlet"
    assert found == {"lost while computing": False, "told": True, "called back": ["evicted"]}


def test_greenlets_use_keys_again_and_wait_behind_each_other(url: str) -> None:
    """Decisions 0029 and 0030, where switching happens at each wait and nowhere else."""
    pytest.importorskip("gevent")
    program = f"""
from gevent import monkey
monkey.patch_all()
import gevent, interlock
from interlock.backends.etcd.algorithm.view import WHOLE
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
        waiting = [gevent.spawn(wait) for _ in range(2 * WHOLE)]
        while len(other.inspect("x").waiters) < len(waiting):
            gevent.sleep(0.01)
        first.release()
        gevent.joinall(waiting, raise_error=True)
        first = other.lock("x").acquire()
    first.release()
    assert tokens == sorted(tokens) and len(set(tokens)) == 4 * WHOLE, tokens
    assert len(used) == 2 * WHOLE, used
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
