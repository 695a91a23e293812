"""Guards for asyncio: the same checks, awaited, through psycopg, aiomysql and SQLAlchemy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

import interlock
from interlock import StaleToken, guards
from tests.guards.desks import PLACES, Place

Run = Callable[[str], Any]

# As programs without type checkers use them.
aiomysql: Any = import_module("aiomysql")
psycopg: Any = import_module("psycopg")


@asynccontextmanager
async def of_psycopg(place: Place) -> AsyncIterator[tuple[Any, Run]]:
    async with await psycopg.AsyncConnection.connect(**place.settings) as connection:

        async def run(sql: str) -> Any:
            cursor: Any = await connection.execute(sql)
            return await cursor.fetchone() if cursor.description else None

        yield connection, run


@asynccontextmanager
async def of_psycopg_pipelines(place: Place) -> AsyncIterator[tuple[Any, Run]]:
    """In pipeline mode a statement is sent, and its answer read later."""
    async with await psycopg.AsyncConnection.connect(**place.settings) as connection:
        async with connection.pipeline() as pipeline:

            async def run(sql: str) -> Any:
                cursor = await connection.execute(sql)
                await pipeline.sync()
                return await cursor.fetchone() if cursor.description else None

            yield connection, run


@asynccontextmanager
async def of_psycopg_blocks(place: Place) -> AsyncIterator[tuple[Any, Run]]:
    async with await psycopg.AsyncConnection.connect(**place.settings, autocommit=True) as connection:

        async def run(sql: str) -> Any:
            cursor: Any = await connection.execute(sql)
            return await cursor.fetchone() if cursor.description else None

        async with connection.transaction():
            yield connection, run


@asynccontextmanager
async def of_aiomysql(place: Place) -> AsyncIterator[tuple[Any, Run]]:
    settings = {**place.settings, "db": place.settings["database"]}
    del settings["database"]
    connection = await aiomysql.connect(**settings)

    async def run(sql: str) -> Any:
        async with connection.cursor() as cursor:
            await cursor.execute(sql)
            return await cursor.fetchone()

    try:
        yield connection, run
        await connection.commit()
    finally:
        connection.close()


@asynccontextmanager
async def of_session(place: Place) -> AsyncIterator[tuple[Any, Run]]:
    engine = create_async_engine(place.url.replace("+pymysql", "+aiomysql"), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():

        async def run(sql: str) -> Any:
            result: Any = await session.execute(text(sql))
            return tuple(result.one()) if result.returns_rows else None

        yield session, run


@asynccontextmanager
async def of_connection(place: Place) -> AsyncIterator[tuple[Any, Run]]:
    engine = create_async_engine(place.url.replace("+pymysql", "+aiomysql"), poolclass=NullPool)
    async with engine.begin() as connection:

        async def run(sql: str) -> Any:
            result: Any = await connection.execute(text(sql))
            return tuple(result.one()) if result.returns_rows else None

        yield connection, run


KINDS = [
    ("postgresql", of_psycopg),
    ("postgresql", of_psycopg_blocks),
    ("postgresql", of_psycopg_pipelines),
    ("postgresql", of_session),
    ("postgresql", of_connection),
    ("mariadb", of_aiomysql),
    ("mariadb", of_session),
    ("mariadb", of_connection),
]

Open = Callable[[], AbstractAsyncContextManager[tuple[Any, Run]]]


@pytest.fixture(params=KINDS, ids=lambda kind: f"{kind[0]}-{kind[1].__name__}")
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Begins a transaction at one bank; it is committed at the end."""
    database, kind = request.param
    place = PLACES[database](tmp_path)
    return lambda: kind(place)


async def balance(opened: Open) -> int:
    async with opened() as (_, run):
        return int((await run("select balance from account where id = 1"))[0])


async def pay(opened: Open, token: int) -> None:
    async with opened() as (session, run):
        await guards.sql.aguard(session, "account:1", token)
        await run("update account set balance = balance - 10 where id = 1")


def test_a_lower_token_is_refused_and_the_transaction_dies(opened: Open) -> None:
    async def main() -> None:
        await pay(opened, 33)
        await pay(opened, 34)
        with pytest.raises(StaleToken) as refusal:
            async with opened() as (session, run):
                await run("update account set balance = 0 where id = 1")
                await guards.sql.aguard(session, "account:1", 33)
        assert refusal.value.accepted == 34
        assert await balance(opened) == 80

    asyncio.run(main())


def test_a_program_that_swallows_the_refusal_commits_nothing_of_that_transaction(opened: Open) -> None:
    async def main() -> None:
        await pay(opened, 34)
        refused = False
        with suppress(Exception):  # some libraries complain of the commit
            async with opened() as (session, run):
                await run("update account set balance = 0 where id = 1")
                try:
                    await guards.sql.aguard(session, "account:1", 33)
                except StaleToken:
                    refused = True
        assert refused
        assert await balance(opened) == 90

    asyncio.run(main())


def test_rows_and_marks_are_guarded_too(opened: Open) -> None:
    async def main() -> None:
        row: dict[str, Any] = {"table": "account", "where": {"id": 1}}
        async with opened() as (session, _):
            await guards.sql.aguard_row(session, "account:1", 34, **row)
            await guards.sql.aupdate_row(session, "account:1", 34, **row, changes={"balance": 60})
        async with opened() as (session, _):
            mark = await guards.sql.amark(session, "account:1", 34, **row)
        async with opened() as (session, _):
            await guards.sql.aupdate_marked(session, mark, {"balance": 50})
        for late in (
            lambda session: guards.sql.aguard_row(session, "account:1", 33, **row),
            lambda session: guards.sql.aupdate_marked(session, mark, {"balance": 0}),
        ):
            with pytest.raises(StaleToken):
                async with opened() as (session, _):
                    await late(session)
        assert await balance(opened) == 50

    asyncio.run(main())


def test_a_lease_of_the_async_api_is_accepted(opened: Open, tmp_path: Path) -> None:
    async def main() -> None:
        async with interlock.aio.connect(f"sqlite:///{tmp_path}/locks.db") as client:
            async with client.lock("account:1") as lease:
                async with opened() as (session, _):
                    await guards.sql.aguard(session, lease)
            with pytest.raises(interlock.NotHeld):
                async with opened() as (session, _):
                    await guards.sql.aguard(session, lease)

    asyncio.run(main())


def test_a_blocking_guard_says_that_it_must_be_awaited(opened: Open) -> None:
    async def main() -> None:
        async with opened() as (session, _):
            with pytest.raises(TypeError, match="aguard"):
                guards.sql.guard(session, "account:1", 33)

    asyncio.run(main())


def test_the_fence_table_is_created(tmp_path: Path) -> None:
    async def main(place: Place) -> None:
        async with await psycopg.AsyncConnection.connect(**place.settings) as connection:
            await guards.sql.acreate(connection, table="other_fence")
            await guards.sql.aguard(connection, "account:1", 33, table="other_fence")

    asyncio.run(main(PLACES["postgresql"](tmp_path)))
