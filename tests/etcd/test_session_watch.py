"""A holder whose session was ended by others is told at once, not with its next renewal."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Literal
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from interlock.errors import LeaseLost
from interlock.testing.lag import stretched
from interlock.testing.servers.etcd import EtcdCluster
from tests.patience import PATIENCE, until, until_renewed

TTL = 12.0  # renewed every 4 s
AT_ONCE = 1.0


def session_key(cluster: EtcdCluster, prefix: str) -> str:
    """The key of the only session, once the keeper watches it."""
    found: str = until(lambda: cluster.ctl("get", f"{prefix}-session/", "--prefix", "--keys-only").strip())
    return found


def watchers() -> int:
    return sum(thread.name == "interlock-session" for thread in threading.enumerate())


@pytest.mark.slow
def test_a_holder_whose_lease_is_revoked_is_told_at_once(cluster: EtcdCluster) -> None:
    prefix = uuid4().hex
    told: list[float] = []
    with interlock.connect(cluster.url(f"{prefix}/"), ttl=TTL) as client:
        lease = client.lock("x", on_lost=lambda lease: told.append(time.monotonic())).acquire()
        assert lease
        key = session_key(cluster, prefix)
        revoked = time.monotonic()
        cluster.ctl("lease", "revoke", key.rpartition("/")[2])
        until(lambda: told)
        assert told[0] - revoked < stretched(AT_ONCE)
        with pytest.raises(LeaseLost):
            lease.check()


@pytest.mark.slow
@pytest.mark.parametrize("keeper", ["thread", "task"])
def test_an_async_holder_is_told_at_once(cluster: EtcdCluster, keeper: Literal["thread", "task"]) -> None:
    async def told_after() -> float:
        prefix = uuid4().hex
        async with aio.connect(cluster.url(f"{prefix}/"), ttl=TTL, keeper=keeper) as client:
            lease = await client.lock("x").acquire()
            assert lease
            key = await asyncio.to_thread(session_key, cluster, prefix)
            revoked = time.monotonic()
            await asyncio.to_thread(cluster.ctl, "lease", "revoke", key.rpartition("/")[2])
            async with asyncio.timeout(PATIENCE):
                await lease.lost.wait()
            return time.monotonic() - revoked

    assert asyncio.run(told_after()) < stretched(AT_ONCE)


@pytest.mark.slow
def test_a_key_that_somebody_deletes_ends_no_session(cluster: EtcdCluster) -> None:
    """A deletion only wakes; whether the lease lives, the server says. And nothing is left when the client closes."""
    prefix, before = uuid4().hex, watchers()
    with interlock.connect(cluster.url(f"{prefix}/"), ttl=TTL) as client:
        with client.lock("x") as lease:
            key = session_key(cluster, prefix)
            cluster.ctl("del", key)
            assert session_key(cluster, prefix) == key
            lease.check()
            assert client.inspect("x").holders[0].id == lease.id
    until(lambda: not cluster.ctl("get", prefix, "--prefix", "--keys-only").strip())
    until(lambda: watchers() <= before)


@pytest.mark.slow
def test_the_key_of_a_session_stays_while_it_is_renewed(cluster: EtcdCluster) -> None:
    prefix = uuid4().hex
    with interlock.connect(cluster.url(f"{prefix}/"), ttl=TTL) as client, client.lock("x") as lease:
        key = session_key(cluster, prefix)
        created = cluster.ctl("get", key, "--write-out", "json")
        for _ in range(2):
            until_renewed(lease)
        lease.renew()
        assert _created(cluster.ctl("get", key, "--write-out", "json")) == _created(created)


def _created(answer: str) -> int:
    found: int = json.loads(answer)["kvs"][0]["create_revision"]
    return found
