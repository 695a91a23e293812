"""The guard for ZooKeeper: a write with a token that is too low is not applied, whatever else is in its transaction."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError

import interlock
from interlock import aio
from interlock.errors import LeaseLost, StaleToken, StoreUnavailable, StoreUnfit, Unsupported
from interlock.guards.zookeeper import AsyncGuard, Guard
from interlock.testing.servers.zookeeper import Servers


@pytest.fixture
def zk(ensemble: Servers) -> Iterator[Any]:
    client: Any = KazooClient(hosts=ensemble.hosts)
    client.start()
    place = f"/t-{uuid4().hex[:12]}"
    client.create(place, b"0")
    client.place = place
    yield client
    client.stop()
    client.close()


def test_a_lower_token_is_refused_and_nothing_of_its_transaction_is_applied(zk: Any) -> None:
    guard, name = Guard(zk), uuid4().hex
    guard.commit(name, lambda t: t.set_data(zk.place, b"new"), token=7)
    with pytest.raises(StaleToken) as refused:
        guard.commit(name, lambda t: t.set_data(zk.place, b"old"), token=6)
    assert refused.value.accepted == 7
    guard.commit(name, lambda t: t.set_data(zk.place, b"same"), token=7)
    assert zk.get(zk.place)[0] == b"same"


def test_a_holder_that_was_overtaken_between_its_read_and_its_write_is_refused(zk: Any, url: str) -> None:
    guard = Guard(zk)
    with interlock.connect(url) as one, interlock.connect(url) as other:
        lease = one.lock("limits").acquire()
        assert isinstance(lease, interlock.Lease)
        guard.accept(lease)
        token = lease.token
        one.evict("limits", reason="drill")
        with other.lock("limits") as later:
            guard.accept(later)
            with pytest.raises(StaleToken):
                guard.commit("limits", lambda t: t.set_data(zk.place, b"late"), token=token)
            guard.commit(later, lambda t: t.set_data(zk.place, b"right"))
    assert zk.get(zk.place)[0] == b"right"


def test_two_who_commit_at_once_are_ordered_by_their_tokens(zk: Any) -> None:
    guard, name = Guard(zk), uuid4().hex
    guard.accept(name, token=1)
    read = guard._client.get_async

    def overtaken(path: str) -> Any:
        """Another commits between the look and the multi."""
        found = read(path)
        found.get()
        guard._client.get_async = read
        Guard(zk).accept(name, token=9)
        return found

    guard._client.get_async = overtaken
    with pytest.raises(StaleToken):
        guard.commit(name, lambda t: t.set_data(zk.place, b"late"), token=5)
    assert zk.get(zk.place)[0] == b"0"


def test_an_operation_that_is_refused_says_so_and_takes_the_others_with_it(zk: Any) -> None:
    def build(t: Any) -> None:
        t.set_data(zk.place, b"half")
        t.delete(f"{zk.place}/nothing")

    with pytest.raises(NoNodeError):
        Guard(zk).commit(uuid4().hex, build, token=5)
    assert zk.get(zk.place)[0] == b"0"


def test_standing_means_that_the_claim_is_there_at_that_very_instant(zk: Any, url: str) -> None:
    guard = Guard(zk)
    with interlock.connect(url) as client, interlock.connect("memory://") as elsewhere:
        with pytest.raises(LeaseLost), client.lock("x") as lease:
            guard.commit(lease, lambda t: t.set_data(zk.place, b"held"), standing=True)
            zk.delete(client._core.store.node_of(lease.id))  # type: ignore[attr-defined]
            with pytest.raises(StaleToken):
                guard.commit(lease, lambda t: t.set_data(zk.place, b"late"), standing=True)
        with elsewhere.lock("x") as other, pytest.raises(Unsupported, match="same ensemble"):
            guard.commit(other, lambda t: None, standing=True)
    assert zk.get(zk.place)[0] == b"held"


def test_tasks_have_the_same(zk: Any, url: str) -> None:
    async def work() -> None:
        guard = AsyncGuard(zk)
        async with aio.connect(url) as client, client.lock(uuid4().hex) as lease:
            await guard.accept(lease)
            await guard.commit(lease, lambda t: t.set_data(zk.place, b"async"), standing=True)
            with pytest.raises(StaleToken):
                await guard.commit(lease.resource, lambda t: None, token=lease.token - 1)

    asyncio.run(work())
    assert zk.get(zk.place)[0] == b"async"


def test_a_forked_child_is_told_at_once_that_the_connection_is_its_parents(zk: Any) -> None:
    """The thread of the connection is the parent's, so the child waited for ever."""
    guard, name = Guard(zk), uuid4().hex
    guard.accept(name, token=1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            guard.accept(name, token=2)
        except StoreUnfit:
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    guard.accept(name, token=1)


def test_a_mark_that_is_no_number_is_an_error_of_ours(zk: Any) -> None:
    guard, name = Guard(zk), uuid4().hex
    guard.accept(name, token=1)
    zk.set(guard.path(name), b"many")
    with pytest.raises(StoreUnfit, match="no token"):
        guard.accept(name, token=2)


def test_an_answer_that_is_lost_says_whether_the_write_may_have_been_applied(
    zk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard, name = Guard(zk), uuid4().hex

    class Lost:
        def get(self) -> Any:
            raise ConnectionLoss

    real = zk.transaction

    def losing() -> Any:
        transaction = real()
        commit = transaction.commit_async
        transaction.commit_async = lambda: commit() and Lost()
        return transaction

    monkeypatch.setattr(zk, "transaction", losing)
    with pytest.raises(StoreUnavailable, match="may have been applied"):
        guard.commit(name, lambda t: t.set_data(zk.place, b"new"), token=7)
