"""Users, passwords, tokens that expire, rights, TLS: what a deployment with locks on its doors asks of a client."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock.backends.etcd.errors import Denied, NotAuthenticated, status_error
from interlock.backends.etcd.transport.aio import AsyncConnection
from interlock.backends.etcd.transport.blocking import BlockingConnection
from interlock.backends.etcd.wire.grpc import Status
from interlock.backends.etcd.wire.messages import AUTHENTICATE, STATUS
from interlock.backends.etcd.wire.protobuf import message
from interlock.backends.etcd.wire.watching import Watched, WatchGroup, WatchStream
from interlock.errors import InterlockError, InvalidURL, StoreUnavailable, StoreUnfit
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.etcd import EtcdCluster, running
from interlock.testing.servers.process import free_port
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.tls import expired, shown_alone
from tests.patience import PATIENCE, until


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdCluster]:
    """One member with users: root, ours, and one without rights. Tokens live for a second."""
    with with_users("--auth-token-ttl", "1") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def quick() -> Iterator[EtcdCluster]:
    """The same, where a login costs the server almost nothing."""
    with with_users("--auth-token-ttl", "1", "--bcrypt-cost", "4") as cluster:
        yield cluster


@contextmanager
def with_users(*options: str) -> Iterator[EtcdCluster]:
    with running(1, options) as cluster:
        cluster.ctl("user", "add", "root:rootpw")
        cluster.ctl("role", "add", "locks")
        cluster.ctl("role", "grant-permission", "locks", "readwrite", "interlock", "--prefix=true")
        cluster.ctl("user", "add", "ours:s3cret")
        cluster.ctl("user", "grant-role", "ours", "locks")
        cluster.ctl("user", "add", "nobody:pw")
        cluster.ctl("user", "grant-role", "root", "root")
        cluster.ctl("auth", "enable")
        yield cluster


def test_a_user_with_a_password_locks(guarded: EtcdCluster) -> None:
    with interlock.connect(guarded.url(login="ours:s3cret@")) as client, client.lock("x") as lease:
        lease.check()
        assert "s3cret" not in repr(client)


def test_a_token_that_has_expired_is_renewed(guarded: EtcdCluster) -> None:
    with interlock.connect(guarded.url(login="ours:s3cret@")) as client:
        with client.lock("x"):
            pass
        client._core.store._side.transport._credentials.accept(b"no.such.token")  # type: ignore[attr-defined]
        with client.lock("x") as lease:
            lease.renew()
        client._core.store._side.transport._credentials.accept(b"no.such.token")  # type: ignore[attr-defined]
        assert client.inspect("x").standings == ()


def test_a_holder_whose_token_has_expired_keeps_its_lease(guarded: EtcdCluster) -> None:
    """Nothing but the keeper speaks to the server meanwhile, so it must log in by itself."""
    ttl = stretched(2.0)
    with interlock.connect(guarded.url(login="ours:s3cret@"), ttl=ttl) as client, client.lock("x") as lease:
        client._core.store._side.transport._credentials.accept(b"no.such.token")  # type: ignore[attr-defined]
        time.sleep(1.5 * ttl)
        lease.check()
        client._core.store._side.transport._credentials.accept(b"no.such.token")  # type: ignore[attr-defined]
        lease.renew()


def test_a_changed_password_ends_what_is_held_in_time_and_is_told_in_one_sentence(
    guarded: EtcdCluster,
) -> None:
    """etcd ends the tokens of a user whose password is changed; who knows only the old one can do nothing any more."""
    root = ("--user", "root:rootpw")
    guarded.ctl(*root, "user", "add", "rotated:before")
    guarded.ctl(*root, "user", "grant-role", "rotated", "locks")
    ttl = stretched(2.0)
    with interlock.connect(guarded.url(login="rotated:before@"), ttl=ttl) as client:
        lease = client.lock("rotated").acquire()
        assert lease
        guarded.ctl(*root, "user", "passwd", "rotated", "--interactive=false", input="after")
        assert lease.lost.wait(PATIENCE)
        with pytest.raises(StoreUnfit, match="logging in failed"):
            client.lock("other").acquire()
    with interlock.connect(guarded.url(login="rotated:after@"), ttl=ttl) as client:
        with client.lock("rotated", timeout=PATIENCE) as next_lease:
            assert next_lease.token > lease.token


def test_the_async_face_logs_in_and_waits(guarded: EtcdCluster) -> None:
    async def main() -> None:
        async with aio.connect(guarded.url(login="ours:s3cret@")) as client:
            async with client.lock("x") as first:
                waiter = asyncio.create_task(_hold(client))
                while not (await client.inspect("x")).waiters:
                    await asyncio.sleep(0.02)
                await asyncio.sleep(1.2)
                token = first.token
            assert await waiter > token

    asyncio.run(main())


async def _hold(client: aio.Client) -> int:
    async with client.lock("x", timeout=30) as lease:
        return lease.token


def test_a_wrong_password_is_told_and_not_shown(guarded: EtcdCluster) -> None:
    with interlock.connect(guarded.url(login="ours:wr0ng@")) as client:
        with pytest.raises((StoreUnfit, StoreUnavailable), match="logging in failed") as refusal:
            client.lock("x").acquire()
        assert "wr0ng" not in str(refusal.value)


def test_without_a_login_the_error_says_where_it_belongs(guarded: EtcdCluster) -> None:
    with interlock.connect(guarded.url()) as client:
        with pytest.raises(StoreUnfit, match="etcd://user:password@host"):
            client.lock("x").acquire()


def test_a_user_without_rights_is_told_which_to_grant(guarded: EtcdCluster) -> None:
    with interlock.connect(guarded.url(login="nobody:pw@")) as client:
        with pytest.raises(StoreUnfit, match="grant-permission"):
            client.lock("x").acquire()


# ---- TLS --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority, and certificates of a server and of a client."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    signs = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # Python 3.13 asks for it
    openssl("req", "-x509", *new, *signs, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    signed = "authorityKeyIdentifier=keyid\nextendedKeyUsage=clientAuth"  # and for the first of these
    (folder / "server.ext").write_text(f"{signed},serverAuth\nsubjectAltName=IP:127.0.0.1,DNS:localhost\n")
    (folder / "client.ext").write_text(f"{signed}\n")
    for name in ("server", "client"):
        openssl("req", *new[:5], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext"),
        )
    return folder


@pytest.fixture(scope="module")
def secured(files: Path) -> Iterator[EtcdCluster]:
    options = (
        *("--cert-file", str(files / "server.pem"), "--key-file", str(files / "server.key")),
        *("--client-cert-auth", "--trusted-ca-file", str(files / "ca.pem")),
    )
    with running(1, options, tls=True) as cluster:
        yield cluster


def test_tls_with_a_client_certificate(secured: EtcdCluster, files: Path) -> None:
    url = secured.url(cacert=files / "ca.pem", cert=files / "client.pem", key=files / "client.key")
    with interlock.connect(url) as client, client.lock("x") as lease:
        lease.renew()
        assert client.inspect("x").holders

    async def main() -> None:
        async with aio.connect(url) as client, client.lock("x") as lease:
            await lease.renew()

    asyncio.run(main())


@pytest.mark.parametrize("blocking", [True, False])
def test_the_first_lock_over_a_long_way_with_tls(secured: EtcdCluster, files: Path, blocking: bool) -> None:
    """Not to wait for the lock is not the same as not to wait for the network: 0.3 s for each round trip."""
    member = secured.members[0]
    url = secured.url(cacert=files / "ca.pem", cert=files / "client.pem", key=files / "client.key")
    with Proxy(member.port, round_trip=0.3) as far:
        url = url.replace(str(member.port), str(far.port))
        with interlock.connect(url) as client:
            assert client.lock(f"far-{blocking}").acquire(blocking)

        async def main() -> None:
            async with aio.connect(url) as client:
                assert await client.lock(f"far-too-{blocking}").acquire(blocking)

        asyncio.run(main())


def test_tls_without_the_authority_is_refused_with_the_option_to_use(secured: EtcdCluster) -> None:
    with interlock.connect(secured.url()) as client:
        with pytest.raises(StoreUnavailable, match="cacert="):
            client.lock("x").acquire()


def test_a_certificate_that_has_expired_is_said_to_have(tmp_path: Path) -> None:
    shown = expired(tmp_path, "etcd")
    with shown_alone(shown) as port:
        with interlock.connect(f"etcds://127.0.0.1:{port}?cacert={shown}", connect_timeout=2.0) as client:
            with pytest.raises(InterlockError, match=f"127.0.0.1:{port}.*expired"):
                client.lock("x").acquire()


def test_tls_without_a_client_certificate_is_refused(secured: EtcdCluster, files: Path) -> None:
    with interlock.connect(secured.url(cacert=files / "ca.pem")) as client:
        with pytest.raises((StoreUnavailable, StoreUnfit)):
            client.lock("x").acquire()


def test_plain_to_a_port_of_tls_and_the_other_way_round_say_what_is_wrong(
    secured: EtcdCluster, cluster: EtcdCluster
) -> None:
    for url in (secured.url().replace("etcds://", "etcd://"), cluster.url().replace("etcd://", "etcds://")):
        with interlock.connect(url, connect_timeout=2.0) as client:
            with pytest.raises((StoreUnavailable, StoreUnfit)) as refusal:
                client.lock("x").acquire()
            assert "etcd" in str(refusal.value) or "TLS" in str(refusal.value), str(refusal.value)


@pytest.mark.parametrize("scheme", ["etcd", "etcds"])
def test_a_cluster_that_does_not_run_is_named_with_the_command_that_shows_it(scheme: str) -> None:
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    asked = f"{scheme}://{hosts}, and reachable from here? See: etcdctl --endpoints {hosts} endpoint health"
    with interlock.connect(f"{scheme}://{hosts}", connect_timeout=2.0) as client:
        with pytest.raises(StoreUnavailable, match="Connection refused") as refusal:
            client.lock("x").acquire()
        assert asked in str(refusal.value)

    async def main() -> None:
        async with aio.connect(f"{scheme}://{hosts}", connect_timeout=2.0) as client:
            with pytest.raises(StoreUnavailable, match="Connection refused") as refusal:
                await client.lock("x").acquire()
            assert asked in str(refusal.value)

    asyncio.run(main())


def test_files_that_are_missing_are_named(cluster: EtcdCluster) -> None:
    with interlock.connect(
        cluster.url().replace("etcd://", "etcds://") + "&cacert=/no/such/ca.pem"
    ) as client:
        with pytest.raises(StoreUnfit, match=r"/no/such/ca\.pem"):
            client.lock("x").acquire()


@pytest.mark.parametrize(
    "url",
    [
        "etcd://h?colour=red",
        "etcd://h?cacert=/x",
        "etcds://h?key=/x",
        "etcd://h/path",
        "etcd://h?prefix=/",
        "etcd://h:99999",
        "etcd://h,h",
        "etcd://h#x",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidURL):
        interlock.connect(url)


# ---- logging in -------------------------------------------------------------------------


def test_a_server_that_tells_its_status_to_root_alone(
    guarded: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does etcd from 3.5.28 on: without a login it refuses, and a raw `NotAuthenticated` came out."""
    real = BlockingConnection.call

    async def call(line: BlockingConnection, method: bytes, *rest: Any, **options: Any) -> bytes:
        if method == STATUS and line._credentials.missing:
            raise NotAuthenticated("user name is empty")
        if method == STATUS:
            raise Denied("permission denied")
        return await real(line, method, *rest, **options)

    monkeypatch.setattr(BlockingConnection, "call", call)
    with interlock.connect(guarded.url(login="ours:s3cret@")) as client, client.lock("status") as lease:
        lease.renew()


def test_many_tasks_whose_token_has_expired_log_in_once(
    guarded: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each logged in by itself: with 150 tasks the server hashed passwords for 5 s, and a lease was lost."""
    logins: list[bytes] = []
    real = AsyncConnection.call

    async def call(line: AsyncConnection, method: bytes, *rest: Any, **options: Any) -> bytes:
        if method == AUTHENTICATE:
            logins.append(method)
        return await real(line, method, *rest, **options)

    async def main() -> None:
        async with aio.connect(guarded.url(login="ours:s3cret@")) as client:
            await client.register("warm").read()
            client._core.store._side.transport._credentials.accept(b"no.such.token")  # type: ignore[attr-defined]
            monkeypatch.setattr(AsyncConnection, "call", call)
            await asyncio.gather(*(client.register(f"r{n}").read() for n in range(50)))

    asyncio.run(main())
    assert 0 < len(logins) < 10


def test_a_waiter_with_an_old_token_is_woken_and_so_are_those_who_watch_beside_it(
    guarded: EtcdCluster,
) -> None:
    """The refusal of its watch names no watch, and was dropped: it looked after 5 s. The others heard no more."""
    url = guarded.url(login="ours:s3cret@")
    with interlock.connect(url) as holder, interlock.connect(url) as client:
        with ThreadPoolExecutor(2) as pool:
            with holder.lock("one") as one, holder.lock("two") as two:
                waiters = [pool.submit(waited, client, "one")]
                until(lambda: holder.inspect("one").waiters)
                client._core.store._side.transport._credentials.accept(b"no.such.token")  # type: ignore[attr-defined]
                waiters.append(pool.submit(waited, client, "two"))
                until(lambda: holder.inspect("two").waiters)
                time.sleep(1.0)  # so that both sleep
                released = time.monotonic()
                two.release()
                one.release()
            assert max(waiter.result() for waiter in waiters) - released < stretched(2.0)


def waited(client: interlock.Client, name: str) -> float:
    with client.lock(name, timeout=PATIENCE):
        return time.monotonic()


def test_a_refusal_that_names_no_watch_ends_those_that_are_not_open_yet() -> None:
    stream, opened, opening = WatchStream(), WatchGroup(lambda: None), WatchGroup(lambda: None)
    stream.open(opened, [Watched(b"a")])
    stream.open(opening, [Watched(b"b")])
    stream.on_message(message((2, 1), (3, 1)))
    stream.on_message(message((2, (1 << 64) - 1), (3, 1), (4, 1)))
    assert opened.ready
    assert not opened.ended
    assert opening.ended


def test_the_server_confirms_a_cancelled_watch_and_those_that_open_meanwhile_stay() -> None:
    stream, closed, opening = WatchStream(), WatchGroup(lambda: None), WatchGroup(lambda: None)
    stream.open(closed, [Watched(b"a")])
    stream.close(closed)
    stream.open(opening, [Watched(b"b")])
    stream.on_message(message((2, 1), (4, 1)))
    assert not opening.ended


def test_a_wrong_password_is_told_once_and_nothing_is_said_of_claims(
    guarded: EtcdCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    with interlock.connect(guarded.url(login="ours:wrong@"), ttl=1) as client:
        with pytest.raises(StoreUnfit, match="password"):
            client.lock("x").acquire()
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_wait_whose_token_has_expired_logs_in_again(quick: EtcdCluster, asynchronous: bool) -> None:
    """It ended with "its stream was given up", for the refusal was written over before it was read."""
    url = quick.url(login="ours:s3cret@")
    if asynchronous:

        async def main() -> None:
            async with aio.connect(url) as client:
                for _ in range(3):
                    assert not await client.event("told").wait(0.2)
                    client._core.store._side.transport._credentials.accept(b"no.such.token")  # type: ignore[attr-defined]

        asyncio.run(main())
        return
    with interlock.connect(url) as client:
        for _ in range(3):
            assert not client.event("told").wait(0.2)
            client._core.store._side.transport._credentials.accept(b"no.such.token")  # type: ignore[attr-defined]
            with ThreadPoolExecutor(2) as pool:  # one of them opens the stream, and the other waits on it
                assert not any(pool.map(lambda name: client.event(name).wait(0.2), ("one", "two")))
            time.sleep(1.5)  # the token expires, and a stream of watches may not be opened with it
            assert not client.event("told").wait(0.2)


def test_users_and_roles_that_are_changed_again_and_again_are_no_refusal(
    quick: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each change makes the tokens old, and a call that met three of them was refused for good."""
    with interlock.connect(quick.url(login="ours:s3cret@")) as client:
        with client.lock("x"):
            pass
        real, old = BlockingConnection.call, 5

        async def call(line: BlockingConnection, method: bytes, *rest: Any, **options: Any) -> bytes:
            nonlocal old
            if method != AUTHENTICATE and old:
                old -= 1
                raise status_error(line.label, Status(3, "etcdserver: revision of auth store is old"))
            return await real(line, method, *rest, **options)

        monkeypatch.setattr(BlockingConnection, "call", call)
        with client.lock("x") as lease:
            lease.check()
        old = 10**9
        with at_most(5.0 + 1.0), pytest.raises(StoreUnavailable, match="users or roles change"):
            client.inspect("x")
        old = 0
        with client.lock("y") as lease:
            old = 5
            lease.renew()
