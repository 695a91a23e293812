"""What a crash of the server may undo: a release that lets nobody in, unless it is strict. Tokens rise."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

import interlock
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql import steps
from interlock.backends.sql.assembly import Assembly
from interlock.backends.sql.postgresql.open import dialect_of_url
from interlock.backends.sql.postgresql.statements import UNFLUSHED, statements
from interlock.model import Busy, Claim, Granted
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.postgresql import Server, fresh_schema, running
from interlock.urls import split
from tests.patience import PATIENCE, until


@pytest.fixture(scope="module")
def slow() -> Iterator[Server]:
    """A server that writes what nobody waits for to its disk seconds later."""
    with running("wal_writer_delay=10s") as server:
        yield server


@pytest.mark.parametrize("durability", ["durable", "strict"])
def test_a_release_may_be_undone_by_a_crash_unless_it_is_strict(durability: str, slow: Server) -> None:
    url = slow.url(fresh_schema(), durability=durability)
    with interlock.connect(url, ttl=stretched(3.0)) as client:
        with client.lock("x") as lease:
            pass
        slow.restart()
        assert bool(client.inspect("x").holders) == (durability == "durable")
        with client.lock("x", timeout=PATIENCE) as again:  # the claim that nobody renews lapses
            assert again.token > lease.token


@pytest.mark.parametrize("durability", ["durable", "strict"])
@pytest.mark.parametrize("capacity", [1, 2])
def test_a_hand_over_survives_a_crash(durability: str, capacity: int, slow: Server) -> None:
    """Asked below the clients, whose next renewal would wait for the disk, and take the release there with it."""
    url, ttl = slow.url(fresh_schema(), durability=durability), stretched(5.0)
    store = Assembly(dialect_of_url(split(url)), Threads()).store(asynchronous=False)
    one, two = (Claim("x", id, ttl, capacity, capacity, place_ttl=ttl) for id in ("one", "two"))
    first, second = drive(store.claim(one)), drive(store.claim(two))
    assert isinstance(first, Granted)
    assert isinstance(second, Busy)
    assert drive(store.release("x", "one"))
    slow.restart()
    (standing,) = drive(store.inspect("x")).standings
    assert standing.id == "two"
    assert standing.admitted
    assert standing.token > first.token
    drive(store.close())


@pytest.fixture(scope="module")
def careless() -> Iterator[Server]:
    """Its administrator has told it to wait for the disk at no commit."""
    with running("wal_writer_delay=10s", "synchronous_commit=off") as server:
        yield server


@pytest.mark.parametrize("durability", ["durable", "strict"])
def test_a_lease_survives_a_crash_of_a_server_that_waits_for_no_commit(
    durability: str, careless: Server
) -> None:
    url = careless.url(fresh_schema(), durability=durability)
    with interlock.connect(url, ttl=PATIENCE) as client:
        client.register("first").read()
        lease, shared = client.lock("x").acquire(), client.semaphore("s", capacity=2).acquire()
        written = client.register("r").update(lambda value: 1)
        assert lease
        assert shared
        careless.restart()
        assert [holder.token for holder in client.inspect("x").holders] == [lease.token]
        assert [holder.token for holder in client.inspect("s").holders] == [shared.token]
        assert client.register("r").read().version == written.version


@pytest.mark.parametrize("durability", UNFLUSHED)
@pytest.mark.parametrize("level", ["off", "local", "remote_write", "on", "remote_apply"])
def test_no_grant_lowers_the_level_of_its_session(durability: str, level: str, slow: Server) -> None:
    dialect = dialect_of_url(split(slow.url(fresh_schema(), durability=durability)))
    store = Assembly(dialect, Threads()).store(asynchronous=False)
    assert isinstance(drive(store.claim(Claim("x", "one", 60.0))), Granted)
    drive(store.close())
    with psycopg.connect(
        slow.url().partition("?")[0], options=f"-c synchronous_commit={level}"
    ) as connection:
        statement = statements(dialect.address.schema, durability)[steps.CLAIM]
        connection.execute("select 1")
        asked = connection.pgconn.exec_params(
            statement.sql, statement.pack(("y", "one", 60.0, 1, 1, True, 10.0, 1, "", "", ""))
        )
        assert asked.error_message == b""
        (found,) = connection.execute("show synchronous_commit").fetchall()[0]
    assert found == ("off" if durability == "relaxed" else "on" if level == "off" else level)


@pytest.mark.parametrize("durability", ["durable", "strict"])
def test_a_release_that_lingers_survives_a_crash(durability: str, slow: Server) -> None:
    url = slow.url(fresh_schema(), durability=durability)
    with interlock.connect(url, ttl=2.0) as client:
        with client.lock("x", min_hold=60):
            pass
        slow.restart()
        (holder,) = client.inspect("x").holders
        assert holder.lapses_in is not None
        assert holder.lapses_in > 10


def test_a_primary_without_its_synchronous_standby_renews_nothing() -> None:
    """It may have been replaced by that standby, which grants the lock to others."""
    ttl, lost = stretched(2.0), threading.Event()
    with running() as server, interlock.connect(server.url(), ttl=ttl) as client:
        assert client.lock("x", on_lost=lambda _: lost.set()).acquire()
        server.sql("alter system set synchronous_standby_names = 'gone'")
        server.sql("select pg_reload_conf()")
        until(lambda: server.sql("show synchronous_standby_names") == [("gone",)])
        with at_most(ttl, "it was renewed by a primary that may have been replaced"):
            assert lost.wait(PATIENCE)
        server.sql("alter system reset synchronous_standby_names")
        server.sql("select pg_reload_conf()")
        with client.lock("x", timeout=PATIENCE):
            pass
