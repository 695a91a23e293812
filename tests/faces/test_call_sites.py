"""Who holds it? The line of the user's own code that took it, in every way there is to take it."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial, wraps
from typing import Any

import pytest

import interlock
from interlock import aio

HERE = f"{os.path.basename(os.path.dirname(__file__))}/{os.path.basename(__file__)}"


def line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


@pytest.fixture
def client() -> Iterator[interlock.Client]:
    with interlock.connect("memory://call-sites") as client:
        yield client


def holder(client: Any) -> interlock.Who:
    return interlock.Who.parse(client.inspect("x").holders[0].who)


def test_with_acquire_and_decorator_name_their_line(client: interlock.Client) -> None:
    with client.lock("x"):
        assert holder(client).site == f"{HERE}:{line() - 1}"
    lock = client.rlock("x")
    lock.acquire()
    assert holder(client).site == f"{HERE}:{line() - 1}"
    lock.release()


def test_an_exit_stack_is_nobody(client: interlock.Client) -> None:
    """The line that enters the lock into it is named, and not one of contextlib."""
    with ExitStack() as stack:
        stack.enter_context(client.lock("x"))
        assert holder(client).site == f"{HERE}:{line() - 1}"

    async def main() -> None:
        async with aio.connect("memory://call-sites-stack") as client, AsyncExitStack() as stack:
            await stack.enter_async_context(client.lock("x"))
            site = interlock.Who.parse((await client.inspect("x")).holders[0].who).site
            assert site == f"{HERE}:{line() - 2}"

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["lock", "rlock", "semaphore", "multilock", "once"])
def test_a_decorated_function_is_named_and_not_its_caller(kind: str, client: interlock.Client) -> None:
    """Task queues and schedulers call all functions from one line of theirs."""

    def made(client: Any) -> Any:
        return getattr(client, kind)(["x"] if kind == "multilock" else "x")

    where = f"{HERE}:{line() + 2}"

    @made(client)
    @wrapped
    def job(number: int) -> str:
        return holder(client).site if number else job(1)

    assert partial(job, 1)() == where
    assert made(client)(partial(job.__wrapped__, 1))() == where
    assert made(client)("{}".format)(1) == "1"  # no line of Python is its own

    async def main() -> str:
        async with aio.connect("memory://call-sites-decorated") as client:

            @made(client)
            async def later() -> str:
                queue = await client.inspect("x")
                return interlock.Who.parse(queue.holders[0].who).site

            found: str = await asyncio.create_task(later())
            assert found == f"{HERE}:{line() - 6}"
            return found

    assert asyncio.run(main()).startswith(HERE)


def wrapped(function: Any) -> Any:
    """Somebody else's decorator."""

    @wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


def test_a_holder_is_named_by_host_pid_and_thread(client: interlock.Client) -> None:
    who: list[interlock.Who] = []

    def hold() -> None:
        with client.lock("x"):
            who.append(holder(client))

    thread = threading.Thread(target=hold, name="worker-7")
    thread.start()
    thread.join()
    assert (who[0].pid, who[0].thread) == (os.getpid(), "worker-7")
    assert re.fullmatch(rf".+ pid {os.getpid()} worker-7 \({HERE}:\d+\)", str(who[0]))


def test_each_caller_of_one_line_is_named_as_itself(client: interlock.Client) -> None:
    """A line remembers how its last caller was described."""
    seen: list[str] = []

    def hold() -> None:
        with client.lock("x"):
            seen.append(holder(client).thread)

    for name in ("one", "two", "one"):
        thread = threading.Thread(target=hold, name=name)
        thread.start()
        thread.join()
    hold()
    assert seen == ["one", "two", "one", threading.current_thread().name]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_is_named_by_its_own_pid(client: interlock.Client) -> None:
    def hold() -> int:
        with client.lock("x"):
            return holder(client).pid

    assert hold() == os.getpid()  # the line is known from here on
    child = os.fork()
    if not child:
        with suppress(BaseException):
            os._exit(0 if hold() == os.getpid() else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert hold() == os.getpid()


def test_a_task_is_named_by_its_name_and_line() -> None:
    async def main() -> interlock.Who:
        async with aio.connect("memory://call-sites-async") as client, client.lock("x"):
            return interlock.Who.parse((await client.inspect("x")).holders[0].who)

    async def named() -> interlock.Who:
        return await asyncio.create_task(main(), name="report-3")

    who = asyncio.run(named())
    assert who.thread == "report-3"
    assert who.site.startswith(HERE)


def test_a_timeout_points_at_the_holders_line(client: interlock.Client) -> None:
    with client.lock("x"):
        where = f"{HERE}:{line() - 1}"
        with pytest.raises(interlock.AcquireTimeout) as error, client.lock("x", timeout=0.01):
            pass
    assert f"({where}), token " in str(error.value)
