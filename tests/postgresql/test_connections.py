"""Connections: of a URL, of the user's own pool or engine, through a pooler, at the limit of the server, and when they end."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import psycopg
import psycopg_pool
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

import interlock
import interlock.aio
from interlock._core import timing
from interlock._core.drive import drive
from interlock.backends.sql.postgresql import dialect as postgresql
from interlock.errors import ClientClosed, StoreUnavailable, StoreUnfit, Unsupported
from interlock.model import Claim
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.postgresql import Bouncer, Server, fresh_schema, running, steady_bouncer
from tests.full import FULL
from tests.patience import PATIENCE, until, until_renewed


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server that tests may break."""
    with running("max_connections=30", "superuser_reserved_connections=3") as server:
        yield server


def sessions(server: Server, like: str = "interlock%") -> int:
    ((count,),) = server.sql(
        "select count(*) from pg_stat_activity where application_name like %s and pid <> pg_backend_pid()",
        like,
    )
    return int(count)


def _taken(client: interlock.Client, name: str) -> interlock.Lease | None:
    """A lease, once the server answers in time again."""
    try:
        return client.lock(name).acquire(blocking=False)
    except StoreUnavailable:
        return None


# ---- the user's own pool or engine -----------------------------------------------


def _use(client: interlock.Client) -> None:
    with client.lock("own", timeout=10) as lease:
        assert lease.token > 0
        waiter = threading.Thread(target=lambda: client.lock("own", timeout=PATIENCE).acquire())
        waiter.start()
        until(lambda: client.inspect("own").waiters)
    waiter.join()
    client.evict("own", reason="the end")
    client.register("r").update(lambda value: "v")
    assert client.register("r").read().value == "v"


async def _ause(client: interlock.aio.Client) -> None:
    async with client.lock("own-async", timeout=10) as lease:
        assert lease.token > 0
        waiter = asyncio.create_task(client.lock("own-async", timeout=PATIENCE).acquire())
        while not (await client.inspect("own-async")).waiters:
            await asyncio.sleep(0.01)
    taken = await waiter
    assert taken
    await taken.release()


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_a_pool_of_psycopg_lends_a_connection_for_each_call_at_any_isolation_level(
    level: str, server: Server
) -> None:
    options = f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"
    with psycopg_pool.ConnectionPool(
        server.conninfo, min_size=1, max_size=2, kwargs={"options": options}
    ) as pool:
        with interlock.connect(pool) as client:
            _use(client)
            with client.lock("held"):
                assert pool.get_stats()["pool_available"] == pool.get_stats()["pool_size"]
        with pool.connection() as connection:
            assert connection.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP"])
def test_a_name_is_the_same_lock_in_a_pool_with_another_encoding(encoding: str, server: Server) -> None:
    name, word = "résumé", "über \U0001f512"
    with psycopg_pool.ConnectionPool(
        server.conninfo, min_size=1, max_size=2, kwargs={"client_encoding": encoding}
    ) as pool:
        with interlock.connect(pool) as client, interlock.connect(server.conninfo) as other:
            with client.lock(name) as lease:
                assert other.lock(name).acquire(blocking=False) is None
                assert [holder.token for holder in other.inspect(name).holders] == [lease.token]
            client.register(name).update(lambda value: word)
            assert other.register(name).read().value == word == client.register(name).read().value
            _use(client)
        with pool.connection() as connection:
            assert connection.execute("show client_encoding").fetchone() == (encoding,)


def test_array_nulls_that_are_off_lose_no_lease(server: Server) -> None:
    with psycopg_pool.ConnectionPool(
        server.conninfo, min_size=1, max_size=2, kwargs={"options": "-c array_nulls=off"}
    ) as pool:
        with interlock.connect(pool, ttl=stretched(3.0)) as client:
            several = client.semaphore("nulls-s", capacity=3)
            shared, lease = several.acquire(permits=3), client.lock("nulls").acquire()
            elected = client.election("nulls-e").campaign("word")
            assert lease
            assert shared
            assert elected
            lease.renew()
            several.release()
            until_renewed(lease, shared, elected)
            assert [holder.permits for holder in client.inspect("nulls-s").holders] == [2]
            assert [holder.note for holder in client.inspect("nulls-e").holders] == ["word"]


def test_an_async_pool_of_psycopg_lends_its_connections(server: Server) -> None:
    async def main() -> None:
        async with psycopg_pool.AsyncConnectionPool(server.conninfo, min_size=1, max_size=2) as pool:
            async with interlock.aio.connect(pool) as client:
                await _ause(client)

    asyncio.run(main())


def test_an_engine_of_sqlalchemy_lends_its_connections(server: Server) -> None:
    engine = sqlalchemy.create_engine(
        server.conninfo.replace("postgresql:", "postgresql+psycopg:"),
        pool_size=2,
        isolation_level="SERIALIZABLE",
    )
    try:
        with interlock.connect(engine) as client:
            _use(client)
        with engine.begin() as connection:
            assert connection.execute(sqlalchemy.text("select 1")).scalar() == 1
    finally:
        engine.dispose()


def test_an_engine_with_several_databases_is_refused(server: Server) -> None:
    names = ["one_tenant", "other_tenant"]
    for name in names:
        server.sql(f"create database {name}")
        with interlock.connect(server.conninfo.removesuffix("postgres") + name) as client, client.lock("x"):
            pass
    turns = cycle(names)
    engine = sqlalchemy.create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(server.conninfo, dbname=next(turns)),
        poolclass=sqlalchemy.pool.NullPool,
    )
    with interlock.connect(engine) as client, pytest.raises(StoreUnfit, match="one_tenant and other_tenant"):
        for _ in range(4):
            client.lock("x").acquire()
            client.inspect("x")
    for name in names:
        server.sql(f"drop database {name} with (force)")


def test_an_engine_whose_connections_are_all_in_use_keeps_no_caller_beyond_its_time(server: Server) -> None:
    url = server.conninfo.replace("postgresql:", "postgresql+psycopg:")
    engine = sqlalchemy.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=2 * PATIENCE)
    with interlock.connect(engine) as client:
        with client.lock("all-in-use") as lease, engine.connect():
            for timeout in (1.0, 0.2):
                with (
                    pytest.raises(StoreUnavailable, match="no connection from the pool"),
                    at_most(timeout + 1.5),
                ):
                    client.lock("another").acquire(timeout=timeout)
            lease.check()
        with client.lock("another", timeout=10):
            pass
    engine.dispose()


def test_an_async_engine_of_sqlalchemy_lends_its_connections(server: Server) -> None:
    async def main() -> None:
        engine = create_async_engine(server.conninfo.replace("postgresql:", "postgresql+psycopg:"))
        async with interlock.aio.connect(engine) as client:
            await _ause(client)
        await engine.dispose()

    asyncio.run(main())


def test_a_pool_of_the_other_kind_is_refused_in_one_sentence(server: Server) -> None:
    with psycopg_pool.ConnectionPool(server.conninfo, min_size=0, max_size=1, open=True) as pool:

        async def connect() -> None:
            interlock.aio.connect(pool)

        with pytest.raises(Unsupported, match="AsyncConnectionPool"):
            asyncio.run(connect())


def test_an_engine_over_another_driver_is_refused_in_one_sentence() -> None:
    class Dialect:
        name, driver = "postgresql", "psycopg2"

    class Engine:
        dialect = Dialect()

    Engine.__module__ = "sqlalchemy.engine"
    with pytest.raises(Unsupported, match="psycopg2"):
        interlock.connect(Engine())  # type: ignore[arg-type]


# ---- how many --------------------------------------------------------------------


def test_a_client_uses_at_most_its_budget_of_connections(own: Server) -> None:
    """Four for calls, one for the keeper, one for the listener."""
    with interlock.connect(own.url()) as client:
        threads = [threading.Thread(target=lambda: _pairs(client)) for _ in range(24)]
        most = 0
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most = max(most, sessions(own))
        assert 2 <= most <= 6
    until(lambda: sessions(own) == 0)


def _pairs(client: interlock.Client) -> None:
    for _ in range(5):
        with client.lock("x", timeout=PATIENCE):
            pass


def _listening(server: Server) -> int:
    return len(server.sql("select 1 from pg_stat_activity where query like 'listen%%'"))


def test_clients_of_one_process_share_the_connection_that_listens(own: Server) -> None:
    clients = [interlock.connect(own.url(connections=1)) for _ in range(4)]
    holder, got, closed = clients[0], list[Any](), list[int]()
    held = [holder.lock(f"x{number}").acquire() for number in range(4)]

    def wait(number: int) -> None:
        try:
            got.append(clients[number].lock(f"x{number}", timeout=PATIENCE).acquire())
        except ClientClosed:
            closed.append(number)

    waiters = [threading.Thread(target=wait, args=[number]) for number in (1, 2, 3)]
    for waiter in waiters:
        waiter.start()
    until(lambda: all(holder.inspect(f"x{number}").waiters for number in (1, 2, 3)))
    until(lambda: _listening(own) == 1)
    assert (
        sessions(own) <= 4 * 2 + 1
    )  # one for calls and one for the keeper of each, and the one that listens
    clients.pop().close()  # of a thread that waits, which learns of it; the others do not
    with at_most(5.0):
        until(lambda: closed == [3])
    for lease in held:
        assert lease
        lease.release()
    with at_most(5.0):
        until(lambda: len(got) == 2)
    assert _listening(own) == 1
    for client in clients:
        client.close()
    until(lambda: sessions(own) == 0)


def test_at_the_limit_of_connections_a_lease_is_kept_and_others_are_told(own: Server) -> None:
    """The keeper has its connection before anything is granted, so that a full server cannot cost a lease."""
    ttl = stretched(1.5)
    with interlock.connect(own.url(connections=1)) as client, client.lock("held", ttl=ttl) as lease:
        hogs = []
        own.sql("create role plain login") if not own.sql(
            "select 1 from pg_roles where rolname = 'plain'"
        ) else None
        with pytest.raises(psycopg.OperationalError, match="connection"):
            while True:
                hogs.append(psycopg.connect(own.conninfo.replace("postgres@", "plain@", 1)))
        try:
            with pytest.raises(StoreUnavailable, match="connection"):
                with interlock.connect(own.url(user="plain")) as other:
                    other.lock("other").acquire(blocking=False)
            time.sleep(2 * ttl)
            lease.check()
        finally:
            for hog in hogs:
                hog.close()
    with interlock.connect(own.url()) as other:
        until(partial(_taken, other, "other"))


# ---- connections that end --------------------------------------------------------


def test_connections_ended_by_an_operator_cost_nothing(own: Server) -> None:
    with interlock.connect(own.url()) as client, client.lock("held", ttl=stretched(2.0)) as lease:
        for _ in range(5):
            assert own.terminate_backends() > 0
            with client.lock("x", timeout=PATIENCE):
                pass
        lease.check()


def test_a_waiter_is_woken_after_its_listener_was_ended(own: Server) -> None:
    with interlock.connect(own.url()) as one, interlock.connect(own.url()) as two:
        with one.lock("x"):
            got: list[Any] = []
            waiter = threading.Thread(target=lambda: got.append(two.lock("x", timeout=PATIENCE).acquire()))
            waiter.start()
            until(lambda: one.inspect("x").waiters)
            until(lambda: own.sql("select 1 from pg_stat_activity where query like 'listen%%'"))
            own.terminate_backends()
        waiter.join()
        assert got[0]
        got[0].release()


def test_a_restarted_server_keeps_leases_and_tokens(own: Server) -> None:
    with interlock.connect(own.url()) as client:
        with client.lock("held", ttl=30) as lease:
            own.restart()
            lease.check()
            assert client.inspect("held").holders[0].token == lease.token
        with client.lock("held") as next_lease:
            assert next_lease.token > lease.token


def test_a_frozen_server_ends_no_call_later_than_promised(own: Server) -> None:
    with interlock.connect(own.url()) as client:
        with client.lock("x"):
            pass
        with own.frozen(), at_most(1.0 + timing.GRACE_S + 0.35):
            with pytest.raises((StoreUnavailable, interlock.AcquireTimeout)):
                client.lock("x", timeout=1.0).acquire()
                raise interlock.AcquireTimeout("x", 1.0)
        until(partial(_taken, client, "x"))


def test_a_read_only_server_is_a_doubt_and_is_asked_again(own: Server) -> None:
    with interlock.connect(own.url()) as client:
        with client.lock("x"):
            pass
        doubts: list[int] = []
        client._core.store.on_doubt(lambda: doubts.append(1))
        own.sql("alter system set default_transaction_read_only = on")
        own.sql("select pg_reload_conf()")
        until(lambda: own.sql("show default_transaction_read_only") == [("on",)])
        try:
            with pytest.raises(StoreUnavailable, match="read-only"):
                drive(client._core.store.claim(Claim("x", "id", 30.0), 1.0))
        finally:
            own.sql("alter system reset default_transaction_read_only")
            own.sql("select pg_reload_conf()")
        assert doubts
        until(partial(_taken, client, "x"))


def test_a_wrong_password_or_database_is_named(server: Server) -> None:
    with pytest.raises(StoreUnfit, match="nowhere"):
        with interlock.connect(server.url().replace("/postgres?", "/nowhere?")) as client, client.lock("x"):
            pass


def test_a_cancelled_call_never_answers_the_next(url: str) -> None:
    async def main() -> None:
        async with interlock.aio.connect(url) as client:
            for number in range(200 if FULL else 70):
                task = asyncio.create_task(client.lock(f"n{number % 3}").acquire(timeout=5))
                for _ in range(number % 7):
                    await asyncio.sleep(0)
                if number % 5 == 0:
                    await asyncio.sleep(0.002)
                task.cancel()
                try:
                    lease = await task
                    assert lease
                    await lease.release()
                except asyncio.CancelledError:
                    pass
                assert (await client.inspect(f"n{number % 3}")).resource == f"n{number % 3}"
            assert [name async for name in client.scan()] == []

    asyncio.run(main())


def test_a_forked_child_leaves_the_connections_of_its_parent_alone(url: str) -> None:
    with interlock.connect(url) as client, client.lock("held") as lease:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with client.lock("child", timeout=PATIENCE):
                    code = 0 if not client.lock("held").acquire(blocking=False) else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        lease.check()
        with client.lock("parent"):
            pass
    with interlock.connect(url) as client:
        assert client.lock("held").acquire(blocking=False)


def _waits(client: interlock.Client) -> bool:
    return bool(client.inspect("x").waiters)


def _polls(client: interlock.Client) -> bool:
    store: Any = client._core.store
    return bool(store._listener.polling)


# ---- a pooler --------------------------------------------------------------------


def test_behind_a_transaction_pooler_waiters_poll_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    postgresql._said.clear()
    url = steady_bouncer().url(fresh_schema())
    with caplog.at_level(logging.WARNING, "interlock"):
        for _ in range(2):
            with interlock.connect(url) as one, interlock.connect(url) as two:
                got: list[Any] = []
                lease = one.lock("x").acquire()
                assert lease
                lock = two.lock("x", timeout=PATIENCE)
                waiter = threading.Thread(target=lambda lock=lock, got=got: got.append(lock.acquire()))
                waiter.start()
                until(partial(_waits, one))
                until(partial(_polls, two))
                lease.release()
                waiter.join()
                got[0].release()
    assert len([record for record in caplog.records if "pooler" in record.getMessage()]) == 1


def test_behind_a_session_pooler_notifications_arrive(server: Server) -> None:
    bouncer = Bouncer(server, "session")
    bouncer.start()
    try:
        url = bouncer.url(fresh_schema())
        with interlock.connect(url) as one, interlock.connect(url) as two:
            with one.lock("x"):
                waiter = threading.Thread(target=lambda: two.lock("x", timeout=PATIENCE).acquire())
                waiter.start()
                until(lambda: two._core.store._listener.generation)  # type: ignore[attr-defined]
            waiter.join()
            assert not two._core.store._listener.polling  # type: ignore[attr-defined]
    finally:
        bouncer.kill()


def test_an_old_open_transaction_makes_nothing_wrong(server: Server, url: str) -> None:
    with psycopg.connect(server.conninfo) as old:
        old.execute("set transaction isolation level repeatable read")
        old.execute("select count(*) from pg_class")
        tokens = []
        with interlock.connect(url) as client:
            for _ in range(50):
                with client.lock("x") as lease:
                    tokens.append(lease.token)
        assert tokens == sorted(set(tokens))


def test_limits_on_idle_sessions_and_transactions_cost_nothing() -> None:
    settings = (
        "idle_in_transaction_session_timeout=200ms",
        "idle_session_timeout=200ms",
        "statement_timeout=2s",
    )
    with running(*settings) as server:
        with interlock.connect(server.url()) as client, client.lock("held", ttl=3) as lease:
            for _ in range(4):
                time.sleep(0.3)
                with client.lock("x", timeout=PATIENCE):
                    pass
            lease.check()
