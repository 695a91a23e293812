"""A lock over a generator function is held while the generator is iterated, by whomever, and given back at its end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from functools import partial
from typing import Any

import pytest

import interlock
from interlock import aio
from interlock.testing.lag import stretched
from tests.attacks.stage import eventually, fresh

KINDS = ["lock", "rlock", "read", "write", "semaphore", "multilock"]
kinds = pytest.mark.parametrize("kind", KINDS)


def made(client: Any, kind: str, **options: Any) -> Any:
    if kind in ("read", "write"):
        return getattr(client.rwlock("x", **options), kind)()
    return getattr(client, kind)(["x"] if kind == "multilock" else "x", **options)


@pytest.fixture
def client() -> Iterator[interlock.Client]:
    with interlock.connect(fresh()) as client:
        yield client


def held(client: interlock.Client) -> bool:
    return bool(client.inspect("x").holders)


# ---- sync -------------------------------------------------------------------------------


@kinds
def test_a_generator_holds_the_lock_from_its_first_step_to_its_last(
    kind: str, client: interlock.Client
) -> None:
    @made(client, kind)
    def count(most: int) -> Generator[int, str, str]:
        """Counts."""
        said = []
        for number in range(most):
            assert held(client)
            said.append(str((yield number)))
        return ",".join(said)

    assert inspect.isgeneratorfunction(count)
    assert (count.__name__, count.__doc__) == ("count", "Counts.")
    counting = count(2)
    assert not held(client)
    assert next(counting) == 0
    assert held(client)
    assert counting.send("a") == 1
    assert held(client)
    with pytest.raises(StopIteration) as over:
        counting.send("b")
    assert over.value.value == "a,b"
    assert not held(client)
    assert list(count(3)) == [0, 1, 2]


@kinds
def test_a_generator_that_is_closed_ends_under_the_lock_and_gives_it_back(
    kind: str, client: interlock.Client
) -> None:
    ended: list[bool] = []

    @made(client, kind)
    def work() -> Generator[int, None, None]:
        try:
            yield 1
            yield 2
        finally:
            ended.append(held(client))

    working = work()
    next(working)
    working.close()
    assert ended == [True]
    assert not held(client)


@kinds
def test_what_is_thrown_into_a_generator_reaches_its_body(kind: str, client: interlock.Client) -> None:
    @made(client, kind)
    def work() -> Generator[str, None, None]:
        while True:
            try:
                yield "ready"
            except KeyError:
                assert held(client)

    working = work()
    next(working)
    assert working.throw(KeyError("one")) == "ready"
    assert held(client)
    with pytest.raises(ValueError, match="two"):
        working.throw(ValueError("two"))
    assert not held(client)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_thrown_the_old_way_reaches_the_body_too(client: interlock.Client) -> None:
    @client.lock("x")
    def work() -> Generator[None, None, None]:
        yield

    ways: list[tuple[Any, ...]] = [(KeyError,), (KeyError, "mine"), (KeyError, KeyError("mine"), None)]
    for told in ways:
        working = work()
        next(working)
        with pytest.raises(KeyError) as met:
            working.throw(*told)
        assert met.value.args in ((), ("mine",))
        assert not held(client)


@kinds
def test_a_generator_that_nobody_has_any_more_gives_the_lock_back(
    kind: str, client: interlock.Client
) -> None:
    @made(client, kind)
    def work() -> Generator[int, None, None]:
        yield 1

    working = work()
    next(working)
    del working
    eventually(lambda: not held(client))

    working = work()
    cycle: list[Any] = [working]
    cycle.append(cycle)
    next(working)
    del cycle, working
    gc.collect()
    eventually(lambda: not held(client))


def test_each_generator_has_a_lease_of_its_own(client: interlock.Client) -> None:
    @client.lock("x", timeout=0.05)
    def work() -> Generator[int, None, None]:
        yield client.inspect("x").holders[0].token

    first, second = work(), work()
    token = next(first)
    with pytest.raises(interlock.AcquireTimeout):
        next(second)
    assert next(first, None) is None
    assert next(work()) > token


def test_a_generator_may_go_on_in_any_thread() -> None:
    """As in frameworks that run the halves of a generator in a pool of threads, which come and go."""
    ttl = stretched(0.3)
    with interlock.connect(fresh(), ttl=ttl) as client:

        def steps() -> Generator[int, None, None]:
            yield 1
            yield 2

        def in_a_thread(call: Callable[[], object]) -> None:
            thread = threading.Thread(target=call)
            thread.start()
            thread.join(60)

        locks = [client.lock("x"), client.semaphore("y", 2), client.multilock(["z", "zz"])]
        several = [lock(steps)() for lock in locks for _ in range(2 if "y" in repr(lock) else 1)]
        for _ in range(2):
            for each in several:
                in_a_thread(partial(next, each))
            threading.Event().wait(2 * ttl)  # the threads have ended, and more than a ttl passes
            assert sorted(client.scan()) == ["x", "y", "z", "zz"]
        for each in several[:2]:
            in_a_thread(partial(next, each, None))
        for each in several[2:]:
            in_a_thread(each.close)
        assert not list(client.scan())


@pytest.mark.parametrize("kind", ["semaphore", "read"])
def test_a_generator_that_another_thread_ends_gives_back_its_own_lease_alone(kind: str) -> None:
    with interlock.connect(fresh()) as client:
        lock = client.semaphore("x", 3) if kind == "semaphore" else client.rwlock("x").read()

        @lock
        def work() -> Generator[int, None, None]:
            yield 1

        first = work()
        next(first)
        with lock as mine:
            thread = threading.Thread(target=first.close)
            thread.start()
            thread.join(10)
            mine.check()
            assert len(client.inspect("x").holders) == 1


def test_an_rlock_over_a_generator_counts_for_the_thread_that_began_it(client: interlock.Client) -> None:
    lock = client.rlock("x")

    @lock
    def work() -> Generator[int, None, None]:
        with lock:
            yield 1

    working = work()
    next(working)
    assert lock.owned()
    thread = threading.Thread(target=working.close)
    thread.start()
    thread.join(10)
    assert not held(client)
    with lock:
        assert list(work()) == [1]
        assert held(client)
    assert not held(client)


def test_the_body_of_a_generator_owns_the_lock_and_its_consumer_does_not(client: interlock.Client) -> None:
    lock = client.lock("x")

    @lock
    def work() -> Generator[bool, None, None]:
        yield lock.owned()

    working = work()
    assert next(working)
    assert not lock.owned()
    working.close()


@kinds
def test_a_generator_does_not_go_on_once_its_lease_is_lost(kind: str, client: interlock.Client) -> None:
    did: list[str] = []

    @made(client, kind)
    def work() -> Generator[int, None, None]:
        try:
            yield 1
            did.append("went on")
        finally:
            did.append("cleaned up")

    working = work()
    next(working)
    client.evict("x", reason="drill")
    for lease in list(client._core.leases):
        with pytest.raises(interlock.LeaseLost):
            lease.renew()  # type: ignore[attr-defined]
    with pytest.raises(interlock.LeaseLost, match="drill"):
        next(working)
    assert did == ["cleaned up"]


def test_a_context_manager_made_of_a_generator_holds_the_lock(client: interlock.Client) -> None:
    @contextlib.contextmanager
    @client.lock("x")
    def prepared() -> Iterator[str]:
        yield "ready"

    with prepared() as said:
        assert said == "ready"
        assert held(client)
    assert not held(client)
    with pytest.raises(KeyError):
        with prepared():
            raise KeyError
    assert not held(client)


def test_methods_of_every_kind_can_be_decorated(client: interlock.Client) -> None:
    class Report:
        name = "report"

        @client.lock("x")
        def rows(self) -> Iterator[str]:
            assert held(client)
            yield self.name

        @classmethod
        @client.lock("x")
        def of_class(cls) -> Iterator[str]:
            assert held(client)
            yield cls.name

        @client.lock("x")
        @classmethod
        def outside_of_class(cls) -> Iterator[str]:
            assert held(client)
            yield cls.name

        @staticmethod
        @client.lock("x")
        def plain(number: int) -> Iterator[int]:
            assert held(client)
            yield number

        @client.lock("x")
        @staticmethod
        def outside_of_plain(number: int) -> int:
            assert held(client)
            return number

    report = Report()
    assert list(report.rows()) == ["report"]
    assert list(report.of_class()) == list(Report.of_class()) == ["report"]
    assert list(report.outside_of_class()) == list(Report.outside_of_class()) == ["report"]
    assert list(report.plain(3)) == list(Report.plain(3)) == [3]
    assert report.outside_of_plain(3) == Report.outside_of_plain(3) == 3
    assert not held(client)


def test_a_partial_of_a_generator_function_and_an_object_that_is_one_hold_the_lock(
    client: interlock.Client,
) -> None:
    def rows(first: int, second: int) -> Iterator[int]:
        assert held(client)
        yield first
        yield second

    class Rows:
        def __call__(self, number: int) -> Iterator[int]:
            assert held(client)
            yield number

    assert list(client.lock("x")(functools.partial(rows, 1))(2)) == [1, 2]
    assert list(client.lock("x")(Rows())(3)) == [3]


# ---- what would run unlocked is refused -----------------------------------------------------


async def coroutine() -> None: ...
def plain() -> None: ...
def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class AsyncCallable:
    async def __call__(self) -> None: ...


class AsyncGeneratorCallable:
    async def __call__(self) -> AsyncIterator[int]:
        yield 1


REFUSED_SYNC = {
    "coroutine": (coroutine, r"coroutine is a coroutine function: use a lock of interlock\.aio"),
    "partial": (functools.partial(coroutine), r"is a coroutine function: use a lock of interlock\.aio"),
    "object": (AsyncCallable(), r"AsyncCallable .*is a coroutine function: use a lock of interlock\.aio"),
    "async generator": (
        async_generator,
        r"async_generator is an async generator function: use a lock of interlock\.aio",
    ),
    "object that is one": (
        AsyncGeneratorCallable(),
        r"is an async generator function: use a lock of interlock\.aio",
    ),
    "context manager": (
        contextlib.contextmanager(generator),
        r"generator is a context manager.*put the lock below @contextmanager",
    ),
    "async context manager": (
        contextlib.asynccontextmanager(async_generator),
        r"async_generator is a context manager.*use a lock of interlock\.aio, below @asynccontextmanager",
    ),
}

REFUSED_ASYNC = {
    "function": (plain, r"plain is not a coroutine function: use a lock of interlock, not of interlock\.aio"),
    "generator": (
        generator,
        r"generator is a generator function, but not an async one: use a lock of interlock, not of interlock\.aio",
    ),
    "context manager": (
        contextlib.contextmanager(generator),
        r"generator is a context manager.*use a lock of interlock, below @contextmanager",
    ),
    "async context manager": (
        contextlib.asynccontextmanager(async_generator),
        r"async_generator is a context manager.*put the lock below @asynccontextmanager",
    ),
}


@kinds
@pytest.mark.parametrize("what", REFUSED_SYNC)
def test_a_sync_lock_refuses_what_it_would_not_guard(what: str, kind: str, client: interlock.Client) -> None:
    function, advice = REFUSED_SYNC[what]
    with pytest.raises(TypeError, match=advice):
        made(client, kind)(function)


@kinds
@pytest.mark.parametrize("what", REFUSED_ASYNC)
def test_an_async_lock_refuses_what_it_would_not_guard(what: str, kind: str) -> None:
    function, advice = REFUSED_ASYNC[what]
    with pytest.raises(TypeError, match=advice):
        made(aio.connect(fresh()), kind)(function)


@pytest.mark.parametrize("kind", [*KINDS, "once"])
def test_a_function_that_a_context_manager_decorates_is_an_ordinary_one(
    kind: str, client: interlock.Client
) -> None:
    class Transaction(contextlib.ContextDecorator):
        def __enter__(self) -> None:
            seen.append(held(client))

        def __exit__(self, *error: object) -> None:
            seen.append(held(client))

    @contextlib.contextmanager
    def made_of_a_generator() -> Generator[None]:
        seen.append(held(client))
        yield

    @made(client, kind)
    @Transaction()
    @made_of_a_generator()
    def pay(amount: int) -> int:
        return amount

    seen: list[bool] = []
    assert pay(7) == 7
    assert seen == [True, True, True]
    assert not held(client)


@pytest.mark.parametrize("kind", [*KINDS, "once"])
def test_an_async_function_that_an_async_context_manager_decorates_is_an_ordinary_one(kind: str) -> None:
    class Transaction(contextlib.AsyncContextDecorator):
        async def __aenter__(self) -> None:
            seen.append(await is_held(client))

        async def __aexit__(self, *error: object) -> None:
            seen.append(await is_held(client))

    async def main() -> None:
        @made(client, kind)
        @Transaction()
        async def pay(amount: int) -> int:
            return amount

        async with client:
            assert await pay(7) == 7

    client, seen = aio.connect(fresh()), list[bool]()
    asyncio.run(main())
    assert seen == [True, True]


# ---- async -------------------------------------------------------------------------------


async def is_held(client: aio.Client) -> bool:
    return bool((await client.inspect("x")).holders)


async def until_free(client: aio.Client) -> None:
    async with asyncio.timeout(10):
        while await is_held(client):
            await asyncio.sleep(0.001)


@kinds
def test_an_async_generator_holds_the_lock_from_its_first_step_to_its_last(kind: str) -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:

            @made(client, kind)
            async def count(most: int) -> AsyncGenerator[int, str]:
                """Counts."""
                for number in range(most):
                    assert await is_held(client)
                    said.append((yield number))

            said: list[str] = []
            assert inspect.isasyncgenfunction(count)
            assert (count.__name__, count.__doc__) == ("count", "Counts.")
            counting = count(2)
            assert not await is_held(client)
            assert await anext(counting) == 0
            assert await is_held(client)
            assert await counting.asend("a") == 1
            assert await is_held(client)
            with pytest.raises(StopAsyncIteration):
                await counting.asend("b")
            assert said == ["a", "b"]
            assert not await is_held(client)
            assert [number async for number in count(3)] == [0, 1, 2]

    asyncio.run(main())


@kinds
def test_an_async_generator_that_is_closed_ends_under_the_lock_and_gives_it_back(kind: str) -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:

            @made(client, kind)
            async def work() -> AsyncGenerator[int, None]:
                try:
                    yield 1
                    yield 2
                finally:
                    await asyncio.sleep(0)
                    ended.append(await is_held(client))

            ended: list[bool] = []
            working = work()
            await anext(working)
            await working.aclose()
            assert ended == [True]
            assert not await is_held(client)
            await working.aclose()

    asyncio.run(main())


@kinds
def test_what_is_thrown_into_an_async_generator_reaches_its_body(kind: str) -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:

            @made(client, kind)
            async def work() -> AsyncGenerator[str, None]:
                while True:
                    try:
                        yield "ready"
                    except KeyError:
                        assert await is_held(client)

            working = work()
            await anext(working)
            assert await working.athrow(KeyError("one")) == "ready"
            assert await is_held(client)
            with pytest.raises(ValueError, match="two"):
                await working.athrow(ValueError("two"))
            assert not await is_held(client)

    asyncio.run(main())


@kinds
def test_an_async_generator_that_nobody_has_any_more_gives_the_lock_back(kind: str) -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:

            @made(client, kind)
            async def work() -> AsyncIterator[int]:
                yield 1

            async for _ in work():
                break
            gc.collect()
            await until_free(client)
            working = work()
            cycle: list[Any] = [working]
            cycle.append(cycle)
            await anext(working)
            del cycle, working
            gc.collect()
            await until_free(client)

    asyncio.run(main())


@kinds
def test_an_async_generator_that_its_loop_leaves_behind_gives_the_lock_back(kind: str) -> None:
    async def main() -> AsyncIterator[int]:
        @made(loose, kind)
        async def work() -> AsyncIterator[int]:
            yield 1

        working: AsyncIterator[int] = work()
        await anext(working)
        assert await is_held(loose)
        return working  # not ended: asyncio.run ends what is left

    loose = aio.connect(fresh())
    working = asyncio.run(main())

    async def after() -> None:
        await until_free(loose)
        await loose.close()

    asyncio.run(after())
    del working


def test_an_async_generator_may_go_on_in_any_task() -> None:
    async def main() -> None:
        ttl = stretched(0.3)
        async with aio.connect(fresh(), ttl=ttl) as client:

            async def steps() -> AsyncGenerator[int, None]:
                yield 1
                yield 2

            locks = [client.lock("x"), client.semaphore("y", 2), client.multilock(["z", "zz"])]
            several = [lock(steps)() for lock in locks]
            for each in several:
                await asyncio.create_task(anext(each))
            await asyncio.sleep(2 * ttl)  # the tasks have ended, and more than a ttl passes
            assert sorted([name async for name in client.scan()]) == ["x", "y", "z", "zz"]
            for each in several:
                await asyncio.create_task(each.aclose())
            assert not [name async for name in client.scan()]

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["rlock", "read", "write"])
def test_another_task_may_end_what_a_task_began_under_its_rlock(kind: str) -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:

            @made(client, kind)
            async def work() -> AsyncGenerator[int, None]:
                yield 1

            working = work()
            await asyncio.create_task(anext(working))
            assert await is_held(client)
            await asyncio.create_task(working.aclose())
            assert not await is_held(client)

    asyncio.run(main())


@kinds
def test_a_loss_cancels_the_step_of_an_async_generator_that_is_under_way(kind: str) -> None:
    async def main() -> None:
        async with aio.connect(fresh(), ttl=0.4) as client:

            @made(client, kind)
            async def work() -> AsyncIterator[int]:
                yield 1
                await client.evict("x", reason="drill")
                await asyncio.sleep(60)

            working = work()
            await anext(working)
            with pytest.raises(interlock.LeaseLost, match="drill"):
                await anext(working)
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    asyncio.run(main())


@kinds
def test_a_loss_between_two_steps_is_met_at_the_next_and_cancels_no_consumer(kind: str) -> None:
    async def main() -> None:
        async with aio.connect(fresh(), ttl=0.3) as client:
            did: list[str] = []

            @made(client, kind)
            async def work() -> AsyncIterator[int]:
                try:
                    yield 1
                    did.append("went on")
                finally:
                    did.append("cleaned up")

            working = work()
            await anext(working)
            (lease,) = client._core.leases
            await client.evict("x", reason="drill")
            assert await lease.lost.wait(60)  # type: ignore[attr-defined]  # the keeper has found out
            await asyncio.sleep(0.01)  # nobody cancels this
            with pytest.raises(interlock.LeaseLost, match="drill"):
                await anext(working)
            assert did == ["cleaned up"]
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    asyncio.run(main())


@kinds
def test_a_cancelled_step_ends_an_async_generator_and_gives_the_lock_back(kind: str) -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:

            @made(client, kind)
            async def work() -> AsyncIterator[int]:
                begun.set()
                await asyncio.sleep(60)
                yield 1

            begun = asyncio.Event()

            async def consume() -> None:
                async for _ in work():
                    pass

            task = asyncio.create_task(consume())
            await begun.wait()
            assert await is_held(client)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not await is_held(client)

    asyncio.run(main())


def test_an_async_context_manager_made_of_a_generator_holds_the_lock() -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:

            @contextlib.asynccontextmanager
            @client.lock("x")
            async def prepared() -> AsyncIterator[str]:
                yield "ready"

            async with prepared() as said:
                assert said == "ready"
                assert await is_held(client)
            assert not await is_held(client)

    asyncio.run(main())


def test_coroutine_methods_of_every_kind_can_be_decorated() -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:

            class Report:
                @client.lock("x")
                async def rows(self) -> AsyncIterator[int]:
                    assert await is_held(client)
                    yield 1

                @client.lock("x")
                @classmethod
                async def of_class(cls) -> str:
                    assert await is_held(client)
                    return cls.__name__

                @client.lock("x")
                @staticmethod
                async def plain(number: int) -> int:
                    assert await is_held(client)
                    return number

            assert [row async for row in Report().rows()] == [1]
            assert await Report.of_class() == "Report"
            assert await Report().plain(3) == await Report.plain(3) == 3

    asyncio.run(main())
