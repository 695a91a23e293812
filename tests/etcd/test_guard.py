"""The guard of etcd: a write with a token that is too low does not happen, and nothing comes between check and write."""

from __future__ import annotations

import asyncio
import threading

import pytest

import interlock
from interlock.errors import LeaseLost, StaleToken
from interlock.guards import etcd
from tests.etcd.cluster import EtcdCluster


def test_a_late_holder_is_refused_and_writes_nothing(cluster: EtcdCluster, url: str) -> None:
    guard = etcd.Guard(url)
    with interlock.connect(url) as client:
        with client.lock("x") as first:
            guard.put(first, "guarded", "one")
            old = first.token
        with client.lock("x") as second:
            guard.put(second, "guarded", "two")
            guard.put(second, "guarded", "three")  # an equal token is accepted
            with pytest.raises(StaleToken) as refusal:
                guard.put("x", "guarded", "late", token=old)
            assert (refusal.value.token, refusal.value.accepted) == (old, second.token)
            assert guard.get("guarded") == b"three"
            guard.write(second, {"guarded": None, "other": b"x"})
            assert (guard.get("guarded"), guard.get("other")) == (None, b"x")
        guard.write("y", {"other": None}, token=1)
    guard.close()


def test_a_lease_that_is_known_to_be_lost_is_refused_without_asking(url: str) -> None:
    guard = etcd.Guard(url)
    with interlock.connect(url) as client:
        lease = client.lock("x").acquire()
        assert lease
        client.evict("x", reason="drill")
        with pytest.raises(LeaseLost):
            lease.renew()
        with pytest.raises(LeaseLost):
            guard.put(lease, "guarded", "late")
    guard.close()


def test_of_many_writers_at_once_only_rising_tokens_are_accepted(url: str) -> None:
    accepted: list[int] = []
    guards = [etcd.Guard(url) for _ in range(4)]

    def write(guard: etcd.Guard, tokens: range) -> None:
        for token in tokens:
            try:
                guard.put("x", "guarded", str(token), token=token)
            except StaleToken:
                continue
            accepted.append(token)

    threads = [
        threading.Thread(target=write, args=(guard, range(n + 1, 60, 4))) for n, guard in enumerate(guards)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert guards[0].get("guarded") == str(max(accepted)).encode()
    for guard in guards:
        guard.close()


def test_the_async_guard(url: str) -> None:
    async def main() -> None:
        guard = etcd.AsyncGuard(url)
        async with interlock.aio.connect(url) as client, client.lock("x") as lease:
            await guard.put(lease, "guarded", "one")
            with pytest.raises(StaleToken):
                await guard.write("x", {"guarded": None}, token=lease.token - 1)
            assert await guard.get("guarded") == b"one"
        await guard.close()

    asyncio.run(main())


def test_another_url_is_refused() -> None:
    with pytest.raises(ValueError, match="etcd://"):
        etcd.Guard("redis://h")
