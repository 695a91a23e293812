"""Whatever is wrong with the server, one sentence names it and says what to do."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

import interlock
from interlock import aio
from interlock.backends.redis.errors import COMMANDS
from interlock.errors import InterlockError, StoreUnavailable, StoreUnfit, Unreached
from interlock.testing.lag import at_most
from interlock.testing.servers.process import free_port
from interlock.testing.servers.redis import Server, running, started
from interlock.testing.servers.tls import SecureServer, certificate, expired
from tests.fake_server import answering
from tests.patience import PATIENCE


def refusals(url: str) -> list[InterlockError]:
    """What both faces say when a lock is asked for there."""
    said: list[InterlockError] = []
    client = interlock.connect(url)
    with pytest.raises(InterlockError) as refusal:
        client.lock("x").acquire(timeout=0.3)
    said.append(refusal.value)
    client.close()

    async def ask() -> None:
        async with aio.connect(url) as client:
            with pytest.raises(InterlockError) as refusal:
                await client.lock("x").acquire(timeout=0.3)
            said.append(refusal.value)

    asyncio.run(ask())
    return said


def test_a_server_that_is_down_is_named_and_the_call_is_in_time() -> None:
    port = free_port()
    with at_most(5):
        for error in refusals(f"redis://:secret@127.0.0.1:{port}/0"):
            assert isinstance(error, StoreUnavailable)
            assert f"127.0.0.1:{port}" in str(error)
            assert "is the server running" in str(error)
            assert "secret" not in str(error)


def test_a_server_that_is_down_has_not_been_sent_anything() -> None:
    for error in refusals(f"redis://127.0.0.1:{free_port()}"):
        assert isinstance(error, Unreached)


def test_a_server_that_is_frozen_is_named_and_the_call_is_in_time() -> None:
    with running() as server, server.frozen():
        for error in refusals(server.url()):
            assert isinstance(error, StoreUnavailable)
            assert f"127.0.0.1:{server.port} did not answer within" in str(error)


@pytest.mark.parametrize(
    ("reply", "kind", "advice"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", StoreUnavailable, "still loading"),
        (
            b"-MISCONF Redis is configured to save RDB snapshots\r\n",
            StoreUnavailable,
            "cannot save to its disk",
        ),
        (b"-MASTERDOWN Link with MASTER is down\r\n", StoreUnavailable, "lost its master"),
        (b"-CLUSTERDOWN The cluster is down\r\n", StoreUnavailable, "cluster that is down"),
        (b"-BUSY Redis is busy running a script.\r\n", StoreUnavailable, "SCRIPT KILL"),
        (b"-MOVED 3999 127.0.0.1:6381\r\n", StoreUnfit, "belongs to a Redis Cluster"),
        (b"-DENIED Redis is running in protected mode\r\n", StoreUnfit, "protected mode"),
        (b"-ERR max number of clients reached\r\n", StoreUnavailable, "limit of clients"),
        (b"-ERR unknown command `EVALSHA`\r\n", StoreUnfit, "lacks a command"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", StoreUnfit, "does not speak the protocol"),
    ],
)
def test_each_refusal_has_a_sentence(reply: bytes, kind: type[InterlockError], advice: str) -> None:
    with answering(reply) as port:
        for error in refusals(f"redis://127.0.0.1:{port}/0"):
            assert isinstance(error, kind), repr(error)
            with pytest.raises(kind, match=advice):
                raise error


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    with running("--requirepass", "s3cret") as server:
        with redis.Redis(port=server.port, password="s3cret") as admin:
            for user, commands in (("reader", ["+get", "+ping"]), ("deaf", ["+@all", "-subscribe"])):
                admin.acl_setuser(
                    user, enabled=True, passwords=["+s3cret"], keys=["*"], channels=["*"], commands=commands
                )
        yield server


@pytest.mark.parametrize(
    ("credentials", "advice"),
    [
        ("", "wants a password; name it in the URL"),
        (":wr0ng@", "refuses this user name and password"),
        ("nobody:s3cret@", "refuses this user name and password"),
        ("reader:s3cret@", "to run: eval evalsha exists"),
    ],
)
def test_who_may_not_enter_is_told_what_is_missing(guarded: Server, credentials: str, advice: str) -> None:
    for error in refusals(f"redis://{credentials}127.0.0.1:{guarded.port}/0"):
        assert isinstance(error, StoreUnfit), repr(error)
        assert advice in str(error)
        assert "s3cret" not in str(error)
        assert "wr0ng" not in str(error)


def test_who_may_not_subscribe_waits_by_looking(guarded: Server) -> None:
    client = interlock.connect(f"redis://deaf:s3cret@127.0.0.1:{guarded.port}/0")
    got: list[Any] = []
    with client.lock("deaf"):
        waiter = threading.Thread(target=lambda: got.append(client.lock("deaf", timeout=10).acquire()))
        waiter.start()
        while not client.inspect("deaf").waiters:
            time.sleep(0.001)
    waiter.join(PATIENCE)
    assert got[0]
    client.close()


def test_the_permissions_that_the_page_names_are_enough() -> None:
    with running() as server, redis.Redis(port=server.port) as admin:
        keys, channels = ("~locks:*", "~{locks:*", "~{????}?=locks:*"), ("&interlock:*", "&locks:*")
        rules = ("on", ">pw", *keys, *channels)
        admin.execute_command("ACL", "SETUSER", "locker", *rules, *(f"+{word}" for word in COMMANDS.split()))
        client = interlock.connect(f"redis://locker:pw@127.0.0.1:{server.port}/0?prefix=locks:")
        done = threading.Event()

        def wait() -> None:
            client.event("set").wait(10)
            with client.lock("x", timeout=PATIENCE), client.semaphore("s", 2), client.rwlock("rw").read():
                done.set()

        waiter = threading.Thread(target=wait)
        with client.lock("x"):
            waiter.start()
            client.event("set").set()
            while not client.inspect("x").waiters:
                time.sleep(0.001)
            assert list(client.scan()) == ["x"]
        waiter.join(PATIENCE)
        assert done.is_set()
        for name in ("a}b", "c{}d", "e}{f", "{g}h", "i{j"):
            with client.lock(name), client.semaphore(f"s{name}", 2), client.rwlock(f"rw{name}").write():
                assert name in client.scan()
                assert not client.lock(name).acquire(timeout=0.02)
        client.evict("x", reason="nobody is there")
        client.close()


def test_a_replica_says_so() -> None:
    with running() as master, running("--replicaof", f"127.0.0.1 {master.port}") as replica:
        for error in refusals(replica.url()):
            assert isinstance(error, StoreUnavailable)
            assert "read-only replica" in str(error)


def test_a_server_without_memory_says_so_and_a_release_still_works() -> None:
    with running() as server, redis.Redis(port=server.port) as admin:
        client = interlock.connect(server.url())
        lease = client.lock("held").acquire()
        assert lease
        admin.config_set("maxmemory", 1)
        for error in refusals(server.url()):
            assert isinstance(error, StoreUnavailable)
            assert "out of memory" in str(error)
        lease.release()
        assert not admin.exists("held")
        client.close()


def test_a_database_that_is_not_there_is_refused(server: Server) -> None:
    for error in refusals(server.url(database=99)):
        assert isinstance(error, StoreUnfit)
        assert "no database of this number" in str(error)


def test_a_certificate_that_has_expired_is_said_to_have(tmp_path: Path) -> None:
    shown = expired(tmp_path, "shown")
    with started(SecureServer(shown)) as server:
        for error in refusals(f"rediss://127.0.0.1:{server.secure}?ssl_ca_certs={shown}"):
            assert isinstance(error, Unreached)
            assert str(error) == (
                f"Redis at 127.0.0.1:{server.secure}: its certificate is not trusted (certificate has expired); "
                "give the server a new one, unless the clock of this machine is wrong"
            )


@pytest.mark.parametrize(("kind", "advice"), [(expired, "renew what"), (certificate, "trusts no one who")])
def test_a_server_that_refuses_our_certificate_leads_to_it(
    tmp_path: Path, kind: Callable[[Path, str], Path], advice: str
) -> None:
    shown, known, mine = certificate(tmp_path, "shown"), tmp_path / "known.pem", kind(tmp_path, "mine")
    known.write_text(shown.read_text() + (mine.read_text() if kind is expired else ""))
    with started(
        SecureServer(shown, "--tls-auth-clients", "yes", "--tls-ca-cert-file", str(known))
    ) as server:
        ours = f"ssl_certfile={mine}&ssl_keyfile={mine.with_suffix('.key')}"
        for error in refusals(f"rediss://127.0.0.1:{server.secure}?ssl_ca_certs={shown}&{ours}"):
            assert isinstance(error, StoreUnavailable)
            # The server hangs up at once: what it says before that is heard by who is fast enough.
            said = advice if " alert " in str(error) else "does the server want a valid certificate of yours"
            assert said in str(error)
            assert "ssl_certfile" in str(error)
            assert "ssl.c" not in str(error)


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_wrong_password_is_told_once_and_nothing_is_said_of_claims(
    face: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No claim was made, so none can be left behind; the log said three times that one was."""
    with running("--requirepass", "right") as server:
        url = server.url().replace("redis://", "redis://:wrong@")
        if face == "sync":
            with pytest.raises(StoreUnfit, match="refuses this user name and password"):
                with interlock.connect(url, ttl=1) as client:
                    client.lock("x").acquire()
        else:

            async def main() -> None:
                async with interlock.aio.connect(url, ttl=1) as client:
                    await client.lock("x").acquire()

            with pytest.raises(StoreUnfit, match="refuses this user name and password"):
                asyncio.run(main())
    assert [record.getMessage() for record in caplog.records] == []
