"""Connections: how many a client uses, what happens when they end, and that no lease keeps one."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import time
from contextlib import closing, suppress
from itertools import count, cycle
from typing import Any

import pymysql
import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

import interlock
from interlock._core import timing
from interlock.errors import StoreUnavailable, StoreUnfit, Unsupported
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.mysql import HASTY, Server, running
from tests.mysql.processlist import kill_all
from tests.patience import PATIENCE, until, until_renewed

numbers = count()
BUDGET = 4 + 1 + 1  # calls, keeper, subscription; while the subscription is made, one more for its probe


def connections(server: Server) -> int:
    ((count,),) = server.run(
        "select count(*) from information_schema.processlist where id <> connection_id() and user = 'root' and db = 'app'"
    )
    return int(count)


@pytest.mark.server
def test_a_client_keeps_to_its_budget_however_many_threads_it_has() -> None:
    with (
        running() as server,
        interlock.connect(server.url()) as client,
        interlock.connect(server.url()) as other,
    ):
        with client.lock("first"):
            pass
        held = other.lock("x").acquire()
        assert held is not None
        most = 0

        def wait(number: int) -> None:
            with client.semaphore(f"s{number % 7}", capacity=3, timeout=PATIENCE):
                client.lock("x").acquire(timeout=stretched(0.5))

        threads = [threading.Thread(target=wait, args=(n,)) for n in range(40)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most = max(most, connections(server))
            time.sleep(0.05)
        assert most <= 2 * (BUDGET + 1)


@pytest.mark.server
def test_a_full_server_refuses_in_time_and_the_next_try_works() -> None:
    with running("--max-connections=12") as server:
        with interlock.connect(server.url()) as client:
            held = client.lock("held", ttl=3).acquire()
            assert held is not None
            with closing(_Crowd(server)):
                with interlock.connect(server.url(), connect_timeout=2) as late:
                    with pytest.raises(StoreUnavailable, match="max_connections"), at_most(3.0):
                        late.lock("x").acquire(timeout=1)
                until_renewed(held)  # the keeper's connection was made before the first grant
                held.check()
            with interlock.connect(server.url()) as late:
                assert late.lock("x").acquire(timeout=30) is not None


class _Crowd:
    """As many connections as the server gives."""

    def __init__(self, server: Server) -> None:
        self._all: list[Any] = []
        with suppress(pymysql.Error):
            while True:
                self._all.append(server.connect(database=""))

    def close(self) -> None:
        for connection in self._all:
            connection.close()


@pytest.mark.server
@pytest.mark.parametrize("how", ["connection", "query"])
def test_connections_that_an_operator_kills_are_replaced_and_no_lease_is_lost(how: str) -> None:
    with running() as server, interlock.connect(server.url(), ttl=stretched(10.0)) as client:
        lease = client.lock("held").acquire()
        assert lease is not None
        with interlock.connect(server.url()) as other:
            waiter = threading.Thread(target=lambda: other.lock("held").acquire(timeout=120))
            waiter.start()
            for _ in range(5):
                until(lambda: kill_all(server, how) > 0)
                with suppress(StoreUnavailable), client.lock("x", timeout=30):
                    pass
                lease.check()
            lease.release()
            waiter.join()


@pytest.mark.server
def test_a_connection_that_the_server_closed_while_idle_is_replaced_before_it_is_used() -> None:
    with running("--wait-timeout=1") as server, interlock.connect(server.url()) as client:
        with client.lock("x"):
            pass
        until(lambda: connections(server) == 0)
        for _ in range(3):
            with client.lock("x"):
                pass


def test_a_cancelled_call_leaves_nothing_and_its_connection_answers_nobody(server: Server, url: str) -> None:
    async def main() -> None:
        async with interlock.aio.connect(url) as client:
            async with client.lock("x"):
                pass
            for pause in range(40):
                task = asyncio.create_task(client.lock("x").acquire())
                await asyncio.sleep(pause * 0.0005)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    lease = await task
                    if lease:
                        await lease.release()
                assert (await client.register("r").read()).value is None  # not the row of the cancelled call
            async with client.lock("x", timeout=60) as lease:
                assert [holder.token for holder in (await client.inspect("x")).holders] == [lease.token]

    asyncio.run(main())


def test_an_engine_lends_a_connection_for_each_call_and_no_lease_keeps_one(server: Server) -> None:
    engine = sqlalchemy.create_engine(
        f"mysql+pymysql://root@127.0.0.1:{server.port}/app",
        pool_size=1,
        max_overflow=0,
        isolation_level="REPEATABLE READ",
    )
    with interlock.connect(engine) as one, interlock.connect(engine) as two:
        held = [one.lock(f"engine-{n}").acquire() for n in range(5)]
        assert all(held)
        assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        assert two.lock("engine-0").acquire(blocking=False) is None
        waiter = threading.Thread(target=lambda: two.lock("engine-0").acquire(timeout=60))
        waiter.start()
        until(lambda: one.inspect("engine-0").waiters)
        for lease in held:
            assert lease is not None
            lease.release()
        waiter.join()
        with engine.connect() as connection:  # as the user left it: own time limits, a transaction of its own
            assert connection.connection.driver_connection._read_timeout is None  # type: ignore[union-attr]
    engine.dispose()


@pytest.mark.parametrize("driver", ["aiomysql"])
def test_an_async_engine_lends_connections_too(server: Server, driver: str) -> None:
    async def main() -> None:
        engine = create_async_engine(
            f"mysql+{driver}://root@127.0.0.1:{server.port}/app", pool_size=2, max_overflow=0
        )
        async with interlock.aio.connect(engine) as client:
            async with client.lock("async-engine") as lease, client.lock("async-engine-2"):
                lease.check()
                assert await client.lock("async-engine").acquire(blocking=False) is None
        await engine.dispose()

    asyncio.run(main())


SETTINGS = {
    "latin1": {"connect_args": {"charset": "latin1"}},
    "sjis": {"connect_args": {"charset": "sjis"}},
    "serializable": {"isolation_level": "SERIALIZABLE"},
    "repeatable read": {"isolation_level": "REPEATABLE READ"},
    "autocommit, and nothing is reset": {"pool_reset_on_return": None, "isolation_level": "AUTOCOMMIT"},
    "sql_mode and time_zone": {
        "connect_args": {
            "init_command": "set sql_mode = 'ANSI,TRADITIONAL,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH', "
            "time_zone = '-11:00', collation_connection = 'utf8mb4_bin'"
        }
    },
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_name_is_the_same_lock_whatever_the_settings_of_an_engine_are(
    settings: dict[str, Any], server: Server
) -> None:
    name, word = "résumé", "über \U0001f512"
    engine = sqlalchemy.create_engine(
        f"mysql+pymysql://root@127.0.0.1:{server.port}/app", pool_size=1, **settings
    )
    with (
        interlock.connect(engine) as client,
        interlock.connect(f"mysql://root@127.0.0.1:{server.port}/app") as other,
    ):
        for _ in range(3):
            with client.lock(name) as lease:
                assert other.lock(name).acquire(blocking=False) is None
                assert [holder.token for holder in other.inspect(name).holders] == [lease.token]
                assert [holder.token for holder in client.inspect(name).holders] == [lease.token]
                assert 0 < client.inspect(name).holders[0].lapses_in < 40
            assert not client.inspect(name).holders
            with other.lock(name) as theirs:
                assert client.lock(name).acquire(blocking=False) is None
                assert [holder.token for holder in client.inspect(name).holders] == [theirs.token]
            client.register(name).update(lambda value: word)
            assert other.register(name).read().value == word == client.register(name).read().value
            other.register(name).update(lambda value: [value])
            assert client.register(name).read().value == [word]
            assert list(client.scan(name)) == []
    engine.dispose()


def engine_with(server: Server, statement: str) -> sqlalchemy.Engine:
    """An engine on a database of its own, in which each session that it lends has run this statement."""
    name = f"session_{next(numbers)}"
    server.run(f"create database {name}")
    engine = sqlalchemy.create_engine(f"mysql+pymysql://root@127.0.0.1:{server.port}/{name}", pool_size=1)

    @event.listens_for(engine, "checkout")
    def lent(connection: Any, *_: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    return engine


@pytest.mark.parametrize(
    "statement", ["set sql_select_limit = 0", "set collation_connection = 'utf16_general_ci'"]
)
def test_an_engine_may_create_the_tables_and_use_them_with_any_limit_and_collation(
    statement: str, server: Server
) -> None:
    engine = engine_with(server, statement)
    for _ in range(2):  # the second client finds the tables
        with (
            interlock.connect(engine) as client,
            client.lock("one", note="résumé") as lease,
            client.lock("two"),
        ):
            assert client.lock("one").acquire(blocking=False) is None
            assert [(holder.token, holder.note) for holder in client.inspect("one").holders] == [
                (lease.token, "résumé")
            ]
            assert list(client.scan("")) == ["one", "two"]
            client.register("seen").update(lambda value: "résumé")
            assert client.register("seen").read().value == "résumé"
            client.lock("three").acquire()
            assert len(client.evict("three", reason="the end")) == 1
    engine.dispose()


@pytest.mark.parametrize("mode", ["CHAIN", "RELEASE"])
def test_an_engine_whose_commits_begin_a_transaction_or_disconnect_is_refused_by_name(
    mode: str, server: Server
) -> None:
    engine = engine_with(server, f"set completion_type = '{mode}'")
    with interlock.connect(engine) as client, pytest.raises(StoreUnfit, match=f"completion_type={mode}"):
        client.lock("x").acquire()
    engine.dispose()


@pytest.mark.server
def test_our_own_sessions_do_not_take_over_what_would_change_our_statements() -> None:
    with running(*HASTY) as server:
        server.run("set global completion_type = CHAIN", "set global sql_select_limit = 0")
        with interlock.connect(server.url()) as client, client.lock("x", note="here") as lease:
            assert [holder.token for holder in client.inspect("x").holders] == [lease.token]


def test_an_engine_with_several_databases_is_refused(server: Server) -> None:
    names = ["one_tenant", "other_tenant"]
    for name in names:
        server.run(f"create database {name}")
        with interlock.connect(f"mysql://root@127.0.0.1:{server.port}/{name}") as client, client.lock("x"):
            pass
    turns = cycle(names)
    engine = sqlalchemy.create_engine(
        "mysql+pymysql://",
        creator=lambda: server.connect(database=next(turns)),
        poolclass=sqlalchemy.pool.NullPool,
    )
    with interlock.connect(engine) as client, pytest.raises(StoreUnfit, match="one_tenant and other_tenant"):
        for _ in range(4):
            client.lock("x").acquire()
            client.inspect("x")
    for name in names:
        server.run(f"drop database {name}")


def test_an_engine_that_leaves_transactions_open_is_refused_with_advice(server: Server) -> None:
    engine = sqlalchemy.create_engine(
        f"mysql+pymysql://root@127.0.0.1:{server.port}/app", pool_size=1, pool_reset_on_return=None
    )
    with interlock.connect(engine) as client, pytest.raises(StoreUnfit, match="pool_reset_on_return"):
        client.inspect("x")
        client.lock("x").acquire()
    engine.dispose()


def test_an_engine_of_the_other_kind_or_driver_is_refused(server: Server) -> None:
    engine = sqlalchemy.create_engine("mysql+pymysql://root@127.0.0.1/app")

    async def main() -> None:
        with pytest.raises(Unsupported, match="AsyncEngine"):
            interlock.aio.connect(engine)

    asyncio.run(main())


def test_a_forked_child_holds_nothing_and_does_not_disturb_its_parent(url: str) -> None:
    with interlock.connect(url) as client:
        with client.lock("x") as lease:
            child = os.fork()
            if not child:
                held = client.lock("x").acquire(blocking=False)
                os._exit(1 if held else 0)
            assert os.waitpid(child, 0)[1] == 0
            lease.check()
            assert client.inspect("x").holders[0].token == lease.token


@pytest.mark.server
def test_a_frozen_server_is_reported_in_time_and_nothing_is_left() -> None:
    with running() as server, interlock.connect(server.url(), ttl=30) as client:
        with client.lock("x"):
            pass
        with (
            server.frozen(),
            pytest.raises(StoreUnavailable, match="did not answer"),
            at_most(0.5 + timing.GRACE_S + 0.35),
        ):
            client.lock("x").acquire(timeout=0.5)
        with client.lock("x", timeout=60):  # what arrived late was taken back
            pass


def test_no_connection_loads_the_certificates_of_the_system(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take ten times as long as all else about a connection: PyMySQL does it for TLS that checks nothing."""

    def load(self: ssl.SSLContext, *args: object) -> None:
        raise AssertionError("all certificates of the system are loaded")

    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", load)
    with interlock.connect(url) as one, interlock.connect(url) as two, one.lock("x"):
        assert two.lock("x").acquire(timeout=0.1) is None


@pytest.mark.parametrize("name", ["slow.test", "two.test"])
def test_a_name_that_is_not_looked_up_and_an_address_that_is_silent_cost_no_more_than_the_time_to_connect(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look: Any = socket.getaddrinfo
    over = threading.Event()
    limit = stretched(2.0)

    def getaddrinfo(host: Any, *args: Any, **settings: Any) -> Any:
        if host == "slow.test":
            over.wait(PATIENCE)
        if host == "two.test":
            silent = look("127.0.0.2", *args, **settings)
            return silent + look("127.0.0.1", *args, **settings)
        return look(host, *args, **settings)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with socket.socket() as deaf:  # its queue is full, so it answers no more
        deaf.bind(("127.0.0.2", server.port))
        deaf.listen(0)
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(("127.0.0.2", server.port))
        url = server.url().replace("127.0.0.1", name)
        with interlock.connect(url, connect_timeout=limit) as client, at_most(limit + 0.3):
            if name == "two.test":
                with client.lock("two", timeout=10):
                    pass
            else:
                with pytest.raises(StoreUnavailable):
                    client.lock("slow").acquire(timeout=10)
        over.set()
        for one in crowd:
            one.close()
