"""A lock as a decorator: each call under a lease of its own, and the right kind of function for the face."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import interlock
from interlock import aio

KINDS = ["lock", "rlock", "semaphore", "multilock"]


def made(client: Any, kind: str) -> Any:
    return getattr(client, kind)(["x"] if kind == "multilock" else "x")


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_runs_under_the_lock_and_keeps_its_name(kind: str) -> None:
    with interlock.connect("memory://decorated") as client:
        tokens: list[int] = []

        @made(client, kind)
        def job(number: int, *, twice: bool = False) -> int:
            """Does something."""
            tokens.append(client.inspect("x").holders[0].token)
            return number * (2 if twice else 1)

        assert job(3, twice=True) == 6
        assert job(4) == 4
        assert (job.__name__, job.__doc__) == ("job", "Does something.")
        assert tokens[0] < tokens[1]
        assert client.inspect("x").standings == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_coroutine_function_runs_under_the_async_lock(kind: str) -> None:
    async def main() -> None:
        async with aio.connect("memory://decorated-async") as client:

            @made(client, kind)
            async def job(number: int) -> int:
                assert (await client.inspect("x")).holders
                return number

            assert inspect.iscoroutinefunction(job)
            assert await job(3) == 3
            assert (await client.inspect("x")).standings == ()

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_that_fails_gives_the_lock_back(kind: str) -> None:
    with interlock.connect("memory://failing") as client:

        @made(client, kind)
        def job() -> None:
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            job()
        assert client.inspect("x").standings == ()


def test_a_sync_lock_refuses_a_coroutine_function_it_would_not_guard() -> None:
    with interlock.connect("memory://") as client:
        with pytest.raises(TypeError, match=r"is a coroutine function: use a lock of interlock\.aio"):

            @client.lock("x")
            async def job() -> None: ...


def test_an_async_lock_refuses_a_plain_function() -> None:
    client = aio.connect("memory://")
    with pytest.raises(TypeError, match="is not a coroutine function"):
        client.lock("x")(lambda: None)  # type: ignore[arg-type, return-value]


async def a_body() -> None:
    raise AssertionError("the body ran")


def some_steps() -> Any:
    yield 1


async def async_steps() -> Any:
    yield 1


@pytest.mark.parametrize("make", [a_body, some_steps, async_steps], ids=lambda make: make.__name__)
@pytest.mark.parametrize("kind", ["lock", "once"])
def test_a_function_whose_result_has_yet_to_run_is_refused_when_it_is_called(
    kind: str, make: Callable[[], Any]
) -> None:
    """The body of a coroutine or a generator would run when the lock has long been given back."""
    with interlock.connect("memory://") as client:
        decorated = getattr(client, kind)("x")(lambda: make())
        with pytest.raises(
            TypeError, match=r"returned an? .*without the lock: (decorate|take the lock inside)"
        ):
            decorated()
        assert not client.lock("x").locked()

    async def main() -> None:
        async with aio.connect("memory://") as client:

            async def handed_on() -> Any:
                return make()

            with pytest.raises(
                TypeError, match=r"returned an? .*without the lock: (decorate|take the lock inside)"
            ):
                await getattr(client, kind)("x")(handed_on)()

    asyncio.run(main())
