"""The keeper beside an engine of the user whose connections are in another role, or whose password changes: leases are renewed all the same."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

import interlock
import interlock.aio
from interlock.errors import StoreUnfit
from interlock.testing.lag import stretched
from interlock.testing.servers.mysql import Server
from tests.mysql.processlist import kill_all

TTL = 1.0


class Login:
    """A user whose password is changed: `password` is what the program finds in its vault."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.name = f"u{uuid4().hex[:8]}"
        self.password = "first"
        server.run(f"create user {self.name}@'%' identified by 'first'")

    def rotate(self) -> None:
        self.password = uuid4().hex
        self.server.run(f"alter user {self.name}@'%' identified by '{self.password}'")

    def engine(self, database: str = "app", **settings: Any) -> Any:
        return sqlalchemy.create_engine(self._url("pymysql", database), **settings)

    def async_engine(self, database: str = "app") -> Any:
        return create_async_engine(self._url("aiomysql", database))

    def _url(self, driver: str, database: str) -> str:
        return f"mysql+{driver}://{self.name}:{self.password}@127.0.0.1:{self.server.port}/{database}"

    def ask_the_vault(self, engine: Any) -> None:
        @event.listens_for(engine, "do_connect")
        def provide(dialect: Any, record: Any, arguments: Any, settings: Any) -> None:
            settings["password"] = self.password


@pytest.fixture
def login(server: Server) -> Login:
    """The administrator has created the procedures: they run with the rights of their definer, and without a role of theirs."""
    with interlock.connect(server.url()) as operator, operator.lock("first"):
        pass
    return Login(server)


@pytest.fixture
def in_role(login: Login) -> str:
    """The role that alone may do anything, with an odd name. The database itself must be open to the user at login."""
    role = f"{login.name}` locks"
    quoted = "`" + role.replace("`", "``") + "`"
    login.server.run(
        f"create role {quoted}",
        f"grant all on app.* to {quoted}",
        f"grant {quoted} to {login.name}@'%'",
        f"grant show view on app.* to {login.name}@'%'",
    )
    return quoted


def take_role(engine: Any, role: str) -> None:
    @event.listens_for(engine, "connect")
    def become(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"set role {role}")
        cursor.close()


def use(engine: Any, database: str) -> None:
    @event.listens_for(engine, "connect")
    def choose(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"use {database}")
        cursor.close()


def kept(lease: interlock.Lease) -> None:
    """The lease is renewed twice at least."""
    deadline, ttl = lease.deadline, lease.ttl
    while lease.deadline < deadline + 2 * ttl:
        lease.check()
        lease.lost.wait(0.05)


async def akept(lease: Any) -> None:
    deadline = lease.deadline
    while lease.deadline < deadline + 2 * lease.ttl:
        lease.check()
        await asyncio.sleep(0.05)


def test_an_engine_that_sets_its_role(login: Login, in_role: str) -> None:
    engine = login.engine(pool_size=2)
    take_role(engine, in_role)
    with interlock.connect(engine, ttl=stretched(TTL)) as client, client.lock(login.name) as lease:
        kept(lease)
        with interlock.connect(engine) as other:
            assert (
                other.lock(login.name).acquire(timeout=0.2) is None
            )  # its subscription listens in the role, too
    engine.dispose()


def test_an_async_engine_that_sets_its_role(login: Login, in_role: str) -> None:
    async def main() -> None:
        engine = login.async_engine()
        take_role(engine.sync_engine, in_role)
        async with interlock.aio.connect(engine, ttl=stretched(TTL)) as client:
            async with client.lock(login.name) as lease:
                await akept(lease)
        await engine.dispose()

    asyncio.run(main())


@pytest.fixture(params=["", "elsewhere"])
def made_for(request: pytest.FixtureRequest, login: Login) -> str:
    """The database that an engine's connections are made for, before they choose another one."""
    login.server.run("create database if not exists elsewhere", f"grant all on *.* to {login.name}@'%'")
    return str(request.param)


def test_an_engine_whose_sessions_choose_their_database(login: Login, made_for: str) -> None:
    engine = login.engine(made_for, pool_size=2)
    use(engine, "app")
    with interlock.connect(engine, ttl=stretched(TTL)) as client, client.lock(login.name) as lease:
        kept(lease)
        with interlock.connect(engine) as other, interlock.connect(login.server.url()) as operator:
            assert other.lock(login.name).acquire(timeout=0.2) is None
            assert operator.lock(login.name).acquire(blocking=False) is None
        login.ask_the_vault(engine)
        login.rotate()  # the keeper asks the engine how it connects now
        kill_all(login.server, user=login.name)
        kept(lease)
    engine.dispose()


def test_an_async_engine_whose_sessions_choose_their_database(login: Login, made_for: str) -> None:
    async def main() -> None:
        engine = login.async_engine(made_for)
        use(engine.sync_engine, "app")
        async with interlock.aio.connect(engine, ttl=stretched(TTL)) as client:
            async with client.lock(login.name) as lease:
                await akept(lease)
        await engine.dispose()

    asyncio.run(main())


@pytest.mark.parametrize("stopped_at", [1_000_000_000, 2_000_000_000])
def test_an_engine_whose_sessions_have_a_clock_that_stands_still_is_refused(
    login: Login, stopped_at: int
) -> None:
    """By a clock in the past its own claims have lapsed for everybody else, and by one in the future all others have for it."""
    login.server.run(f"grant all on app.* to {login.name}@'%'")
    settings = {"init_command": f"set timestamp = {stopped_at}"}
    engine = login.engine(connect_args=settings)
    with interlock.connect(engine) as client:
        with pytest.raises(StoreUnfit, match=r"clock of their own.*set timestamp = default"):
            client.lock(login.name).acquire(blocking=False)
    engine.dispose()


@pytest.mark.parametrize("when", ["before the first lock", "while a lease is held"])
def test_an_engine_whose_password_changes(login: Login, when: str) -> None:
    login.server.run(f"grant all on app.* to {login.name}@'%'")
    engine = login.engine(pool_size=2)
    login.ask_the_vault(engine)
    with interlock.connect(engine, ttl=stretched(TTL)) as client:
        if when == "before the first lock":  # the pool has connections that are older
            with closing(engine.raw_connection()):
                pass
            login.rotate()
        with client.lock(login.name, timeout=10) as lease:
            login.rotate()
            kill_all(login.server, user=login.name)
            kept(lease)
    engine.dispose()


def test_an_async_engine_whose_password_changes(login: Login) -> None:
    login.server.run(f"grant all on app.* to {login.name}@'%'")

    async def main() -> None:
        engine = login.async_engine()
        login.ask_the_vault(engine.sync_engine)
        async with interlock.aio.connect(engine, ttl=stretched(TTL)) as client:
            async with client.lock(login.name, timeout=10) as lease:
                login.rotate()
                kill_all(login.server, user=login.name)
                await akept(lease)
        await engine.dispose()

    asyncio.run(main())
