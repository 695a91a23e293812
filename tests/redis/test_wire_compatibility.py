"""Programs that lock by `SET name value NX PX ttl` exclude interlock, and interlock excludes them."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockError

import interlock
from interlock import aio
from interlock.errors import LeaseLost, SettingsMismatch, StoreUnfit
from interlock.testing.lag import at_most
from interlock.testing.servers.redis import Server
from tests.patience import PATIENCE


@pytest.fixture
def theirs(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as client:
        yield client


@pytest.fixture
def ours(server: Server) -> Iterator[interlock.Client]:
    client = interlock.connect(f"redis://127.0.0.1:{server.port}/0")
    yield client
    client.close()


@pytest.fixture
def name() -> str:
    return f"wire-{uuid4().hex}"


def test_a_bare_set_nx_is_refused_while_we_hold(
    theirs: redis.Redis, ours: interlock.Client, name: str
) -> None:
    with ours.lock(name):
        assert theirs.set(name, "theirs", nx=True, px=1000) is None
    assert theirs.set(name, "theirs", nx=True, px=1000)


def test_we_are_refused_while_a_bare_set_nx_holds(
    theirs: redis.Redis, ours: interlock.Client, name: str
) -> None:
    theirs.set(name, "theirs", nx=True, px=30_000)
    assert not ours.lock(name).acquire(blocking=False)
    assert not ours.lock(name).acquire(timeout=0.1)
    assert theirs.get(name) == b"theirs"
    (holder,) = ours.inspect(name).holders
    assert (holder.foreign, holder.token) == (True, 0)


def test_the_lock_of_redis_py_waits_for_us_and_gets_in(
    theirs: redis.Redis, ours: interlock.Client, name: str
) -> None:
    lock = theirs.lock(name, timeout=30, sleep=0.01, thread_local=False)
    with ours.lock(name):
        assert not lock.acquire(blocking=False)
        waiter = threading.Thread(target=lock.acquire, kwargs={"blocking_timeout": 10})
        waiter.start()
        assert not lock.owned()
    waiter.join(PATIENCE)
    assert theirs.get(name) == lock.local.token
    assert not ours.lock(name).acquire(blocking=False)
    theirs.delete(name)


def test_we_wait_for_the_lock_of_redis_py_and_get_in(
    theirs: redis.Redis, ours: interlock.Client, name: str
) -> None:
    lock = theirs.lock(name, timeout=30)
    assert lock.acquire()
    got: list[Any] = []
    waiter = threading.Thread(target=lambda: got.append(ours.lock(name).acquire(timeout=10)))
    waiter.start()
    while not ours.inspect(name).waiters:
        time.sleep(0.001)
    with at_most(2, "their release was noticed only when their ttl was over"):
        lock.release()
        waiter.join(PATIENCE)
        assert got[0].token > 0
    assert not theirs.lock(name).acquire(blocking=False)
    got[0].release()


def test_the_asyncio_lock_of_redis_py_and_ours_exclude_each_other(server: Server, name: str) -> None:
    async def main() -> None:
        inside = 0
        most = 0

        async def enter(lock: Any) -> None:
            nonlocal inside, most
            for _ in range(5):
                async with lock:
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0.002)
                    inside -= 1

        async with aio.connect(f"redis://127.0.0.1:{server.port}/0") as ours:
            theirs = redis.asyncio.Redis(port=server.port)
            locks = [theirs.lock(name, timeout=30, sleep=0.001) for _ in range(3)]
            await asyncio.gather(
                *[enter(lock) for lock in locks], *[enter(ours.lock(name)) for _ in range(3)]
            )
            await theirs.aclose()
        assert most == 1

    asyncio.run(main())


def test_another_process_that_sets_nx_and_we_exclude_each_other(
    server: Server, ours: interlock.Client, name: str
) -> None:
    program = f"""
import redis, time
client = redis.Redis(port={server.port})
lock = client.lock({name!r}, timeout=30, sleep=0.001)
for _ in range(50):
    with lock:
        value = int(client.get({name + "-count"!r}) or 0)
        time.sleep(0.0005)
        client.set({name + "-count"!r}, value + 1)
"""
    process = subprocess.Popen([sys.executable, "-c", program])
    with redis.Redis(port=server.port) as counter:
        for _ in range(50):
            with ours.lock(name):
                value = int(counter.get(f"{name}-count") or 0)
                counter.set(f"{name}-count", value + 1)
            time.sleep(0.002)
        assert process.wait(PATIENCE) == 0
        assert counter.get(f"{name}-count") == b"100"


def test_nobody_releases_a_strangers_key(theirs: redis.Redis, ours: interlock.Client, name: str) -> None:
    lease = ours.lock(name, ttl=0.1, renew=False).acquire()
    assert lease
    while theirs.exists(name):
        time.sleep(0.01)
    theirs.set(name, "theirs", nx=True, px=30_000)
    with pytest.raises(LeaseLost):
        lease.release()
    assert theirs.get(name) == b"theirs"
    stale = theirs.lock(name, timeout=30)
    stale.local.token = b"not theirs"
    with pytest.raises(LockError):
        stale.release()
    assert theirs.get(name) == b"theirs"


def test_a_lock_without_expiry_simply_lasts(theirs: redis.Redis, ours: interlock.Client, name: str) -> None:
    theirs.set(name, "for ever")
    assert not ours.lock(name).acquire(timeout=0.2)
    (holder,) = ours.inspect(name).holders
    assert (holder.who, holder.lapses_in) == ("another program", math.inf)
    theirs.delete(name)
    with ours.lock(name, timeout=PATIENCE):
        pass


REDISSON = r"no lock of interlock.* a lock of Redisson \(a hash\), a prefix would give two locks that do not exclude each other"


def test_a_foreign_hash_or_list_is_never_overwritten(
    theirs: redis.Redis, ours: interlock.Client, name: str
) -> None:
    theirs.hset(name, "field", "value")
    with pytest.raises(StoreUnfit, match=REDISSON):
        ours.lock(name).acquire(timeout=1)
    assert theirs.hgetall(name) == {b"field": b"value"}
    theirs.delete(name)
    theirs.rpush(name, "item")
    for refused in (ours.lock(name), ours.semaphore(name, 3)):
        with pytest.raises(StoreUnfit, match=REDISSON):
            refused.acquire(timeout=1)
    assert theirs.lrange(name, 0, -1) == [b"item"]


def test_a_semaphore_is_refused_where_a_foreign_lock_stands(
    theirs: redis.Redis, ours: interlock.Client, name: str
) -> None:
    theirs.set(name, "theirs", px=30_000)
    with pytest.raises(SettingsMismatch):
        ours.semaphore(name, 3).acquire(timeout=0.1)


def test_a_plain_program_sees_who_holds(theirs: redis.Redis, ours: interlock.Client, name: str) -> None:
    with ours.lock(name) as lease:
        value = theirs.get(name)
        assert isinstance(value, bytes)
        assert str(lease.token).encode() in value
        assert 0 < int(theirs.pttl(name)) <= 30_000
