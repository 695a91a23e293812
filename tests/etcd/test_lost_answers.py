"""Mutations whose answer is lost, or whose first copy arrives late: they are done once, or the caller hears that nobody knows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Literal

import pytest

import interlock
from interlock import aio
from interlock._core.drive import drive
from interlock.backends.etcd.errors import Broken
from interlock.backends.etcd.store import EtcdStore
from interlock.backends.etcd.transport.aio import AsyncConnection
from interlock.backends.etcd.transport.blocking import BlockingConnection, BlockingTransport
from interlock.backends.etcd.transport.connection import MemberConnection
from interlock.backends.etcd.wire.messages import GRANT, REVOKE, TXN, Method, of_lease, put, put_op, txn
from interlock.errors import StaleToken, StoreUnavailable, Unreached
from interlock.guards import etcd
from interlock.testing.servers.etcd import EtcdCluster
from tests.patience import PATIENCE

MARK = "counted-once"
Face = Literal["sync", "async"]


class LostAnswer:
    """Loses the answer to the first Txn with the mark in it, after `meanwhile` has happened. With `late`, the Txn is kept instead."""

    def __init__(
        self, patch: pytest.MonkeyPatch, meanwhile: Callable[[], object] = lambda: None, *, late: bool = False
    ) -> None:
        self._meanwhile, self._late = meanwhile, late
        self.copy = b""
        for kind in (BlockingConnection, AsyncConnection):
            patch.setattr(kind, "call", self._losing(kind.call))

    def _losing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        async def call(
            line: MemberConnection, method: Method, body: bytes, timeout: float, **options: Any
        ) -> bytes:
            if method != TXN or MARK.encode() not in body or self.copy:
                answer: bytes = await real(line, method, body, timeout, **options)
                return answer
            self.copy = body
            if not self._late:
                await real(line, method, body, timeout, **options)
            self._meanwhile()
            line.end("the answer was lost")
            raise Broken("the answer was lost")

        return call

    def deliver(self, client: interlock.Client) -> None:
        """The copy that was kept arrives, whoever has given it up meanwhile."""
        store = client._core.store
        assert isinstance(store, EtcdStore)
        drive(store._side.transport.ask(TXN, self.copy, PATIENCE), nested=True)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_lease_whose_grant_was_not_answered_is_ours(
    url: str, face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request was repeated with the same id, and the caller was told that the store is unfit: the lease exists."""
    lost: list[bytes] = []

    def losing(real: Callable[..., Any]) -> Callable[..., Any]:
        async def call(
            line: MemberConnection, method: Method, body: bytes, timeout: float, **options: Any
        ) -> bytes:
            answer: bytes = await real(line, method, body, timeout, **options)
            if method == GRANT and not lost:
                lost.append(body)
                line.end("the answer was lost")
                raise Broken("the answer was lost")
            return answer

        return call

    for kind in (BlockingConnection, AsyncConnection):
        monkeypatch.setattr(kind, "call", losing(kind.call))

    async def on_loop() -> None:
        async with aio.connect(url) as client, client.lock("x") as lease:
            await lease.renew()

    if face == "async":
        asyncio.run(on_loop())
    else:
        with interlock.connect(url) as client, client.lock("x") as lease:
            lease.renew()
            assert client.inspect("x").holders
    assert lost


def append(client: interlock.Client, word: str) -> None:
    client.register("x").update(lambda words: [*(words or []), word])


def written(client: interlock.Client) -> list[str]:
    words: list[str] = client.register("x").read().value or []
    return words


def update(url: str, face: Face) -> StoreUnavailable | None:
    """Write the mark to the end of the register; what was raised, if anything."""

    async def on_loop() -> None:
        async with aio.connect(url) as client:
            await client.register("x").update(lambda words: [*(words or []), MARK])

    try:
        if face == "async":
            asyncio.run(on_loop())
        else:
            with interlock.connect(url) as client:
                append(client, MARK)
    except StoreUnavailable as error:
        return error
    return None


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("others", [True, False], ids=["another wrote", "nobody wrote"])
def test_a_write_whose_answer_was_lost_is_done_once(
    url: str, face: Face, others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transport sent it again in silence: three times one more made four."""
    with interlock.connect(url) as judge:
        append(judge, "first")
        LostAnswer(monkeypatch, lambda: append(judge, "other") if others else None)
        error = update(url, face)
        assert written(judge) == ["first", MARK, *["other"] * others]
        assert (error is not None) == others


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_write_that_arrives_late_is_done_once(
    url: str, face: Face, monkeypatch: pytest.MonkeyPatch
) -> None:
    with interlock.connect(url) as judge:
        append(judge, "first")
        lost = LostAnswer(monkeypatch, late=True)
        assert update(url, face) is None
        append(judge, "other")
        lost.deliver(judge)
        assert written(judge) == ["first", MARK, "other"]


@pytest.mark.parametrize("late", [False, True], ids=["lost", "late"])
def test_an_eviction_whose_answer_was_lost_names_its_victim_and_meets_nobody_else(
    url: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        interlock.connect(url) as judge,
        interlock.connect(url) as first,
        interlock.connect(url) as second,
        interlock.connect(url) as operator,
    ):
        victim = first.lock("x").acquire()
        assert victim
        lost = LostAnswer(monkeypatch, late=late)
        met = operator.evict("x", reason=MARK)
        assert [standing.token for standing in met] == [victim.token]
        with second.lock("x", timeout=PATIENCE) as heir:
            if late:
                lost.deliver(judge)
            assert [holder.token for holder in judge.inspect("x").holders] == [heir.token]
            heir.renew()


def test_an_eviction_that_another_has_made_first_meets_nobody(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        interlock.connect(url) as judge,
        interlock.connect(url) as holder,
        interlock.connect(url) as operator,
    ):
        assert holder.lock("x").acquire()
        LostAnswer(monkeypatch, lambda: judge.evict("x", reason="another operator"), late=True)
        assert operator.evict("x", reason=MARK) == []


def test_an_eviction_whose_tombstones_find_no_lease_meets_only_those_it_has_seen(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began anew after the first of two victims, and evicted the next holder as well."""
    with (
        interlock.connect(url) as holders,
        interlock.connect(url) as heirs,
        interlock.connect(url) as operator,
    ):
        victims: list[Any] = [holders.semaphore("x", capacity=2).acquire() for _ in range(2)]
        heir: list[Any] = []

        def heir_comes() -> None:
            if heir:
                return
            heir.append(heirs.semaphore("x", capacity=2).acquire(timeout=PATIENCE))
            store = operator._core.store
            assert isinstance(store, EtcdStore)
            tombstone_lease = store._side.sessions.tombstone_lease
            assert tombstone_lease is not None
            drive(store._side.transport.ask(REVOKE, of_lease(tombstone_lease[0]), PATIENCE), nested=True)

        real = BlockingTransport.call

        async def call(
            transport: BlockingTransport, method: Method, body: bytes, *rest: Any, **options: Any
        ) -> bytes:
            answer = await real(transport, method, body, *rest, **options)
            if method == TXN and MARK.encode() in body:
                heir_comes()
            return answer

        monkeypatch.setattr(BlockingTransport, "call", call)
        met = operator.evict("x", reason=MARK)
        assert {standing.token for standing in met} == {victim.token for victim in victims}
        assert [standing.token for standing in operator.inspect("x").holders] == [heir[0].token]


def test_a_request_that_may_have_been_applied_is_never_said_to_be_unsent(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Unreached` says that nothing was sent. After a copy that may have arrived, nobody can say that."""
    with interlock.connect(url) as holder, interlock.connect(url) as operator:
        assert holder.lock("x").acquire()
        operator.inspect("x")

        def nobody_is_there() -> None:
            async def refused(*_: object) -> MemberConnection:
                raise Unreached("nobody is there")

            monkeypatch.setattr(BlockingTransport, "_open", refused)

        LostAnswer(monkeypatch, nobody_is_there)
        with pytest.raises(StoreUnavailable) as error:
            operator.evict("x", reason=MARK)
        assert not isinstance(error.value, Unreached)
        monkeypatch.undo()


# ---- the guard --------------------------------------------------------------------------


def test_a_guarded_write_whose_answer_was_lost_is_done_once(
    cluster: EtcdCluster, url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = etcd.Guard(url)
    guard.put("x", key, "first", token=5)
    lost = LostAnswer(monkeypatch)
    revision = guard.put("x", key, MARK, token=5)
    assert lost.copy
    assert guard.get(key) == MARK.encode()
    stands = json.loads(cluster.ctl("get", key, "--write-out", "json"))["kvs"][0]
    assert (stands["version"], stands["mod_revision"]) == (2, revision), "it was written twice"
    guard.close()


@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("token", [5, 6], ids=["same token", "next holder"])
@pytest.mark.parametrize("late", [False, True], ids=["lost", "late"])
def test_a_guarded_write_is_never_put_over_a_newer_one(
    url: str, key: str, face: Face, token: int, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sent again, and an equal token is accepted: the old value stood over the newer one."""
    other = etcd.Guard(url)
    other.put("x", key, "first", token=5)
    lost = LostAnswer(monkeypatch, lambda: other.put("x", key, "newer", token=token), late=late)

    async def on_loop() -> None:
        guard = etcd.AsyncGuard(url)
        try:
            await guard.put("x", key, MARK, token=5)
        finally:
            await guard.close()

    with pytest.raises(StoreUnavailable, match="may have been applied"):
        if face == "async":
            asyncio.run(on_loop())
        else:
            guard = etcd.Guard(url)
            try:
                guard.put("x", key, MARK, token=5)
            finally:
                guard.close()
    if late:
        with interlock.connect(url) as judge:
            lost.deliver(judge)
    assert other.get(key) == b"newer"
    other.close()


def test_a_guarded_write_that_was_given_up_does_not_come_after_its_repetition(
    url: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller itself writes again, then something else with the same token; and then the first copy arrives."""
    guard = etcd.Guard(url)
    guard.put("x", key, "first", token=5)
    lost = LostAnswer(monkeypatch, late=True)
    guard.put("x", key, MARK, token=5)
    guard.put("x", key, "newer", token=5)
    with interlock.connect(url) as judge:
        lost.deliver(judge)
    assert guard.get(key) == b"newer"
    guard.close()


def test_marks_of_earlier_versions_are_understood(url: str, key: str) -> None:
    """They hold the token alone."""
    guard = etcd.Guard(url)
    with interlock.connect(url) as client:
        store = client._core.store
        assert isinstance(store, EtcdStore)
        mark = put_op(put(guard.key("x"), b"%020d" % 7))
        drive(store._side.transport.ask(TXN, txn([], [mark]), PATIENCE), nested=True)
    with pytest.raises(StaleToken) as refusal:
        guard.put("x", key, "late", token=6)
    assert refusal.value.accepted == 7
    guard.put("x", key, "in time", token=7)
    guard.close()


def test_a_guard_is_told_how_long_to_connect(key: str) -> None:
    guard = etcd.Guard("etcd://127.0.0.1:1?connect_timeout=0.2")
    assert guard._transport.address.connect_timeout == 0.2
    with pytest.raises(StoreUnavailable):
        guard.get(key)
    guard.close()
