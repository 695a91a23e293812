"""What the user's pool lends goes back to it, whatever becomes of the step. The pool is one of the test: no server is needed."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import create_async_engine

import interlock
import interlock.aio
from interlock._core.drive import drive
from interlock._runtime.threads import Threads
from interlock.backends.sql.postgresql.user_pools import AsyncPsycopgPool
from interlock.backends.sql.user_connections import AsyncEngine, Engine, UserSource
from interlock.errors import Unreached, Unsupported
from interlock.testing.lag import at_most
from tests.patience import PATIENCE, until


class Lender:
    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.timeouts: list[float] = []
        self.returned: list[tuple[str, bool]] = []

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        self.timeouts.append(timeout)
        if self.failure:
            raise self.failure
        return "lent", "connection"

    async def give_back(self, lent: Any, sound: bool) -> None:
        self.returned.append((lent, sound))

    def show_new(self, learn: Any) -> None:
        raise NotImplementedError

    def after_fork(self) -> str:
        return ""


class Connection:
    def __init__(self, lent: Any) -> None:
        self.lent = lent
        self.left = False

    def leave(self) -> None:
        self.left = True


def source(lender: Lender, adopt: Any = lambda lent, connection: Connection(lent)) -> UserSource:
    return UserSource(lender, adopt, Threads(), lambda: "there", 7.0)


@pytest.mark.parametrize("sound", [True, False])
def test_a_connection_is_left_and_given_back(sound: bool) -> None:
    lender = Lender()
    made = source(lender)
    connection: Any
    connection, new = drive(made.borrow(0.0, True))
    assert new
    drive(made.give_back(connection, sound))
    assert connection.left
    assert lender.returned == [("lent", sound)]
    assert lender.timeouts == [7.0]  # the time to connect


def test_a_connection_that_will_not_do_goes_back_as_unsound() -> None:
    def refuse(lent: Any, connection: Any) -> Any:
        raise Unreached("in use")

    lender = Lender()
    with pytest.raises(Unreached, match="in use"):
        drive(source(lender, refuse).borrow(0.0, True))
    assert lender.returned == [("lent", False)]


def test_what_the_pool_says_is_in_the_error() -> None:
    with pytest.raises(Unreached, match="there: no connection from the pool: pool exhausted"):
        drive(source(Lender(TimeoutError("pool\n exhausted"))).borrow(0.0, False))


@pytest.fixture
def engine() -> Iterator[Any]:
    """An engine of one connection, whose own timeout is long."""
    made = sqlalchemy.create_engine(
        "sqlite://",
        poolclass=sqlalchemy.QueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=2 * PATIENCE,
        connect_args={"check_same_thread": False},
    )
    yield made
    made.dispose()


def test_an_engine_whose_connections_are_all_in_use_keeps_a_caller_for_its_time_only(engine: Any) -> None:
    lender = Engine(engine)
    with engine.connect():
        with at_most(0.3 + 0.2), pytest.raises(TimeoutError, match="free"):
            drive(lender.lend(0.3))
    until(lambda: engine.pool.checkedout() == 0)  # what came too late was given back
    lent, _ = drive(lender.lend(PATIENCE))
    assert engine.pool.checkedout() == 1
    drive(lender.give_back(lent, True))
    assert engine.pool.checkedout() == 0


def test_one_that_comes_free_in_time_is_lent(engine: Any) -> None:
    lender = Engine(engine)
    held = engine.connect()
    back = threading.Timer(0.2, held.close)
    back.start()
    lent, _ = drive(lender.lend(PATIENCE))
    drive(lender.give_back(lent, True))
    back.join()


def test_the_error_of_an_engine_that_cannot_connect_is_its_own() -> None:
    engine = sqlalchemy.create_engine("sqlite:////no/such/folder/x.db")
    with pytest.raises(sqlite3.OperationalError):
        drive(Engine(engine).lend(PATIENCE))


@pytest.mark.parametrize("pool_timeout", [0, 0.05])
def test_a_short_patience_of_the_engine_does_not_end_a_call_before_its_time(pool_timeout: float) -> None:
    engine: Any = sqlalchemy.create_engine(
        "sqlite://",
        poolclass=sqlalchemy.QueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=pool_timeout,
        connect_args={"check_same_thread": False},
    )
    lender = Engine(engine)
    held = engine.connect()
    back = threading.Timer(0.5, held.close)
    back.start()
    lent, _ = drive(lender.lend(PATIENCE))
    drive(lender.give_back(lent, True))
    back.join()
    with engine.connect():
        with at_most(0.3 + 0.2), pytest.raises(TimeoutError, match="free"):
            drive(lender.lend(0.3))
    until(lambda: engine.pool.checkedout() == 0)
    engine.dispose()


class BusyAsyncEngine:
    """An engine of asyncio whose own timeout is short, and which has a connection at the third try."""

    tries = 0

    async def raw_connection(self) -> Any:
        self.tries += 1
        if self.tries < 3:
            raise exc.TimeoutError("QueuePool limit")
        return SimpleNamespace(driver_connection="connection")


def test_the_same_holds_for_an_engine_of_asyncio() -> None:
    _, connection = asyncio.run(AsyncEngine(BusyAsyncEngine()).lend(PATIENCE))
    assert connection == "connection"


@pytest.mark.parametrize("pool", [sqlalchemy.StaticPool, sqlalchemy.SingletonThreadPool])
@pytest.mark.parametrize("driver", ["postgresql+psycopg", "mysql+pymysql"])
def test_an_engine_that_lends_one_connection_to_several_is_refused(driver: str, pool: Any) -> None:
    engine = sqlalchemy.create_engine(f"{driver}://nobody@127.0.0.1:1/x", poolclass=pool)
    with pytest.raises(Unsupported, match=f"{pool.__name__} lends one connection to several"):
        interlock.connect(engine)


@pytest.mark.parametrize("driver", ["postgresql+psycopg", "mysql+aiomysql"])
def test_so_is_an_async_engine_that_lends_one_connection_to_several(driver: str) -> None:
    async def main() -> None:
        engine = create_async_engine(f"{driver}://nobody@127.0.0.1:1/x", poolclass=sqlalchemy.StaticPool)
        with pytest.raises(Unsupported, match="StaticPool lends one connection to several"):
            interlock.aio.connect(engine)

    asyncio.run(main())


class Forgetful:
    """A pool of psycopg or an engine of SQLAlchemy for asyncio that forgets a cancellation, as `asyncio.wait_for` of
    Python 3.11 does if a connection comes at the same moment; or that fails then.
    """

    def __init__(self, failure: Exception | None) -> None:
        self.failure = failure
        self.asked = asyncio.Event()
        self.returned = 0
        self.driver_connection = self

    async def getconn(self, timeout: float | None = None) -> Any:
        self.asked.set()
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            if self.failure is not None:
                raise self.failure from None
        return self

    raw_connection = getconn

    async def putconn(self, lent: Any) -> None:
        assert lent is self
        self.returned += 1

    def close(self) -> None:
        self.returned += 1


@pytest.mark.parametrize("failure", [None, OSError("the pool is worn out")], ids=["lends", "fails"])
@pytest.mark.parametrize("kind", [AsyncPsycopgPool, AsyncEngine])
def test_a_cancellation_that_the_pool_forgets_is_not_forgotten(kind: Any, failure: Exception | None) -> None:
    async def main() -> None:
        pool = Forgetful(failure)
        task = asyncio.create_task(kind(pool).lend(2 * PATIENCE))
        await pool.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert pool.returned == (failure is None)

    asyncio.run(main())
