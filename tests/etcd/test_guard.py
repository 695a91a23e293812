"""The guard of etcd: a write with a token that is too low does not happen, and nothing comes between check and write."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

import interlock
from interlock.errors import LeaseLost, StaleToken, StoreUnfit
from interlock.guards import etcd
from interlock.testing.servers.etcd import EtcdCluster


def test_a_late_holder_is_refused_and_writes_nothing(url: str, key: str) -> None:
    other = f"{key}-other"
    guard = etcd.Guard(url)
    with interlock.connect(url) as client:
        with client.lock("x") as first:
            guard.put(first, key, "one")
            old = first.token
        with client.lock("x") as second:
            guard.put(second, key, "two")
            guard.put(second, key, "three")  # an equal token is accepted
            with pytest.raises(StaleToken) as refusal:
                guard.put("x", key, "late", token=old)
            assert (refusal.value.token, refusal.value.accepted) == (old, second.token)
            assert guard.get(key) == b"three"
            guard.write(second, {key: None, other: b"x"})
            assert (guard.get(key), guard.get(other)) == (None, b"x")
        guard.write("y", {other: None}, token=1)
    guard.close()


def test_a_lease_that_is_known_to_be_lost_is_refused_without_asking(url: str, key: str) -> None:
    guard = etcd.Guard(url)
    with interlock.connect(url) as client:
        lease = client.lock("x").acquire()
        assert lease
        client.evict("x", reason="drill")
        with pytest.raises(LeaseLost):
            lease.renew()
        with pytest.raises(LeaseLost):
            guard.put(lease, key, "late")
    guard.close()


def test_of_many_writers_at_once_only_rising_tokens_are_accepted(url: str, key: str) -> None:
    accepted: list[int] = []
    guards = [etcd.Guard(url) for _ in range(4)]

    def write(guard: etcd.Guard, tokens: range) -> None:
        for token in tokens:
            try:
                guard.put("x", key, str(token), token=token)
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
    assert guards[0].get(key) == str(max(accepted)).encode()
    for guard in guards:
        guard.close()


def test_a_forked_child_does_not_use_the_connection_of_its_parent(url: str, key: str) -> None:
    """On one connection each of the two would read answers that are meant for the other."""
    guard = etcd.Guard(url)
    guard.put("x", key, "parent", token=5)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            fresh = guard._transport.ready_connection() is None
            guard.put("x", key, "child", token=6)
            status = 0 if fresh else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(StaleToken):
        guard.put("x", key, "late", token=5)
    assert guard.get(key) == b"child"
    guard.close()


def test_a_token_is_accepted_before_the_read_and_a_late_holder_cannot_write_between(
    url: str, key: str
) -> None:
    """Without it, the late one wrote after the read of the next holder, which then overwrote what it had not seen."""
    guard = etcd.Guard(url)
    guard.put("x", key, "100", token=1)
    guard.accept("x", token=2)
    assert guard.get(key) == b"100"
    with pytest.raises(StaleToken):
        guard.put("x", key, "90", token=1)
    guard.put("x", key, "80", token=2)
    with pytest.raises(StaleToken):
        guard.accept("x", token=1)
    guard.close()


def test_the_async_guard(url: str, key: str) -> None:
    async def main() -> None:
        guard = etcd.AsyncGuard(url)
        async with interlock.aio.connect(url) as client, client.lock("x") as lease:
            await guard.accept(lease)
            await guard.put(lease, key, "one")
            with pytest.raises(StaleToken):
                await guard.write("x", {key: None}, token=lease.token - 1)
            assert await guard.get(key) == b"one"
        await guard.close()

    asyncio.run(main())


def test_another_url_is_refused() -> None:
    with pytest.raises(ValueError, match="etcd://"):
        etcd.Guard("redis://h")


def test_a_guard_takes_the_options_of_its_stores_url(url: str, key: str) -> None:
    """It refused `connect_timeout`, and named it among those that it knows."""
    guard = etcd.Guard(f"{url}&connect_timeout=2")
    assert guard._transport.address.connect_timeout == 2.0
    assert guard.get(key) is None
    guard.close()


def test_a_mark_that_another_program_has_written_is_no_token(
    url: str, key: str, cluster: EtcdCluster
) -> None:
    guard = etcd.Guard(url)
    cluster.ctl("put", guard.key("x").decode(), "not a number")
    with pytest.raises(StoreUnfit, match="no token"):
        guard.put("x", key, "value", token=1)
    guard.close()


@pytest.mark.parametrize("value", [5, None, 1.5])
def test_a_value_that_is_no_text_is_refused(cluster: EtcdCluster, value: object) -> None:
    """None deleted the key in silence, and a number was an error of the encoding."""
    guard = etcd.Guard(cluster.url())
    try:
        with pytest.raises(TypeError, match="str or bytes"):
            guard.put("x", "/data", value, token=1)  # type: ignore[arg-type]
    finally:
        guard.close()
