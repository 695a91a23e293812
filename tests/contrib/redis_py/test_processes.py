"""Locks of both kinds and colours, in processes of their own, exclude each other; exits and forks are survived."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import redis
from redis.exceptions import LockNotOwnedError

from interlock.contrib.redis_py import Lock
from interlock.testing.servers.redis import Server
from tests.contrib.redis_py.party import KINDS, OURS, Kind, Party, until
from tests.house.source import ROOT, SRC
from tests.patience import PATIENCE

PLAIN = [kind for kind in KINDS if not kind.decoded]
PAIRS = [(here, there) for here in PLAIN for there in PLAIN if here.ours or there.ours]
ROUNDS = 20

COUNTING = """
for _ in range({rounds}):
    with party.lock(name, timeout=30, sleep=0.001):
        seen = int(party.ask("GET", name + ":count") or 0)
        assert party.ask("SETNX", name + ":inside", "1") == 1, "two at once"
        party.ask("DEL", name + ":inside")
        party.ask("SET", name + ":count", seen + 1)
"""
HOLDING = """
lock = party.lock(name, timeout=60)
assert lock.acquire()
print("held", flush=True)
sys.stdin.readline()
lock.release()
"""
LEAVING = """
assert party.lock(name, timeout=60).acquire()
"""


def program(server: Server, kind: Kind, name: str, body: str) -> subprocess.Popen[str]:
    text = (
        "import sys\n"
        "from tests.contrib.redis_py.party import Kind, Party\n"
        f"name = {name!r}\n"
        f"with Party({server.port}, {kind!r}) as party:\n"
        "    pass\n" + "".join(f"    {line}\n" for line in body.strip().splitlines())
    )
    env = {**os.environ, "PYTHONPATH": f"{SRC}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        [sys.executable, "-c", text], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def looking(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as client:
        yield client


def test_processes_of_all_kinds_count_without_losing_one(
    server: Server, looking: redis.Redis, name: str
) -> None:
    programs = [program(server, kind, name, COUNTING.format(rounds=ROUNDS)) for kind in PLAIN]
    for each in programs:
        each.communicate(timeout=PATIENCE)
    assert [each.returncode for each in programs] == [0] * len(programs)
    assert looking.get(f"{name}:count") == b"%d" % (ROUNDS * len(programs))


@pytest.mark.parametrize(("here", "there"), PAIRS, ids=str)
def test_one_waits_for_the_other_in_another_process(
    server: Server, here: Kind, there: Kind, name: str
) -> None:
    holder = program(server, there, name, HOLDING)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with Party(server.port, here) as party:
        lock = party.lock(name, timeout=30, sleep=0.01)
        assert lock.locked()
        assert not lock.acquire(blocking=False)
        holder.communicate("go\n", timeout=PATIENCE)
        assert holder.returncode == 0, "it could not release its own lock"
        assert lock.acquire(blocking_timeout=PATIENCE)
        lock.release()


@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_a_lock_with_a_timeout_outlives_the_process_that_took_it(
    server: Server, looking: redis.Redis, kind: Kind, name: str
) -> None:
    ended = program(server, kind, name, LEAVING)
    ended.communicate(timeout=PATIENCE)
    assert ended.returncode == 0
    assert 30_000 < looking.pttl(name) <= 60_000


@pytest.mark.parametrize("kind", OURS, ids=str)
def test_a_lock_without_a_timeout_ends_with_its_process(
    server: Server, looking: redis.Redis, kind: Kind, name: str
) -> None:
    ended = program(server, kind, name, LEAVING.replace("timeout=60", ""))
    ended.communicate(timeout=PATIENCE)
    assert ended.returncode == 0
    assert not looking.exists(name)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("timeout", [None, 30])
def test_a_forked_child_holds_nothing_and_works(
    looking: redis.Redis, name: str, timeout: float | None
) -> None:
    lock = looking.lock(name, timeout=timeout, lock_class=Lock)
    lock.acquire()
    child = os.fork()
    if child == 0:
        status = 1
        faulthandler.register(signal.SIGUSR1)  # the parent asks for it if we hang
        try:
            assert not lock.owned()
            try:
                lock.release()
            except LockNotOwnedError:
                assert not looking.lock(name, lock_class=Lock).acquire(blocking=False)
                with looking.lock(f"{name}-child", lock_class=Lock):
                    status = 0
        finally:
            os._exit(status)
    statuses: list[int] = []

    def ended() -> bool:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            statuses.append(status)
        return bool(pid)

    try:
        until(ended)
    except AssertionError:
        os.kill(child, signal.SIGUSR1)  # it has hung once, and nobody knows where: now it tells
        time.sleep(1.0)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    assert statuses == [0]
    assert lock.owned()
    lock.release()
