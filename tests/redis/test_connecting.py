"""Connecting has its own timeout, idle connections are kept, and the keeper has a connection of its own."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis

import interlock
from interlock import aio
from interlock.backends.redis.transport.keeper_connection import KeeperConnection
from interlock.errors import StoreUnavailable
from interlock.testing.servers import cluster as clusters
from interlock.testing.servers import sentinel as sentinels
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.redis import Server, running, started
from interlock.testing.servers.tls import SecureServer, certificate
from tests.environment import environment
from tests.patience import PATIENCE

PASSWORD = "s3cret"
FAR = 0.1  # seconds to the server and back: DNS, TCP, TLS and AUTH take several of them


@pytest.fixture(scope="module")
def secure(tmp_path_factory: Any) -> Iterator[tuple[SecureServer, Path]]:
    shown = certificate(tmp_path_factory.mktemp("tls"), "localhost")
    with started(SecureServer(shown, "--requirepass", PASSWORD)) as server:
        yield server, shown


def secure_url(port: int, shown: Path) -> str:
    return f"rediss://:{PASSWORD}@127.0.0.1:{port}/1?ssl_ca_certs={shown}&prefix={uuid4().hex}:"


@pytest.fixture
def far(secure: tuple[SecureServer, Path]) -> Iterator[str]:
    """The URL of a server with a password and TLS, far away."""
    server, shown = secure
    with Proxy(server.secure, round_trip=FAR) as proxy:
        yield secure_url(proxy.port, shown)


def eventually(fact: Callable[[], object], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.01)


# ---- cold calls ------------------------------------------------------------------------


def test_a_call_that_must_not_wait_for_the_lock_waits_for_the_network(far: str) -> None:
    with interlock.connect(far) as client, interlock.connect(far) as other:
        with client.lock("x") as lease:
            assert lease.token
            assert other.lock("x").acquire(blocking=False) is None  # cold, and taken
            assert other.lock("y").acquire(blocking=False)  # it is connected by now


def test_a_task_that_must_not_wait_for_the_lock_waits_for_the_network(far: str) -> None:
    async def main() -> None:
        async with aio.connect(far) as client, aio.connect(far) as other:
            lease = await client.lock("x").acquire(blocking=False)
            assert lease
            assert await other.lock("x").acquire(blocking=False) is None
            assert await other.lock("y").acquire(blocking=False)

    asyncio.run(main())


def test_a_command_that_must_not_wait_for_the_lock_waits_for_the_network(far: str) -> None:
    words = [sys.executable, "-m", "interlock", "run", "-n", "--url", far, "x", "--", "true"]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_on_a_server_farther_away_than_its_patience_a_call_that_may_not_wait_is_answered(
    server: Server,
) -> None:
    with (
        Proxy(server.port, round_trip=0.3) as proxy,
        interlock.connect(proxy.through(server.url(f"{uuid4().hex}:"))) as client,
    ):
        for _ in range(2):  # cold, then connected
            lease = client.lock("x").acquire(blocking=False)
            assert lease
            assert client.lock("x").acquire(blocking=False) is None
            lease.release()


@contextmanager
def far_master() -> Iterator[str]:
    """The URL of a master and its sentinel, both so far away that the sentinel needs longer than its share."""
    with running() as server, Proxy(server.port, round_trip=0.15) as master:
        watcher: Any = master
        with sentinels.alone(watcher) as sentinel, Proxy(sentinel.port, round_trip=0.15) as way:
            yield f"redis+sentinel://127.0.0.1:{way.port}/{sentinels.SERVICE}/0"


@contextmanager
def far_cluster() -> Iterator[str]:
    with (
        clusters.alone() as node,
        Proxy(node.port, round_trip=0.15) as proxy,
        redis.Redis(port=node.port) as admin,
    ):
        admin.config_set("cluster-announce-ip", "127.0.0.1")
        admin.config_set("cluster-announce-port", proxy.port)
        yield f"redis+cluster://127.0.0.1:{proxy.port}"


@pytest.mark.parametrize("away", [far_master, far_cluster])
def test_the_way_to_a_master_or_through_a_cluster_may_take_its_time_too(
    away: Callable[[], AbstractContextManager[str]],
) -> None:
    async def take(url: str) -> None:
        async with aio.connect(url) as client:
            assert await client.lock("y").acquire(blocking=False)

    with away() as url:
        with interlock.connect(url) as client:
            assert client.lock("x").acquire(blocking=False)
            assert client.lock("x").acquire(blocking=False) is None
        asyncio.run(take(url))


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_server_that_never_answers_is_given_up_after_the_connect_timeout(asynchronous: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"

        async def ask() -> None:
            async with aio.connect(url, connect_timeout=0.6) as client:
                await client.lock("x").acquire(blocking=False)

        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.[56]"):
            if asynchronous:
                asyncio.run(ask())
            else:
                with interlock.connect(f"{url}?connect_timeout=0.6") as client:
                    client.lock("x").acquire(blocking=False)
        assert 0.5 < time.monotonic() - began < 0.6 + 5


# ---- kept connections --------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_a_connection_that_was_idle_is_used_again(secure: tuple[SecureServer, Path], tls: bool) -> None:
    server, shown = secure
    with Proxy(server.secure if tls else server.port) as proxy:
        url = (
            secure_url(proxy.port, shown)
            if tls
            else proxy.through(server.url("i:")).replace("redis://", f"redis://:{PASSWORD}@")
        )
        with interlock.connect(url) as client:
            with client.lock("x"):
                pass
            made = proxy.accepted
            for _ in range(2):
                time.sleep(0.6)
                with client.lock("x"):
                    pass
            assert proxy.accepted == made


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_a_connection_that_was_cut_while_it_was_idle_is_not_used(
    secure: tuple[SecureServer, Path], tls: bool
) -> None:
    server, shown = secure
    with Proxy(server.secure if tls else server.port) as proxy:
        url = (
            secure_url(proxy.port, shown)
            if tls
            else proxy.through(server.url("i:")).replace("redis://", f"redis://:{PASSWORD}@")
        )
        with interlock.connect(url) as client:
            with client.lock("x"):
                pass
            proxy.hang_up()
            time.sleep(0.6)
            lease = client.lock("x").acquire(blocking=False)
            assert lease
            lease.release()


def test_over_tls_waiters_are_woken_while_others_subscribe(secure: tuple[SecureServer, Path]) -> None:
    server, shown = secure
    url = secure_url(server.secure, shown)
    seen: list[object] = []
    with interlock.connect(url) as holder, interlock.connect(url) as client:

        def take() -> None:
            with client.lock("x", timeout=PATIENCE) as lease:
                seen.append(lease.token)

        def watch(name: str) -> None:
            seen.append(client.event(name).wait(PATIENCE))

        for number in range(5):
            lease = holder.lock("x").acquire()
            assert lease
            names = [f"{number}-{place}" for place in range(8)]
            threads = [threading.Thread(target=watch, args=(name,)) for name in names]
            threads.append(threading.Thread(target=take))
            for thread in threads:
                thread.start()
            for name in names:
                holder.event(name).set()
            lease.release()
            for thread in threads:
                thread.join(PATIENCE)
        assert len(seen) == 45
        assert all(seen)


class HandMade:
    """A server that says what a handshake needs, and nothing to a script."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.ends: list[str] = []  # how the connections ended that a script was sent on
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        asked = False
        try:
            while data := client.recv(65536):
                if b"EVAL" in data:
                    asked = True
                else:
                    client.sendall(b"+OK\r\n" * data.count(b"*"))
            if asked:
                self.ends.append("closed")
        except ConnectionResetError:
            if asked:
                self.ends.append("reset")
        client.close()

    def close(self) -> None:
        self._listening.close()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_connection_whose_answer_nobody_waits_for_is_reset(asynchronous: bool) -> None:
    """Or what it still carries could arrive after the claim was taken back on another one."""
    server = HandMade()
    url = f"redis://127.0.0.1:{server.port}/0"

    async def ask() -> None:
        async with aio.connect(url) as client:
            await client.lock("x").acquire(timeout=0.1)

    with pytest.raises(StoreUnavailable):
        if asynchronous:
            asyncio.run(ask())
        else:
            with interlock.connect(url) as client:
                client.lock("x").acquire(timeout=0.1)
    eventually(lambda: server.ends)
    assert set(server.ends) == {"reset"}
    server.close()


# ---- the keeper's own connection ----------------------------------------------------------


def test_forty_threads_that_lock_back_to_back_take_no_lease_from_their_own_client(url: str) -> None:
    lost: list[str] = []
    stop = threading.Event()
    with interlock.connect(url, ttl=1.5) as client:
        held = [client.lock(f"held-{n}", on_lost=lambda lease: lost.append(lease.resource)) for n in range(5)]
        leases = [lock.acquire() for lock in held]

        def work(number: int) -> None:
            while not stop.is_set():
                with client.lock(f"busy-{number}", ttl=30, timeout=60):
                    pass

        threads = [threading.Thread(target=work, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        time.sleep(4.5)  # three times their ttl
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert lost == []
        for lease in leases:
            assert lease
            lease.release()


@pytest.mark.parametrize("keeper", ["sync", "thread", "task"])
def test_nothing_is_granted_to_a_client_whose_keeper_gets_no_connection(keeper: Any) -> None:
    with running("--maxclients", "1") as server:

        async def take() -> None:
            async with aio.connect(server.url(), keeper=keeper) as client:
                await client.lock("x").acquire(timeout=0.5)

        with pytest.raises(StoreUnavailable):
            if keeper == "sync":
                with interlock.connect(server.url()) as client:
                    client.lock("x").acquire(timeout=0.5)
            else:
                asyncio.run(take())


class Beside:
    """What becomes of the keeper's connection, in the place of making it."""

    def __init__(self, outcome: str) -> None:
        self._outcome = outcome
        self.made = False

    def warm(self, route: object, timeout: float) -> None:
        time.sleep(0.3 if self._outcome == "slow" else 0.0)
        if self._outcome == "refused":
            raise StoreUnavailable("refused")
        if self._outcome == "silent":
            time.sleep(timeout + 0.5)
            raise StoreUnavailable("late")
        self.made = True

    async def warm_async(self, route: object, timeout: float) -> None:
        await asyncio.to_thread(self.warm, route, timeout)


@pytest.mark.parametrize("keeper", ["sync", "thread", "task"])
@pytest.mark.parametrize("outcome", ["slow", "refused", "silent"])
def test_a_grant_waits_for_the_connection_of_the_keeper(
    url: str, monkeypatch: Any, keeper: Any, outcome: str
) -> None:
    beside = Beside(outcome)
    monkeypatch.setattr(
        KeeperConnection, "warm", lambda keeper_connection, route, timeout: beside.warm(route, timeout)
    )
    if keeper == "task":
        monkeypatch.setattr(
            KeeperConnection, "warm_async", lambda keeper_connection, *words: beside.warm_async(*words)
        )

    async def take() -> bool:
        async with aio.connect(url, keeper=keeper, connect_timeout=1) as client:
            return bool(await client.lock("x").acquire(blocking=False))

    with interlock.connect(url, connect_timeout=1) as client:
        try:
            taken = (
                bool(client.lock("x").acquire(blocking=False)) if keeper == "sync" else asyncio.run(take())
            )
        except StoreUnavailable:
            taken = False
    assert (taken, beside.made) == (outcome == "slow", outcome == "slow")


def test_a_lease_is_renewed_though_every_connection_of_its_client_is_busy(server: Server) -> None:
    """Sixteen calls wait for answers that do not come; the keeper asks on its own connection."""
    with (
        Proxy(server.port) as proxy,
        interlock.connect(proxy.through(server.url(f"{uuid4().hex}:")), ttl=2) as client,
    ):
        lost: list[object] = []
        lease = client.lock("x", on_lost=lost.append).acquire()
        assert lease
        store: Any = client._core.store
        busy = [threading.Thread(target=_ask_in_vain, args=(store,), daemon=True) for _ in range(16)]
        for thread in busy:
            thread.start()
        for thread in busy:
            thread.join(PATIENCE)
        assert lost == []
        lease.release()


def _ask_in_vain(store: Any) -> None:
    with pytest.raises(StopIteration):
        store._transport.ask(b"*3\r\n$5\r\nBLPOP\r\n$7\r\nnothing\r\n$1\r\n3\r\n", 5.0).send(None)
