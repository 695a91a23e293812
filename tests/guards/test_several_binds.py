"""A session with several databases: a guard in another one than the one that is written would protect nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import interlock
from interlock import guards
from tests.guards.desks import PLACES


class Base(DeclarativeBase):
    pass


class Account(Base):
    __tablename__ = "account"
    id: Mapped[int] = mapped_column(primary_key=True)
    balance: Mapped[int]


class Entry(Base):
    __tablename__ = "entry"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    made = tuple(create_engine(PLACES["sqlite"](tmp_path).url) for _ in range(2))
    yield made[0], made[1]
    for engine in made:
        engine.dispose()


def refused(session: Any) -> None:
    with pytest.raises(interlock.Unsupported, match=r"connection\(bind_arguments="):
        guards.sql.guard(session, "account:1", 34)


def test_a_session_whose_tables_are_in_two_databases_is_refused(engines: tuple[Engine, Engine]) -> None:
    one, other = engines
    several: list[dict[str, Any]] = [
        {"bind": one, "binds": {Account: other}},
        {"binds": {Account: other, Entry: one}},
    ]
    for settings in several:
        with Session(**settings) as session:
            refused(session)
            with pytest.raises(interlock.Unsupported):
                guards.sql.guard_row(session, "account:1", 34, table="account", where={"id": 1})


def test_a_session_that_chooses_its_database_by_itself_is_refused(engines: tuple[Engine, Engine]) -> None:
    """As that of Flask-SQLAlchemy does."""
    one, other = engines

    class Routed(Session):
        def get_bind(self, mapper: Any = None, **rest: Any) -> Any:
            return other if mapper is not None and mapper.class_ is Account else one

    with Routed() as session:
        refused(session)


def test_one_that_chooses_the_same_database_for_all_is_guarded(engines: tuple[Engine, Engine]) -> None:
    class Plain(Session):
        def get_bind(self, mapper: Any = None, **rest: Any) -> Any:
            return engines[0]

    with Plain() as session:
        guards.sql.guard(session, "account:1", 34)
        session.commit()


def test_one_database_for_some_tables_is_where_the_guard_goes(engines: tuple[Engine, Engine]) -> None:
    with Session(binds={Account: engines[1], Entry: engines[1]}) as session:
        guards.sql.guard(session, "account:1", 34)
        session.commit()
    with engines[1].connect() as connection:
        assert connection.execute(text("select token from interlock_fence")).all() == [(34,)]


def test_the_connection_of_one_database_is_what_to_hand_over(engines: tuple[Engine, Engine]) -> None:
    one, other = engines
    with Session(bind=one, binds={Account: other}) as session:
        guards.sql.guard(session.connection(bind_arguments={"mapper": Account}), "account:1", 34)
        account = session.get_one(Account, 1)
        account.balance = 7
        session.commit()
    with Session(bind=one, binds={Account: other}) as session:
        session.get_one(Account, 1).balance = 8
        session.flush()
        with pytest.raises(interlock.StaleToken):
            guards.sql.guard(session.connection(bind_arguments={"mapper": Account}), "account:1", 33)
        session.get_one(Account, 2).balance = 9
        with pytest.raises(Exception, match=r"inactive|closed"):
            session.commit()
    with other.connect() as connection:
        assert connection.execute(text("select balance from account order by id")).all() == [(7,), (100,)]


def test_the_same_holds_under_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        url = PLACES["postgresql"](tmp_path).url
        one, other = create_async_engine(url), create_async_engine(url)
        async with AsyncSession(bind=one, binds={Account: other}) as session:
            with pytest.raises(interlock.Unsupported, match="bind_arguments"):
                await guards.sql.aguard(session, "account:1", 34)
            connection = await session.connection(bind_arguments={"mapper": Account})
            await guards.sql.aguard(connection, "account:1", 34)
            await session.commit()
        async with AsyncSession(binds={Account: other}) as session:
            await guards.sql.aguard(session, "account:1", 35)
            await session.commit()
        for engine in (one, other):
            await engine.dispose()

    asyncio.run(main())
