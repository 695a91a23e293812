"""The keeper beside a pool of the user whose connections are in another role, or whose password changes: leases are renewed all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import psycopg_pool
import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

import interlock
import interlock.aio
from interlock.testing.lag import stretched
from interlock.testing.servers.postgresql import Server, give
from tests.patience import until

RULES = """host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""
TTL = 1.0


@pytest.fixture(scope="module")
def strict() -> Iterator[Server]:
    """A server that wants passwords of everybody but its operator."""
    server = Server()
    Path(server.data, "pg_hba.conf").write_text(RULES)
    give(server.folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


class Login:
    """A user who may log in, and whose password is changed: `password` is what the program finds in its vault."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.name = f"u{uuid4().hex[:8]}"
        self.password = "first"
        server.sql(f"create role {self.name} login noinherit password 'first'")

    def rotate(self) -> None:
        self.password = uuid4().hex
        self.server.sql(f"alter role {self.name} password '{self.password}'")

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "host": "127.0.0.1",
            "port": self.server.port,
            "dbname": "postgres",
            "user": self.name,
            "password": self.password,
        }

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{self.name}@127.0.0.1:{self.server.port}/postgres"

    def end_sessions(self) -> None:
        self.server.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", self.name
        )


@pytest.fixture
def login(strict: Server) -> Login:
    return Login(strict)


def kept(lease: interlock.Lease) -> None:
    """The lease is renewed twice at least."""
    deadline, ttl = lease.deadline, lease.ttl
    while lease.deadline < deadline + 2 * ttl:
        lease.check()
        lease.lost.wait(0.05)


@pytest.fixture
def in_role(login: Login) -> str:
    """The role that alone may use the tables, which its members must take."""
    role = f"{login.name}_locks"
    login.server.sql(f"create role {role}")
    login.server.sql(f"grant create on database postgres to {role}")
    login.server.sql(f"grant {role} to {login.name}")
    login.server.sql("drop schema if exists interlock cascade")
    return role


def test_a_pool_that_sets_its_role(login: Login, in_role: str) -> None:
    def configure(connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"set role {in_role}".encode())
        connection.commit()

    pool = psycopg_pool.ConnectionPool(
        kwargs=login.settings, min_size=1, max_size=2, open=True, configure=configure
    )
    with pool, interlock.connect(pool, ttl=stretched(TTL)) as client, client.lock("x") as lease:
        kept(lease)
        with interlock.connect(pool) as other:
            assert other.lock("x").acquire(timeout=0.2) is None


def test_an_async_pool_that_sets_its_role(login: Login, in_role: str) -> None:
    async def configure(connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute(f"set role {in_role}".encode())
        await connection.commit()

    async def main() -> None:
        pool = psycopg_pool.AsyncConnectionPool(
            kwargs=login.settings, min_size=1, max_size=2, open=False, configure=configure
        )
        async with pool, interlock.aio.connect(pool, ttl=stretched(TTL)) as client, client.lock("x") as lease:
            deadline = lease.deadline
            while lease.deadline < deadline + 2 * lease.ttl:
                lease.check()
                await asyncio.sleep(0.05)

    asyncio.run(main())


@pytest.mark.parametrize("idle", ["its connections are old", "its connections are ended"])
def test_an_engine_whose_password_changes(login: Login, idle: str) -> None:
    engine = sqlalchemy.create_engine(login.url, pool_size=2)
    login.server.sql(f"grant create on database postgres to {login.name}")

    @event.listens_for(engine, "do_connect")
    def provide(dialect: Any, record: Any, arguments: Any, settings: Any) -> None:
        settings["password"] = login.password

    _keeps_its_lease(engine, login, idle)
    engine.dispose()


def test_a_pool_whose_password_changes(login: Login) -> None:
    login.server.sql(f"grant create on database postgres to {login.name}")
    pool: Any = psycopg_pool.ConnectionPool(kwargs=lambda: login.settings, min_size=1, max_size=2, open=True)
    with pool:
        _keeps_its_lease(pool, login, "its connections are ended")


def test_an_async_engine_whose_password_changes(login: Login) -> None:
    login.server.sql("drop schema if exists interlock cascade")
    login.server.sql(f"grant create on database postgres to {login.name}")

    async def main() -> None:
        engine = create_async_engine(login.url, pool_size=2)

        @event.listens_for(engine.sync_engine, "do_connect")
        def provide(dialect: Any, record: Any, arguments: Any, settings: Any) -> None:
            settings["password"] = login.password

        async with interlock.aio.connect(engine, ttl=stretched(TTL)) as client, client.lock("x") as lease:
            login.rotate()
            login.end_sessions()
            deadline = lease.deadline
            while lease.deadline < deadline + 2 * lease.ttl:
                lease.check()
                await asyncio.sleep(0.05)
        await engine.dispose()

    asyncio.run(main())


def _keeps_its_lease(lender: Any, login: Login, idle: str) -> None:
    login.server.sql("drop schema if exists interlock cascade")
    with interlock.connect(lender, ttl=stretched(TTL)) as client:
        if idle == "its connections are old":  # and the keeper makes its first one now
            with closing(lender.raw_connection()):
                pass
            login.rotate()
        with client.lock("x", timeout=10) as lease:
            login.rotate()
            if idle == "its connections are ended":
                login.end_sessions()
            else:
                login.server.sql(
                    "select pg_terminate_backend(pid) from pg_stat_activity where usename = %s and application_name = 'interlock'",
                    login.name,
                )
            kept(lease)
        until(lambda: not client.inspect("x").holders)
