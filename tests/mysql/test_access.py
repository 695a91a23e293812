"""What stands between a client and its server: TLS, a long way, a rotated password, a full disk, and many who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import interlock
from interlock.errors import InterlockError, StoreUnavailable, StoreUnfit
from interlock.store import IO_TIMEOUT
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.mysql import HASTY, Server, running
from interlock.testing.servers.proxy import Proxy
from interlock.testing.servers.small_disk import full, small_disk
from interlock.testing.servers.tls import certificate, expired
from tests.mysql.processlist import kill_all
from tests.patience import PATIENCE, until, until_renewed

TRIP = 0.3  # seconds: a round trip to the other side of the world
WAITERS = (10, 1000)


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
    """A server with TLS and a password, and the certificate that it shows."""
    shown = certificate(tmp_path_factory.mktemp("tls"), "mariadb")
    options = (f"--ssl-cert={shown}", f"--ssl-key={shown.with_suffix('.key')}")
    with running(*HASTY, *options) as server:
        server.run("create user far@'%' identified by 'right' require ssl", "grant all on app.* to far@'%'")
        assert first_sync(server.url(), True)
        yield server, str(shown)


@pytest.mark.server
@pytest.mark.parametrize("first", [first_sync, first_async])
@pytest.mark.parametrize("blocking", [True, False])
def test_the_first_lock_over_a_long_way_with_tls_and_a_password(
    secure: tuple[Server, str], first: Callable[[str, bool], bool], blocking: bool
) -> None:
    """Not to wait for the lock is not the same as not to wait for the network."""
    server, shown = secure
    with Proxy(server.port, round_trip=TRIP) as far:
        url = f"mysql://far:right@localhost:{far.port}/app?tls=verify&ssl_ca={shown}"
        assert first(url, blocking)


@pytest.mark.server
def test_a_certificate_that_nobody_signed_is_refused_and_the_error_names_tls(
    secure: tuple[Server, str],
) -> None:
    server, _ = secure
    with interlock.connect(f"mysql://far:right@localhost:{server.port}/app?tls=verify") as client:
        with pytest.raises(InterlockError, match=r"TLS failed .*certificate"):
            client.lock("x").acquire()


@pytest.mark.server
def test_a_certificate_that_has_expired_is_said_to_have(secure: tuple[Server, str], tmp_path: Path) -> None:
    server, good = secure
    files = (Path(good), Path(good).with_suffix(".key"))
    before, bad = [file.read_bytes() for file in files], expired(tmp_path, "expired")
    try:
        for file, other in zip(files, (bad, bad.with_suffix(".key")), strict=True):
            file.write_bytes(other.read_bytes())
        server.run("flush ssl")
        url = f"mysql://far:right@localhost:{server.port}/app?tls=verify&ssl_ca={bad}"
        with interlock.connect(url) as client, pytest.raises(InterlockError, match="expired"):
            client.lock("x").acquire()
    finally:
        for file, kept in zip(files, before, strict=True):
            file.write_bytes(kept)
        server.run("flush ssl")


@pytest.mark.server
def test_tls_is_used_where_the_server_offers_it(secure: tuple[Server, str]) -> None:
    server, _ = secure
    assert first_sync(
        f"mysql://far:right@localhost:{server.port}/app", True
    )  # the user is let in with TLS alone


@pytest.mark.server
def test_a_rotated_password_is_said_and_the_lease_is_lost_in_time_and_nothing_is_left() -> None:
    ttl = stretched(2.0)
    with running() as server:
        server.run("create user spun@'%' identified by 'old'", "grant all on app.* to spun@'%'")
        old, new = (f"mysql://spun:{word}@127.0.0.1:{server.port}/app" for word in ("old", "new"))
        with interlock.connect(old, ttl=ttl) as client:
            lease = client.lock("x").acquire()
            assert lease is not None
            server.run("alter user spun@'%' identified by 'new'")
            until_renewed(lease)  # connections that exist are as good as before
            lease.check()
            kill_all(server, user="spun")
            with pytest.raises(StoreUnfit, match="password is wrong") as met:
                client.lock("y").acquire(timeout=PATIENCE)
            assert "old" not in str(met.value)
            until(lease.lost.is_set)
            with interlock.connect(new) as other:
                assert other.lock("x").acquire(timeout=PATIENCE)
            server.run("alter user spun@'%' identified by 'old'")
            with client.lock("y", timeout=PATIENCE):  # the same client goes on
                pass


@pytest.mark.server
@pytest.mark.parametrize("user", ["root", "app"])
def test_a_read_only_server_grants_nothing_whoever_created_the_procedures(user: str) -> None:
    """Procedures run with the rights of root here, for whom `read_only` does not count."""
    ttl = stretched(1.0)
    with running() as server:
        server.run("create user app@'%'", "grant execute on app.* to app@'%'")
        assert first_sync(server.url(), True)
        url = f"mysql://{user}@127.0.0.1:{server.port}/app"
        with interlock.connect(url, ttl=ttl) as client:
            lease = client.lock("held").acquire()
            assert lease is not None
            server.run("set global read_only = 1")
            with pytest.raises(StoreUnavailable, match="takes no writes"):
                client.lock("new").acquire(timeout=0.3)
            until(lease.lost.is_set)
            assert not client.lock("new").locked()
            server.run("set global read_only = 0")
            with client.lock("held", timeout=PATIENCE):  # the same client goes on
                pass


@pytest.mark.server
def test_on_a_full_disk_claims_are_refused_whole_and_leases_are_renewed_and_released() -> None:
    with (
        small_disk("160m") as disk,
        running("--innodb-flush-log-at-trx-commit=1", parent=disk) as server,
        interlock.connect(server.url(), ttl=stretched(2.0)) as client,
        interlock.connect(server.url(), ttl=60) as other,
    ):
        held = client.lock("held").acquire()
        assert held is not None
        with full(disk):
            taken = list[interlock.Lease | None]()
            with pytest.raises(StoreUnfit, match="disk is full"):
                while True:
                    taken.append(other.lock(f"{len(taken):01000}").acquire(blocking=False))
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


@pytest.mark.parametrize("capacity", [1, 3])
def test_the_cost_of_a_hand_over_does_not_grow_with_the_queue(server: Server, capacity: int) -> None:
    """Counted in rows that the server reads for a release, which no load of the machine changes."""
    few, many = (_rows_read(server, waiters, capacity) for waiters in WAITERS)
    assert many <= few < 40


def _rows_read(server: Server, waiters: int, capacity: int) -> int:
    url = server.fresh_url()
    with interlock.connect(url) as client, client.lock("first"):
        pass
    prefix = url.partition("prefix=")[2]
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"insert into {prefix}claim select 'q', seq, concat('w', seq), seq <= {capacity}, 1, {capacity}, 600, "
            f"unix_timestamp() + 600, unix_timestamp(), 0, '', '', '' from seq_1_to_{waiters}"
        )
        cursor.execute("flush status")
        cursor.execute(f"call {prefix}v2_release('q', 'w1', 0, '', 0, 0)")
        assert cursor.fetchone()[0] == 1
        assert cursor.nextset() is not None
        cursor.execute("show session status like 'Handler_read%'")
        read = sum(int(count) for _, count in cursor.fetchall())
        cursor.execute(f"select count(*) from {prefix}claim where resource = 'q' and state = 1")
        assert cursor.fetchone() == (capacity,)
    return read


@pytest.mark.server
def test_a_wrong_password_is_told_once_and_nothing_is_said_of_claims(
    secure: tuple[Server, str], caplog: pytest.LogCaptureFixture
) -> None:
    server, shown = secure
    url = f"mysql://far:wrong@localhost:{server.port}/app?tls=verify&ssl_ca={shown}"
    with interlock.connect(url, ttl=1) as client, pytest.raises(StoreUnfit, match="password is wrong"):
        client.lock("x").acquire()
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.server
def test_a_register_on_a_read_only_server_says_so_within_its_time() -> None:
    """The change was sent three times, of 5 s each."""
    with running() as server, interlock.connect(server.url()) as client:
        register = client.register("settings")
        register.update(lambda _: 1)
        server.run("set global read_only = 1")
        try:
            took = at_most(IO_TIMEOUT + 1.0)
            with took, pytest.raises(StoreUnavailable, match="takes no writes") as failed:
                register.update(lambda _: 2)
        finally:
            server.run("set global read_only = 0")
        assert "may have been applied" not in str(failed.value)
        assert register.read().value == 1
