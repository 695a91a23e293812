"""A client made from a pool or an engine of the user, in a forked child."""

from __future__ import annotations

import asyncio

import psycopg_pool
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

import interlock
import interlock.aio
from interlock.errors import StoreUnfit
from interlock.testing.servers.postgresql import Server
from tests.forked_child import in_a_child
from tests.patience import PATIENCE
from tests.sql import forked

pytestmark = [
    pytest.mark.skipif(not forked.FORKS, reason="no fork here"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]
NUMBER = "select pg_backend_pid()"


def address(server: Server) -> str:
    return server.conninfo.replace("postgresql:", "postgresql+psycopg:")


def test_an_engine_gives_the_child_connections_of_its_own(server: Server) -> None:
    engine = sqlalchemy.create_engine(address(server))
    forked.check_engine(engine, NUMBER)
    engine.dispose()


def test_an_async_engine_gives_the_child_connections_of_its_own(server: Server) -> None:
    forked.check_async_engine(lambda: create_async_engine(address(server)), NUMBER)


def test_a_client_over_a_pool_that_the_parent_opened_is_refused_in_the_child(server: Server) -> None:
    with psycopg_pool.ConnectionPool(server.conninfo, min_size=1, max_size=2, open=True) as pool:
        with interlock.connect(pool) as client, client.lock("pool-of-parent") as lease:
            said = forked.said_in_a_child(lambda: client.lock("x").acquire(blocking=False))
            assert "StoreUnfit" in said
            assert "make a pool in the child" in said
            lease.renew()


def test_a_client_over_an_async_pool_that_the_parent_opened_is_refused_in_the_child(server: Server) -> None:
    async def main() -> None:
        async with psycopg_pool.AsyncConnectionPool(server.conninfo, min_size=1, max_size=2) as pool:
            async with interlock.aio.connect(pool) as client, client.lock("pool-of-parent") as lease:

                async def acquire() -> object:
                    return await client.lock("x").acquire(blocking=False)

                said = forked.said_in_a_child(lambda: asyncio.run(acquire()))
                assert "StoreUnfit" in said
                assert "make a pool in the child" in said
                await lease.renew()

    asyncio.run(main())


def test_a_pool_that_the_child_opens_is_the_childs(server: Server) -> None:
    pool = psycopg_pool.ConnectionPool(server.conninfo, min_size=1, max_size=2, open=False)
    with interlock.connect(pool) as client:

        def in_child() -> bool:
            pool.open()
            with client.lock("pool-of-child", timeout=PATIENCE):
                return True

        assert in_a_child(in_child) == "True"


def test_a_pool_that_the_parent_opened_is_refused_where_the_child_connects(server: Server) -> None:
    with psycopg_pool.ConnectionPool(server.conninfo, min_size=1, max_size=2, open=True) as pool:
        pool.wait()
        said = forked.said_in_a_child(lambda: interlock.connect(pool))
        assert StoreUnfit.__name__ in said
        assert "make a pool in the child" in said
