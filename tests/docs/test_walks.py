"""The walks of docs/ARCHITECTURE.md are true: the methods are called, in the order that the page tells."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock.testing.lag import stretched
from interlock.testing.servers.etcd import steady
from interlock.testing.servers.redis import running
from interlock.testing.servers.redlock import quorum
from tests.docs.pages import Walk, walks
from tests.patience import PATIENCE

PACKAGE = Path(interlock.__file__).parent

Calls = list[tuple[str, str]]


def page(number: int) -> Walk:
    return next(walk for walk in walks() if walk.title == str(number))


def recorder(calls: Calls) -> Callable[[FrameType, str, Any], None]:
    """A profile function that notes each call into the package: its file, and its name without the class."""

    def note(frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in path.parents:
            calls.append((path.relative_to(PACKAGE).as_posix(), frame.f_code.co_name))

    return note


@contextmanager
def recorded(calls: Calls) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(recorder(calls))
    try:
        yield
    finally:
        sys.setprofile(before)


def missed(walk: Walk, calls: Calls) -> str | None:
    """The first step that does not come after the steps before it; None if all do."""
    seen = iter(calls)
    for path, step in walk.steps:
        if (path, step.rpartition(".")[2]) not in seen:
            return f"{path}: {step}"
    return None


async def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_the_walk_over_sqlite(tmp_path: Path) -> None:
    calls: Calls = []
    with interlock.connect(f"sqlite:///{tmp_path}/locks.db") as client:
        with client.lock("x"):
            pass
        with recorded(calls):
            with client.lock("x"):
                pass
    assert missed(page(1), calls) is None, calls


@pytest.mark.server
def test_the_walk_over_redis() -> None:
    calls: Calls = []
    walk = page(2)
    asleep = Walk("2", walk.steps[: 1 + walk.steps.index(("_runtime/tasks.py", "Tasks.wait"))])

    async def holding(client: interlock.aio.Client) -> None:
        async with client.lock("x"):
            pass

    async def contend(url: str) -> None:
        async with interlock.aio.connect(url) as client, interlock.aio.connect(url) as other:
            for _ in range(2):  # the second time it is connected and subscribed
                calls.clear()
                lease = await other.lock("x").acquire()
                assert lease
                with recorded(calls):
                    waiter = asyncio.create_task(holding(client))
                    await until(lambda: missed(asleep, calls) is None)
                    await lease.release()
                    await asyncio.wait_for(waiter, PATIENCE)

    with running() as server:
        threading.setprofile(recorder(calls))  # the subscription is read by a thread
        try:
            asyncio.run(contend(server.url()))
        finally:
            threading.setprofile(None)
    assert missed(walk, calls) is None, calls


@pytest.mark.server
def test_the_walk_over_redlock() -> None:
    calls: Calls = []
    with quorum(3) as servers:
        threading.setprofile(recorder(calls))  # the keeper's thread is the one that renews
        try:
            with interlock.connect(servers.url()) as client:
                with client.lock("x", ttl=stretched(0.6)):
                    end = time.monotonic() + PATIENCE
                    while missed(page(3), calls) is not None and time.monotonic() < end:
                        time.sleep(0.05)
        finally:
            threading.setprofile(None)
    assert missed(page(3), calls) is None, calls


@pytest.mark.server
def test_the_walk_of_a_loss_on_etcd() -> None:
    calls: Calls = []

    async def lose(url: str) -> None:
        async with (
            interlock.aio.connect(url, ttl=stretched(2.0)) as client,
            interlock.aio.connect(url) as other,
        ):
            with pytest.raises(interlock.LeaseLost):
                async with client.lock("x"):
                    await other.evict("x", reason="drill")
                    await asyncio.sleep(PATIENCE)

    url = steady().url(f"{uuid4().hex}/")
    threading.setprofile(recorder(calls))  # the keeper's thread learns it, and another calls listeners
    try:
        with recorded(calls):
            asyncio.run(lose(url))
    finally:
        threading.setprofile(None)
    assert missed(page(4), calls) is None, calls


def test_a_walk_that_is_not_true_is_noticed() -> None:
    walk = Walk("0", (("a.py", "A.first"), ("b.py", "second")))
    assert missed(walk, [("a.py", "first"), ("c.py", "other"), ("b.py", "second")]) is None
    assert missed(walk, [("b.py", "second"), ("a.py", "first")]) == "b.py: second"
    assert missed(walk, [("a.py", "first")]) == "b.py: second"
