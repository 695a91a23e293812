"""What stands between a client and its server: TLS, a long way, a rotated password, a full disk."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import interlock
from interlock.errors import StoreUnavailable, StoreUnfit
from interlock.testing.lag import stretched
from interlock.testing.servers.postgresql import Server, give, running
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.small_disk import full, small_disk
from interlock.testing.servers.tls import certificate, expired
from tests.patience import PATIENCE, until, until_renewed

TRIP = 0.3  # seconds: a round trip to the other side of the world
RULES = """\
hostssl all far all scram-sha-256
host all spun all scram-sha-256
host all postgres all trust
"""


def first_sync(url: str, blocking: bool) -> bool:
    with interlock.connect(url) as client:
        return client.lock("x").acquire(blocking) is not None


def first_async(url: str, blocking: bool) -> bool:
    async def main() -> bool:
        async with interlock.aio.connect(url) as client:
            return await client.lock("x").acquire(blocking) is not None

    return asyncio.run(main())


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server with TLS and passwords, and the certificate that it shows."""
    shown = certificate(tmp_path_factory.mktemp("tls"), "postgresql")
    server = Server("ssl=on", "ssl_cert_file=server.pem", "ssl_key_file=server.key")
    for file, name in ((shown, "server.pem"), (shown.with_suffix(".key"), "server.key")):
        shutil.copy(file, f"{server.data}/{name}")
        os.chmod(f"{server.data}/{name}", 0o600)
    Path(server.data, "pg_hba.conf").write_text(RULES)
    give(server.folder)
    server.start()
    try:
        for role, word in (("far", "right"), ("spun", "old")):
            server.sql(f"create role {role} login password '{word}'")
            server.sql(f"grant create on database postgres to {role}")
        yield server, str(shown)
    finally:
        server.kill()


@pytest.mark.server
@pytest.mark.parametrize("first", [first_sync, first_async])
@pytest.mark.parametrize("blocking", [True, False])
def test_the_first_lock_over_a_long_way_with_tls_and_a_password(
    secure: tuple[Server, str], first: Callable[[str, bool], bool], blocking: bool
) -> None:
    """Not to wait for the lock is not the same as not to wait for the network."""
    server, shown = secure
    with Proxy(server.port, round_trip=TRIP) as far:
        url = f"postgresql://far:right@localhost:{far.port}/postgres?sslmode=verify-full&sslrootcert={shown}"
        assert first(f"{url}&connect_timeout=20&schema=far_{first.__name__}_{blocking}".lower(), blocking)


@pytest.mark.server
def test_a_certificate_that_nobody_signed_is_refused_and_the_error_names_it(
    secure: tuple[Server, str], tmp_path: Path
) -> None:
    server, _ = secure
    other = certificate(tmp_path, "another")
    url = f"postgresql://far:right@localhost:{server.port}/postgres?sslmode=verify-full&sslrootcert={other}"
    with interlock.connect(url) as client:
        with pytest.raises((StoreUnfit, StoreUnavailable), match="certificate"):
            client.lock("x").acquire(timeout=1.0)


@pytest.mark.server
def test_a_certificate_that_has_expired_is_refused_and_the_error_names_it(
    secure: tuple[Server, str], tmp_path: Path
) -> None:
    server, good = secure
    shown = expired(tmp_path, "expired")
    url = f"postgresql://far:right@localhost:{server.port}/postgres?sslmode=verify-full&sslrootcert={shown}"
    try:
        _show(server, shown)
        with interlock.connect(url) as client:
            with pytest.raises((StoreUnfit, StoreUnavailable), match="certificate"):  # libpq does not say why
                client.lock("x").acquire(timeout=1.0)
    finally:
        _show(server, Path(good))


def _show(server: Server, shown: Path) -> None:
    """Have the server show another certificate from now on, as an operator does."""
    for file, name in ((shown, "server.pem"), (shown.with_suffix(".key"), "server.key")):
        Path(server.data, name).write_bytes(file.read_bytes())
    server.sql("select pg_reload_conf()")
    wanted = ssl.PEM_cert_to_DER_cert(shown.read_text())
    until(lambda: _shown(server) == wanted)


def _shown(server: Server) -> bytes | None:
    with socket.create_connection(("127.0.0.1", server.port)) as plain:
        plain.sendall(struct.pack("!ii", 8, 80877103))  # ask for TLS
        assert plain.recv(1) == b"S"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain) as secured:
            return secured.getpeercert(True)


@pytest.mark.server
def test_a_rotated_password_is_said_and_the_lease_is_lost_in_time_and_nothing_is_left(
    secure: tuple[Server, str],
) -> None:
    server, _ = secure
    ttl = stretched(2.0)
    old, new = (
        f"postgresql://spun:{word}@127.0.0.1:{server.port}/postgres?schema=spun" for word in ("old", "new")
    )
    with interlock.connect(old, ttl=ttl) as client:
        lease = client.lock("x").acquire()
        assert lease is not None
        server.sql("alter role spun password 'new'")
        until_renewed(lease)  # connections that exist are as good as before
        lease.check()
        server.terminate_backends()
        with pytest.raises(StoreUnfit, match="password") as met:
            client.lock("y").acquire(timeout=PATIENCE)
        assert "old" not in str(met.value)
        until(lease.lost.is_set)
        with interlock.connect(new) as other:
            assert other.lock("x").acquire(timeout=PATIENCE)
        server.sql("alter role spun password 'old'")
        with client.lock("y", timeout=PATIENCE):  # the same client goes on
            pass


@pytest.mark.server
def test_on_a_full_disk_claims_are_refused_whole_and_leases_are_renewed_and_released() -> None:
    """The disk of the tables: a server that cannot write its log either ends, as it should."""
    with small_disk("24m") as disk, running() as server:
        folder = disk / "tables"
        folder.mkdir(mode=0o700)
        give(str(disk))
        server.sql(f"create tablespace small location '{folder}'")
        server.sql("create role app login")
        server.sql("grant create on database postgres to app")
        server.sql("grant create on tablespace small to app")
        server.sql("alter role app set default_tablespace = small")
        url = server.url(user="app")
        with (
            interlock.connect(url, ttl=stretched(2.0)) as client,
            interlock.connect(url, ttl=60) as other,
        ):
            held = client.lock("held").acquire()
            assert held is not None
            with full(disk):
                taken = list[interlock.Lease | None]()
                with pytest.raises(StoreUnfit, match=r"disk|space"):
                    while True:
                        taken.append(other.lock(f"{len(taken):0900}").acquire(blocking=False))
                assert all(taken)
                assert len(list(other.scan("0"))) == len(taken)
                until_renewed(held)
                held.check()
                for lease in taken:
                    assert lease is not None
                    lease.release()
                held.release()
            with other.lock("held", timeout=PATIENCE):
                pass


@pytest.mark.server
def test_a_wrong_password_is_told_once_and_nothing_is_said_of_claims(
    secure: tuple[Server, str], caplog: pytest.LogCaptureFixture
) -> None:
    server, shown = secure
    url = f"postgresql://far:wrong@localhost:{server.port}/postgres?sslmode=verify-full&sslrootcert={shown}"
    with interlock.connect(url, ttl=1) as client, pytest.raises(StoreUnfit, match="password"):
        client.lock("x").acquire()
    assert [record.getMessage() for record in caplog.records] == []
