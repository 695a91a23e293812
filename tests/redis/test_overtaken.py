"""A request that arrives long after its sender gave it up does nothing that nobody wants any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import redis

import interlock
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.redis import open_url
from interlock.backends.redis.wire.scripts import RELEASE
from interlock.errors import StoreUnavailable
from interlock.model import Claim, Gone, Granted
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.redis import Server, running


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def prefix() -> str:
    return f"{uuid4().hex}:"


def until(fact: Callable[[], object], patience: float = 20.0) -> None:
    end = time.monotonic() + patience
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.002)


def arrived(server: Server, proxy: Proxy) -> None:
    """The late request is delivered, and the server has run it."""

    def calls() -> int:
        with redis.Redis(port=server.port) as admin:
            stats: Any = admin.info("commandstats")
            return sum(stats.get(f"cmdstat_{word}", {}).get("calls", 0) for word in ("evalsha", "eval"))

    before = calls()
    assert proxy.requests.kept
    proxy.requests.deliver()
    until(lambda: calls() > before)


@pytest.mark.parametrize("kind", ["lock", "semaphore", "read"])
def test_a_claim_that_its_own_release_has_overtaken_does_not_enter(
    server: Server, proxy: Proxy, prefix: str, kind: str
) -> None:
    with (
        interlock.connect(proxy.through(server.url(prefix))) as client,
        interlock.connect(server.url(prefix)) as other,
    ):
        lock: Any = {
            "lock": lambda: client.lock("x"),
            "semaphore": lambda: client.semaphore("x", 1),
            "read": lambda: client.rwlock("x").read(),
        }[kind]()
        store: Any = client._core.store
        with client.lock("warm-up"):
            pass  # a connection is kept
        proxy.requests.keep()
        with pytest.raises(StoreUnavailable):
            lock.acquire(timeout=0.2)
        until(
            lambda: not store._own_claims.unanswered
        )  # it was released; perhaps by the keeper, if this machine is busy
        arrived(server, proxy)
        assert other.inspect("x").standings == (), "nobody holds it, and nobody can have it for a ttl"
        with other.lock("x", timeout=1):
            pass


def test_a_late_copy_of_a_claim_that_was_released_does_not_enter(
    server: Server, proxy: Proxy, prefix: str
) -> None:
    """The first request was late, the second was answered: it was held, and released."""
    store = open_url(urlsplit(proxy.through(server.url(prefix))), Threads(), asynchronous=False)
    claim = Claim("x", uuid4().hex, 30.0)
    drive(store.claim(Claim("warm-up", uuid4().hex, 0.1)))
    proxy.requests.keep()
    with pytest.raises(StoreUnavailable):
        drive(store.claim(claim, 0.2))
    assert isinstance(drive(store.claim(claim)), Granted)
    assert drive(store.release("x", claim.id))
    arrived(server, proxy)
    assert drive(store.inspect("x")).standings == ()
    assert drive(store.claim(claim)) == Gone()
    drive(store.close())


def test_a_release_of_a_claim_that_was_answered_leaves_nothing_behind(server: Server, prefix: str) -> None:
    with interlock.connect(server.url(prefix)) as client, redis.Redis(port=server.port) as admin:
        with client.lock("x"):
            assert not client.lock("x").acquire(blocking=False)
            assert not client.lock("x").acquire(timeout=0.05)
        client.lock("x", ttl=0.1, renew=False).acquire()
        time.sleep(0.15)
        assert [
            key
            for key in map(bytes, cast(list[bytes], admin.keys(f"*{prefix}*")))
            if not key.endswith(b"token")
        ] == []


class Late:
    """A transport that delays releases until the test lets them go; their sender gets no reply."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.late: list[bytes] = []

    async def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Any:
        if request.startswith(RELEASE.by_hash[:60]):
            self.late.append(request)
            raise StoreUnavailable("nobody answers")
        return await self._transport.ask(request, timeout, replies, again)

    def after_fork(self) -> None:
        self._transport.after_fork()

    async def close(self) -> None:
        await self._transport.close()


def test_a_grant_that_replicas_confirm_late_is_not_ended_by_a_release_of_before() -> None:
    with (
        running("--repl-diskless-sync-delay", "0") as master,
        running("--replicaof", f"127.0.0.1 {master.port}") as replica,
    ):
        with redis.Redis(port=master.port) as admin:
            until(lambda: admin.set("seen", 1) and admin.wait(1, 100) == 1)
        ours, theirs = interlock.connect(master.url(replicas="1")), interlock.connect(master.url())
        with ours.lock("warm-up"):
            pass
        store: Any = ours._core.store
        store._transport = late = Late(store._transport)
        replica.freeze()

        def waits() -> int:
            with redis.Redis(port=master.port) as admin:
                stats: Any = admin.info("commandstats")
                return int(stats["cmdstat_wait"]["calls"])

        before = waits()
        got: list[Any] = []
        taker = threading.Thread(target=lambda: got.append(ours.lock("x").acquire(timeout=20)))
        taker.start()
        until(lambda: theirs.inspect("x").holders)
        until(lambda: waits() > before)  # the first attempt has waited its second for the replica
        replica.thaw()
        taker.join(20)
        assert got[0]
        for request in late.late:  # what was sent before the grant arrives now
            drive(_asked(late._transport, request))
        assert not theirs.lock("x").acquire(blocking=False), "two hold at once"
        got[0].check()
        store._transport = late._transport
        got[0].release()
        ours.close()
        theirs.close()


def test_a_claim_that_is_repeated_is_written_again_for_the_replicas_to_confirm(
    server: Server, prefix: str
) -> None:
    """WAIT answers for the last write of its connection: where there is none, it says yes to anything."""
    store = open_url(urlsplit(server.url(prefix)), Threads(), asynchronous=False)
    claim = Claim("x", uuid4().hex, 30.0)
    drive(store.claim(claim))
    with redis.Redis(port=server.port) as admin:

        def written() -> int:
            stats: Any = admin.info("commandstats")
            return int(stats.get("cmdstat_pexpire", {}).get("calls", 0))

        before = written()
        for _ in range(50):  # several within one millisecond
            drive(store.claim(claim))
        assert written() - before == 50
    drive(store.release("x", claim.id))
    drive(store.close())


def test_a_min_hold_that_is_sent_again_with_its_source_ends_no_later(prefix: str) -> None:
    """WAIT takes its whole time behind a script that the server does not know."""
    with running() as server:
        holder, replicated = (
            interlock.connect(server.url(prefix)),
            interlock.connect(server.url(prefix, replicas="1")),
        )
        lease = holder.lock("m").acquire_or_raise()
        with redis.Redis(port=server.port) as admin:
            admin.script_flush()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="0 of the 1 replicas wanted confirmed the min_hold"):
            drive(replicated._core.store.release("m", lease.id, 3.0, 5.0))
        took = time.monotonic() - began
        (left,) = (standing.lapses_in for standing in holder.inspect("m").standings)
        assert left is not None
        assert took + left < 3.5, "it counts from the second request"
        assert time.monotonic() - began + left > 2.99, "others came in too soon"
        replicated.close()
        holder.close()


async def _asked(transport: Any, request: bytes) -> Any:
    return await transport.ask(request, 5.0)
