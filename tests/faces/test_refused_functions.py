"""A decorated function runs under its lock to its last line, or it is refused: by its kind, when it is decorated."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

import interlock
from interlock import aio
from tests.attacks.stage import fresh

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


def test_methods_of_every_kind_can_be_decorated(client: interlock.Client) -> None:
    class Report:
        name = "report"

        @client.lock("x")
        def rows(self) -> str:
            assert held(client)
            return self.name

        @classmethod
        @client.lock("x")
        def of_class(cls) -> str:
            assert held(client)
            return cls.name

        @client.lock("x")
        @classmethod
        def outside_of_class(cls) -> str:
            assert held(client)
            return cls.name

        @staticmethod
        @client.lock("x")
        def plain(number: int) -> int:
            assert held(client)
            return number

        @client.lock("x")
        @staticmethod
        def outside_of_plain(number: int) -> int:
            assert held(client)
            return number

    report = Report()
    assert report.rows() == "report"
    assert report.of_class() == Report.of_class() == "report"
    assert report.outside_of_class() == Report.outside_of_class() == "report"
    assert report.plain(3) == Report.plain(3) == 3
    assert report.outside_of_plain(3) == Report.outside_of_plain(3) == 3
    assert not held(client)


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


def of_generators(name: str, kind: str) -> str:
    return rf"{name}.*is {kind} generator function, whose body .*take the lock inside the body"


REFUSED = {
    "generator": (generator, of_generators("generator", "a")),
    "partial of a generator": (functools.partial(generator), of_generators("generator", "a")),
    "async generator": (async_generator, of_generators("async_generator", "an async")),
    "object that is one": (AsyncGeneratorCallable(), of_generators("AsyncGeneratorCallable", "an async")),
    "context manager": (
        contextlib.contextmanager(generator),
        r"generator is a context manager.*take the lock inside it, around its yield",
    ),
    "async context manager": (
        contextlib.asynccontextmanager(async_generator),
        r"async_generator is a context manager.*take the lock inside it, around its yield",
    ),
}

REFUSED_SYNC = {
    **REFUSED,
    "coroutine": (coroutine, r"coroutine is a coroutine function: use a lock of interlock\.aio"),
    "partial": (functools.partial(coroutine), r"is a coroutine function: use a lock of interlock\.aio"),
    "object": (AsyncCallable(), r"AsyncCallable .*is a coroutine function: use a lock of interlock\.aio"),
}

REFUSED_ASYNC = {
    **REFUSED,
    "function": (plain, r"plain is not a coroutine function: use a lock of interlock, not of interlock\.aio"),
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


@kinds
def test_a_sync_lock_refuses_a_context_manager_that_was_made_under_it(
    kind: str, client: interlock.Client
) -> None:
    for make in (contextlib.contextmanager(generator), contextlib.asynccontextmanager(async_generator)):
        with pytest.raises(TypeError, match=r"returned an? .*context manager.*take the lock inside"):
            made(client, kind)(lambda make=make: make())()


@kinds
def test_an_async_lock_refuses_a_context_manager_that_was_made_under_it(kind: str) -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:

            async def make() -> Any:
                return contextlib.asynccontextmanager(async_generator)()

            with pytest.raises(TypeError, match=r"returned an async context manager.*take the lock inside"):
                await made(client, kind)(make)()

    asyncio.run(main())


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


def test_coroutine_methods_of_every_kind_can_be_decorated() -> None:
    async def main() -> None:
        async with aio.connect(fresh()) as client:

            class Report:
                @client.lock("x")
                async def rows(self) -> int:
                    assert await is_held(client)
                    return 1

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

            assert await Report().rows() == 1
            assert await Report.of_class() == "Report"
            assert await Report().plain(3) == await Report.plain(3) == 3

    asyncio.run(main())
