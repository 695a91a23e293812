"""interlock's locks and kazoo's own `Lock` on the same path exclude each other, both ways."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

import interlock
from interlock.errors import ForeignKey
from interlock.testing.servers.zookeeper import Servers
from tests.patience import until


@pytest.fixture
def both(ensemble: Servers) -> Iterator[tuple[interlock.Client, Any]]:
    """A client of interlock and one of kazoo, in the same chroot."""
    place = f"t-{uuid4().hex[:12]}"
    admin = KazooClient(hosts=ensemble.hosts)
    admin.start()
    admin.ensure_path(place)
    zk = KazooClient(hosts=f"{ensemble.hosts}/{place}")
    zk.start()
    with interlock.connect(ensemble.url(place)) as client:
        yield client, zk
    for opened in (zk, admin):
        opened.stop()
        opened.close()


def test_kazoo_waits_for_interlock(both: tuple[interlock.Client, Any]) -> None:
    client, zk = both
    got: list[bool] = []
    with client.lock("report") as lease:
        lock = zk.Lock("/interlock/report", "kazoo's")
        assert not lock.acquire(blocking=False)
        assert any(f'"{lease.id}' in who or "test_kazoo_locks" in who for who in lock.contenders())
        waiter = threading.Thread(target=lambda: got.append(lock.acquire(timeout=60)))
        waiter.start()
        until(lambda: len(client.inspect("report").waiters) == 1)
        assert not got
    waiter.join()
    assert got == [True]
    lock.release()


def test_interlock_waits_for_kazoo_and_for_its_place_in_the_queue(both: tuple[interlock.Client, Any]) -> None:
    client, zk = both
    lock = zk.Lock("/interlock/report", "kazoo's")
    assert lock.acquire()
    assert not client.lock("report").acquire(blocking=False)
    assert not client.semaphore("report", 3).acquire(blocking=False)
    assert not client.rwlock("report").read().acquire(blocking=False)
    (holder,) = client.inspect("report").holders
    assert (holder.foreign, holder.who, holder.note) == (True, "", "")
    got: list[Any] = []
    waiter = threading.Thread(target=lambda: got.append(client.lock("report").acquire(timeout=60)))
    waiter.start()
    until(lambda: len(client.inspect("report").waiters) == 1)
    lock.release()
    waiter.join()
    assert got[0].token > holder.token
    assert not zk.Lock("/interlock/report").acquire(blocking=False)


def test_a_foreign_lock_is_evicted_only_if_that_is_said(both: tuple[interlock.Client, Any]) -> None:
    client, zk = both
    zk.Lock("/interlock/report").acquire()
    with pytest.raises(ForeignKey, match="--foreign"):
        client.evict("report", reason="drill")
    (met,) = client.evict("report", reason="drill", foreign=True)
    assert met.foreign
    assert client.lock("report").acquire(blocking=False)


def test_a_foreign_lock_that_no_session_ends_needs_another_word(both: tuple[interlock.Client, Any]) -> None:
    client, zk = both
    zk.Lock("/interlock/report").acquire(ephemeral=False)
    with pytest.raises(ForeignKey, match="--no-expiry"):
        client.evict("report", reason="drill", foreign=True)
    assert client.evict("report", reason="drill", foreign=True, no_expiry=True)


def test_other_nodes_in_a_folder_do_not_count_and_are_never_removed(
    both: tuple[interlock.Client, Any],
) -> None:
    client, zk = both
    zk.create("/interlock/report/config", b"precious", makepath=True)
    with client.lock("report"):
        assert len(client.inspect("report").standings) == 1
    client.evict("report", reason="drill", foreign=True, no_expiry=True)
    assert zk.get("/interlock/report/config")[0] == b"precious"
    assert list(client.scan("")) == []
