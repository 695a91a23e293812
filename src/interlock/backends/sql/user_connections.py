"""Connections that a pool or an engine of the user lends for one step each; no lease keeps one.

The keeper and the subscription do not borrow: they connect for themselves, with the settings of a connection
that was lent, and in its role. If they are refused, the pool is asked to make a connection as it does now:
its passwords may be valid for minutes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

from interlock._core.drive import drive
from interlock._support import clock, native
from interlock._support.wording import duration, one_sentence
from interlock.backends.kit.connect_pace import ConnectPace
from interlock.backends.kit.runtime import ThreadRuntime, WaitRuntime
from interlock.backends.sql.dialect import Connection
from interlock.errors import StoreUnfit, Unreached, Unsupported

ASK_AGAIN_S = 0.01  # between two requests to an engine whose own timeout was over


class Lender(Protocol):
    """A pool or an engine.

    `lend` returns its own object, which it wants back, and the driver's connection in it.
    """

    async def lend(self, timeout: float) -> tuple[Any, Any]: ...
    async def give_back(self, lent: Any, sound: bool) -> None: ...

    def show_new(self, learn: Callable[[Any], None]) -> None:
        """Make a connection of the driver, as the pool makes its own now, show it to `learn`, and close
        it. Blocks.
        """
        ...

    def after_fork(self) -> str:
        """In a forked child: lend only connections of the child's own from now on, and return ''; or return
        why that is not possible.
        """
        ...


class Engine:
    """`sqlalchemy.Engine`, for threads. It has no time limit for one call: its own `pool_timeout` may be
    shorter or longer, and a driver may have none.

    So a connection that is not there yet is waited for on a thread of its own, and asked for again if the
    engine's own timeout ends first.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        idle = getattr(self._engine.pool, "checkedin", int)
        if idle() or native.green():  # a greenlet cannot wait for a thread of the system
            lent = self._made_by(clock.now() + timeout)
        else:
            until = clock.now() + timeout
            lent = _made_within(timeout, lambda: self._made_by(until), lambda late: late.close())
        return lent, lent.driver_connection

    def _made_by(self, until: float) -> Any:
        """Ask the engine again while its own timeout ends before `until`."""
        exhausted = _exhausted()
        while True:
            try:
                return self._engine.raw_connection()
            except exhausted as error:
                if clock.now() >= until:
                    raise TimeoutError(str(error)) from None
                time.sleep(ASK_AGAIN_S)

    async def give_back(self, lent: Any, sound: bool) -> None:
        if not sound:
            lent.invalidate()
        lent.close()

    def show_new(self, learn: Callable[[Any], None]) -> None:
        pool = (
            self._engine.pool.recreate()
        )  # it makes connections as the engine does: with its arguments and listeners
        try:
            lent = pool.connect()
            learn(lent.driver_connection)
            lent.close()
        finally:
            pool.dispose()

    def after_fork(self) -> str:
        """The engine forgets its connections, as SQLAlchemy advises, and makes new ones."""
        _of_parents.append(self._engine.pool)
        self._engine.dispose(close=False)
        return ""


_of_parents: list[Any] = []
"""Pools of engines that a parent has made. A forked child keeps them: when a connection is collected, its
finalizer may speak to the server, or take the parent's socket out of an epoll that both processes share.
"""


def _exhausted() -> type[Exception]:
    """The error of an engine whose connections are all in use for longer than its `pool_timeout`."""
    found: type[Exception] = import_module("sqlalchemy.exc").TimeoutError
    return found


def _made_within(timeout: float, make: Callable[[], Any], drop: Callable[[Any], None]) -> Any:
    """Return what `make` returns, or raise its error.

    TimeoutError if it takes too long; what comes later is dropped.
    """
    made: list[Any] = []  # the one that takes it out of here has it
    failures: list[BaseException] = []
    done, given_up = threading.Event(), threading.Event()

    def run() -> None:
        try:
            made.append(make())
        except BaseException as error:
            failures.append(error)
        done.set()
        if given_up.is_set():
            drop_late()

    def drop_late() -> None:
        with suppress(IndexError):
            drop(made.pop())

    native.Thread(target=run, name="interlock-borrow", daemon=True).start()
    try:
        if not done.wait(timeout):
            raise TimeoutError(f"none was free, or could be made, within {duration(timeout)}")
        if failures:
            raise failures[0]
        return made.pop()
    except BaseException:
        given_up.set()
        drop_late()
        raise


def refuse_shared(engine: Any) -> None:
    """Raise `Unsupported` if an engine lends a connection that the program may be using at that moment."""
    pools: Any = import_module("sqlalchemy.pool")
    pool = getattr(engine, "sync_engine", engine).pool
    if isinstance(pool, (pools.StaticPool, pools.SingletonThreadPool)):
        raise Unsupported(
            f"a call over this engine would roll back what your program has begun, because its "
            f"{type(pool).__name__} lends one connection to several at once: make the engine without "
            "poolclass, or "
            "give interlock a URL of its own"
        )


class OneDatabase:
    """Refuses a pool or an engine whose connections lead to different databases, as those of a program with a
    database for each tenant may: the same lock in two databases has two holders.
    """

    def __init__(self) -> None:
        self._first = ""

    def check(self, label: str, database: str) -> None:
        if self._first and database and database != self._first:
            raise StoreUnfit(
                f"{label}: the pool lends connections to the databases {self._first} and {database}, and a "
                "lock is in one of them only: make a pool or an engine with one database for interlock"
            )
        self._first = self._first or database


T = TypeVar("T")


async def unless_cancelled(lend: Awaitable[T], give_back: Callable[[T], Awaitable[None]]) -> T:
    """Return what the pool lends; raise CancelledError if the task was cancelled meanwhile.

    Pools of psycopg and SQLAlchemy wait by `asyncio.wait_for`, which in Python 3.11 forgets a cancellation
    that arrives together with the connection: the task would go on, and nobody would cancel it again.
    """
    import asyncio

    task = asyncio.current_task()
    cancelled_before = task.cancelling() if task is not None else 0

    def cancelled() -> bool:
        return task is not None and task.cancelling() > cancelled_before

    try:
        lent = await lend
    except Exception:
        if cancelled():
            raise asyncio.CancelledError from None
        raise
    if cancelled():
        await give_back(lent)
        raise asyncio.CancelledError
    return lent


class AsyncEngine:
    """`sqlalchemy.ext.asyncio.AsyncEngine`, for tasks."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def lend(self, timeout: float) -> tuple[Any, Any]:
        lent = await unless_cancelled(self._lend(timeout), lambda late: self.give_back(late, True))
        return lent, lent.driver_connection

    async def _lend(self, timeout: float) -> Any:
        import asyncio

        exhausted = _exhausted()
        async with asyncio.timeout(timeout):
            while True:
                try:
                    return await self._engine.raw_connection()
                except exhausted:  # its own `pool_timeout` is shorter than the call's
                    await asyncio.sleep(ASK_AGAIN_S)

    async def give_back(self, lent: Any, sound: bool) -> None:
        greenlet_spawn = import_module("sqlalchemy.util").greenlet_spawn
        if not sound:
            await greenlet_spawn(lent.invalidate)
        await greenlet_spawn(lent.close)

    def show_new(self, learn: Callable[[Any], None]) -> None:
        import asyncio

        greenlet_spawn = import_module("sqlalchemy.util").greenlet_spawn
        asyncio.run(greenlet_spawn(Engine(self._engine.sync_engine).show_new, learn))

    def after_fork(self) -> str:
        return Engine(self._engine.sync_engine).after_fork()


class LentConnection(Connection, Protocol):
    """A connection that was lent."""

    lent: Any

    async def learn(self, timeout: float) -> None:
        """Ask the connection which role it is in, for our own connections."""
        ...

    def leave(self) -> None:
        """Leave the connection to its lender, as it was."""
        ...


class UserSource:
    """See `dialect.Source`.

    `adopt` takes a connection that was lent, or raises if the connection will not do.
    """

    def __init__(
        self,
        lender: Lender,
        adopt: Callable[[Any, Any], LentConnection],
        runtime: WaitRuntime,
        label: Callable[[], str],
        connect_timeout: float,
    ) -> None:
        self._lender = lender
        self._adopt = adopt
        self._runtime = runtime
        self._label = label
        self.pace = ConnectPace(connect_timeout)
        self._refusal = ""  # why nothing can be borrowed in this process

    async def borrow(self, until: float, connecting_is_extra: bool) -> tuple[Connection, bool]:
        if self._refusal:
            raise StoreUnfit(f"{self._label()}: {self._refusal}")
        began = self._runtime.now()
        timeout = max(0.001, until - began)
        if connecting_is_extra:
            timeout = max(timeout, self.pace.within(timeout))
        try:
            lent, raw = await self._lender.lend(timeout)
            self.pace.reached(self._runtime.now() - began)
        except Exception as error:  # whatever the lender and its driver raise: nothing was sent
            said = one_sentence(str(error)) or type(error).__name__
            raise Unreached(f"{self._label()}: no connection from the pool: {said}") from None
        try:
            return self._adopt(lent, raw), True
        except BaseException:
            await self._lender.give_back(lent, False)
            raise

    async def give_back(self, connection: Connection, sound: bool) -> None:
        lent = cast("LentConnection", connection)
        lent.leave()
        await self._lender.give_back(lent.lent, sound)

    async def warm(self, timeout: float) -> None:
        until = self._runtime.now() + timeout
        connection, _ = await self.borrow(until, False)
        sound = False
        try:
            await cast("LentConnection", connection).learn(max(0.001, until - self._runtime.now()))
            sound = True
        finally:
            if not sound:
                connection.discard()
            await self.give_back(connection, sound)

    def drain(self) -> None:
        """The user's pool looks after its own connections."""

    def inside(self) -> bool:
        return False

    def after_fork(self) -> None:
        """On a connection that both processes use, each would read the other's answers: two holders."""
        self._refusal = self._lender.after_fork()

    async def close(self) -> None:
        """The user's pool stays open."""


class NewLogin:
    """Asks a pool of the user how it connects now, on a thread: what a pool calls for a password may take
    long.
    """

    def __init__(self, lender: Lender, learn: Callable[[Any], None]) -> None:
        self._lender = lender
        self._learn = learn
        self._asking = False

    def look_here(self, timeout: float) -> bool:
        """The same on the calling thread's time."""
        return drive(self.look(ThreadRuntime(clock.now), timeout), nested=True)

    async def look(self, runtime: WaitRuntime, timeout: float) -> bool:
        """Whether the pool has shown a new connection within `timeout` seconds."""
        if self._asking:
            return False
        done, shown = runtime.signal(), threading.Event()

        def ask() -> None:
            try:
                self._lender.show_new(self._learn)
                shown.set()
            except Exception as error:  # whatever the user's pool and its driver raise
                logging.getLogger("interlock").debug(
                    "the user's pool could not connect: %s", type(error).__name__
                )
            finally:
                self._asking = False
                done.set()

        self._asking = True
        try:
            native.Thread(target=ask, name="interlock-new-login", daemon=True).start()
        except BaseException:
            self._asking = False
            raise
        await runtime.wait(done, timeout)
        return shown.is_set()
