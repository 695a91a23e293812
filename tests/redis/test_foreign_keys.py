"""If another program has a key under a name of ours, its value is never shown, and it is never deleted unasked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis

import interlock
from interlock import aio
from interlock.errors import ForeignKey
from interlock.testing.servers import cluster as clusters
from interlock.testing.servers import sentinel as sentinels
from interlock.testing.servers.redis import Server
from tests.patience import PATIENCE

SECRET = '{"user": 42, "password": "hunter2"}'


@pytest.fixture
def place(request: pytest.FixtureRequest, server: Server) -> Iterator[tuple[str, redis.Redis]]:
    """A URL, and another program's client of the same data; one server, unless the test asks for more."""
    kind = getattr(request, "param", "redis")
    if kind == "cluster":
        nodes: Any = redis.RedisCluster("127.0.0.1", clusters.steady().masters[0].port)
        yield clusters.steady().url(), nodes
        nodes.close()
    else:
        watched = sentinels.steady() if kind == "sentinel" else None
        with redis.Redis(port=server.port if watched is None else watched.master().port) as theirs:
            yield (server if watched is None else watched).url(), theirs


@pytest.fixture
def theirs(place: tuple[str, redis.Redis]) -> redis.Redis:
    return place[1]


@pytest.fixture
def ours(place: tuple[str, redis.Redis]) -> Iterator[interlock.Client]:
    with interlock.connect(place[0]) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"session:{uuid4().hex}"


@pytest.mark.parametrize("place", ["redis", "sentinel", "cluster"], indirect=True)
def test_a_foreign_value_is_shown_to_nobody(theirs: redis.Redis, ours: interlock.Client, name: str) -> None:
    theirs.set(name, SECRET, px=30_000)
    queue = ours.inspect(name)
    (holder,) = queue.holders
    assert (holder.foreign, holder.token, holder.who) == (True, 0, "another program")
    with pytest.raises(interlock.AcquireTimeout) as refused, ours.lock(name, timeout=0.05):
        pass
    (met,) = ours.evict(name, reason="a drill", foreign=True)
    assert met.foreign
    for shown in (repr(queue), repr(met), str(refused.value), repr(refused.value.holders)):
        assert "hunter2" not in shown


@pytest.mark.parametrize("place", ["redis", "sentinel", "cluster"], indirect=True)
@pytest.mark.parametrize("expiry", [None, 30_000])
def test_an_eviction_leaves_a_foreign_key_alone(
    theirs: redis.Redis, ours: interlock.Client, name: str, expiry: int | None
) -> None:
    theirs.set(name, SECRET, px=expiry)
    with pytest.raises(ForeignKey) as refused:
        ours.evict(name, reason="a typo")
    assert (refused.value.kind, refused.value.expires) == ("string", expiry is not None)
    assert theirs.get(name) == SECRET.encode()
    theirs.delete(name)


def test_a_foreign_key_without_expiry_is_evicted_only_by_who_says_both(
    theirs: redis.Redis, ours: interlock.Client, name: str
) -> None:
    theirs.set(name, SECRET)
    for foreign in (True, False):
        with pytest.raises(ForeignKey, match="--no-expiry"):
            ours.evict(name, reason="a drill", foreign=foreign, no_expiry=not foreign)
        assert theirs.exists(name)
    (met,) = ours.evict(name, reason="its program is gone", foreign=True, no_expiry=True)
    assert (met.foreign, met.token) == (True, 0)
    with ours.lock(name, timeout=PATIENCE):
        pass


def test_a_foreign_hash_or_list_is_evicted_by_nobody(
    theirs: redis.Redis, ours: interlock.Client, name: str
) -> None:
    theirs.hset(name, "field", "value")
    theirs.rpush(f"{name}-list", "item")
    for key, kind in ((name, "hash"), (f"{name}-list", "list")):
        with pytest.raises(ForeignKey, match="only a string") as refused:
            ours.evict(key, reason="a drill", foreign=True, no_expiry=True)
        assert refused.value.kind == kind
        assert theirs.exists(key)
        theirs.delete(key)


def test_a_waiter_behind_a_foreign_key_is_evicted_without_touching_the_key(
    theirs: redis.Redis, ours: interlock.Client, name: str, place: tuple[str, redis.Redis]
) -> None:
    theirs.set(name, SECRET)

    async def main() -> None:
        async with aio.connect(place[0]) as client:
            waiter = asyncio.create_task(client.lock(name).acquire(timeout=30))
            while not (waiting := (await client.inspect(name)).waiters):
                await asyncio.sleep(0.001)
            assert name in [found async for found in client.scan(name)]
            (met,) = await client.evict(name, reason="a drill", id=waiting[0].id)
            assert met.id == waiting[0].id
            with pytest.raises(interlock.Evicted):
                await waiter

    asyncio.run(main())
    assert theirs.get(name) == SECRET.encode()
    theirs.delete(name)


def test_our_own_holder_is_evicted_without_a_flag(ours: interlock.Client, name: str) -> None:
    lease = ours.lock(name).acquire()
    assert lease
    (met,) = ours.evict(name, reason="a drill")
    assert (met.foreign, met.token) == (False, lease.token)
