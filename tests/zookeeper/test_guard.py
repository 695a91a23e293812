"""The guard for ZooKeeper: a write with a token that is too low is not applied, whatever else is in its transaction."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.security import CREATOR_ALL_ACL, make_acl, make_digest_acl

import interlock
from interlock import aio
from interlock.errors import LeaseLost, StaleToken, StoreUnavailable, StoreUnfit, Unreached, Unsupported
from interlock.guards.zookeeper import AsyncGuard, Guard
from interlock.testing.lag import at_most
from interlock.testing.servers.zookeeper import Ensemble, Servers, running
from tests.patience import until
from tests.zookeeper.quotas import set_quota


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
        def get(self, timeout: float) -> Any:
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


@pytest.fixture
def limited() -> Iterator[Ensemble]:
    """A server that enforces quotas."""
    with running(1, jvm=["-Dzookeeper.enforceQuota=true"]) as ensemble:
        yield ensemble


@contextmanager
def kazoo_client(servers: Servers, **settings: Any) -> Iterator[Any]:
    client: Any = KazooClient(hosts=servers.hosts, **settings)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def both(client: Any, root: str, name: str, token: int, build: Any = None) -> list[Any]:
    """What the two guards do with the same call: results, or errors."""

    def asynchronous() -> Any:
        async def work() -> Any:
            guard = AsyncGuard(client, root=root)
            return await (
                guard.accept(name, token=token) if build is None else guard.commit(name, build, token=token)
            )

        return asyncio.run(work())

    def blocking() -> Any:
        guard = Guard(client, root=root)
        return guard.accept(name, token=token) if build is None else guard.commit(name, build, token=token)

    told: list[Any] = []
    for call in (blocking, asynchronous):
        try:
            told.append(call())
        except Exception as error:
            told.append(error)
    return told


@pytest.mark.parametrize("commits", [False, True], ids=["accept", "commit"])
def test_a_mark_that_the_client_may_read_and_not_write_is_an_error_of_ours(
    zk: Any, ensemble: Servers, commits: bool
) -> None:
    """The token was not noted, and the caller was not told."""
    root, build = f"{zk.place}/fences", (lambda t: t.set_data(zk.place, b"late")) if commits else None
    only_read = [make_digest_acl("app", "secret", all=True), make_acl("world", "anyone", read=True)]
    with kazoo_client(ensemble, auth_data=[("digest", "app:secret")], default_acl=only_read) as owner:
        Guard(owner, root=root).accept("item", token=9)
        for answer in both(zk, root, "item", 12, build) + both(zk, root, "new", 3, build):
            assert isinstance(answer, StoreUnfit)
            assert "ACL" in str(answer)
            assert "nothing was written" in str(answer)
        assert zk.get(f"{root}/item")[0] == b"9"
    assert zk.get(zk.place)[0] == b"0"


@pytest.mark.parametrize("commits", [False, True], ids=["accept", "commit"])
def test_an_acl_that_the_server_refuses_is_an_error_of_ours(
    zk: Any, ensemble: Servers, commits: bool
) -> None:
    root, build = f"{zk.place}/fences", (lambda t: t.set_data(zk.place, b"late")) if commits else None
    zk.create(root, b"")
    with kazoo_client(ensemble, default_acl=CREATOR_ALL_ACL) as nobody:
        for answer in both(nobody, root, "item", 5, build):
            assert isinstance(answer, StoreUnfit)
            assert "default_acl" in str(answer)
    assert zk.get_children(root) == []
    assert zk.get(zk.place)[0] == b"0"


def test_a_quota_that_is_reached_is_an_error_of_ours(limited: Ensemble) -> None:
    with kazoo_client(limited) as admin:
        for path in ("/q", "/q/fences", "/q/data"):
            admin.create(path, b"")
        set_quota(admin, "/q", count=4)
        for build in (None, lambda t: t.set_data("/q/data", b"late")):
            for answer in both(admin, "/q/fences", "item", 5, build):
                assert isinstance(answer, StoreUnavailable)
                assert "quota" in str(answer)
        assert admin.get_children("/q/fences") == []
        assert admin.get("/q/data")[0] == b""


def test_a_function_that_would_have_to_be_awaited_is_refused(zk: Any) -> None:
    async def build(t: Any) -> None:
        t.set_data(zk.place, b"new")

    for answer in both(zk, f"{zk.place}/fences", "x", 5, build):
        assert isinstance(answer, TypeError)


@pytest.mark.parametrize("fault", ["freeze", "kill"])
def test_a_server_that_does_not_answer_ends_a_call_in_its_time(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed server kept the caller for ever, and a frozen one gave the bare error of kazoo after its own time."""
    monkeypatch.setattr("interlock.guards.zookeeper.IO_TIMEOUT", 1.0)
    with running(1) as ensemble, kazoo_client(ensemble, timeout=20) as client:
        client.create("/data", b"0")
        assert both(client, "/fences", "x", 5) == [None, None]
        getattr(ensemble.nodes[0], fault)()
        with at_most(4 * 1.0 + 1.0):
            for build in (None, lambda t: t.set_data("/data", b"late")):
                for answer in both(client, "/fences", "x", 6, build):
                    assert isinstance(answer, Unreached)
                    assert "nothing was written" in str(answer)


def test_a_write_that_is_not_answered_in_time_may_have_been_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.guards.zookeeper.IO_TIMEOUT", 1.0)
    with running(1) as ensemble, kazoo_client(ensemble, timeout=20) as client:
        client.create("/data", b"0")
        assert both(client, "/fences", "x", 5) == [None, None]

        def build(t: Any) -> None:  # the mark was read
            t.set_data("/data", b"new")
            ensemble.nodes[0].freeze()

        blocking, asynchronous = both(client, "/fences", "x", 6, build)
        assert "may have been applied" in str(blocking)
        assert not isinstance(blocking, Unreached)
        assert isinstance(asynchronous, Unreached)  # it could not even read
        ensemble.nodes[0].thaw()
        until(lambda: client.get("/data")[0] == b"new")


def test_a_claim_that_its_own_client_has_evicted_is_a_loss(zk: Any, url: str) -> None:
    """It was called a lease of another store."""
    with interlock.connect(url) as client:
        lease = client.lock("x").acquire()
        client.evict("x", reason="drill")
        with pytest.raises((StaleToken, LeaseLost)):
            Guard(zk).commit(lease or "x", lambda t: t.set_data(zk.place, b"late"), standing=True)
    assert zk.get(zk.place)[0] == b"0"
