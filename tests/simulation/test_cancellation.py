"""Cancelled at any await of acquire, release or wait, an operation leaves nothing behind, and others get on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal

import pytest

from interlock.testing.faults import Faults
from tests.simulation.cancelling import Case, Operation, Setup, cancelled_everywhere

Style = Literal["tasks", "threads"]

STYLES = pytest.mark.parametrize("style", ["tasks", "threads"])
MOMENTS = pytest.mark.parametrize("late", [False, True], ids=["as it waits", "as it wakes"])


def must_get_on(case: Case) -> None:
    """The other process takes everything at once: nothing of the cancelled one is in its way."""

    async def take() -> None:
        async with case.other.client.multilock(["r", "r2", "r3"], timeout=0.0):
            pass
        async with case.other.client.semaphore("s", 3, timeout=0.0):
            pass
        async with case.other.client.rwlock("w", timeout=0.0).write():
            pass

    job = case.finish(case.other, take())
    assert job.failure is None, job.failure


def held_by_other(name: str, seconds: float) -> Setup:
    def prepare(case: Case) -> None:
        async def hold() -> None:
            async with case.other.client.lock(name):
                await case.other.runtime.sleep(seconds)

        case.run(case.other, hold())
        case.cluster.world.run(0.01)

    return prepare


def holding(make: Any) -> Setup:
    """I hold something already; it is in `kept`."""

    def prepare(case: Case) -> None:
        async def take() -> None:
            lock = make(case.me.client)
            case.kept["lock"] = lock
            case.kept["lease"] = await lock.acquire()

        case.finish(case.me, take())

    return prepare


def holding_permits(case: Case) -> None:
    """I hold three permits, by two leases."""

    async def take() -> None:
        case.kept["lock"] = semaphore = case.me.client.semaphore("s", 3)
        assert await semaphore.acquire(permits=2)
        assert await semaphore.acquire()

    case.finish(case.me, take())


async def acquire(case: Case) -> None:
    await case.me.client.lock("r").acquire()


async def acquire_in_time(case: Case) -> None:
    assert await case.me.client.lock("r").acquire(timeout=0.1) is None


async def acquire_unfairly(case: Case) -> None:
    await case.me.client.lock("r", fair=False).acquire()


async def acquire_several(case: Case) -> None:
    await case.me.client.multilock(["r", "r2", "r3"]).acquire()


async def acquire_several_in_time(case: Case) -> None:
    assert await case.me.client.multilock(["r", "r2", "r3"]).acquire(timeout=0.1) is None


async def enter_and_leave(case: Case) -> None:
    async with case.me.client.lock("r"):
        await case.me.runtime.sleep(0.1)


async def enter_twice(case: Case) -> None:
    lock = case.me.client.rlock("r")
    async with lock, lock:
        await case.me.runtime.sleep(0.1)


async def write_then_read(case: Case) -> None:
    both = case.me.client.rwlock("w")
    async with both.write(), both.read():
        await case.me.runtime.sleep(0.1)


async def several_permits(case: Case) -> None:
    async with case.me.client.semaphore("s", 3):
        await case.me.runtime.sleep(0.1)


async def iterate(case: Case) -> None:
    lock = case.me.client.lock("r")

    async def steps() -> AsyncGenerator[int, None]:
        async with lock:
            for number in range(2):
                await case.me.runtime.sleep(0.05)
                yield number

    async with aclosing(steps()) as numbers:
        async for _ in numbers:
            await case.me.runtime.sleep(0.05)


async def iterate_within(case: Case) -> None:
    lock = case.me.client.rlock("r")

    async def steps() -> AsyncGenerator[int, None]:
        async with lock:
            yield 1
            await case.me.runtime.sleep(0.05)

    async with lock, aclosing(steps()) as numbers:
        async for _ in numbers:
            await case.me.runtime.sleep(0.05)


async def campaign(case: Case) -> None:
    await case.me.client.election("r").campaign("me")


async def release(case: Case) -> None:
    await case.kept["lease"].release()


async def release_permits(case: Case) -> None:
    await case.kept["lock"].release(3)


async def renew_then_release(case: Case) -> None:
    lease = case.kept["lease"]
    try:
        await lease.renew()
    finally:
        await lease.release()


ACQUIRES: dict[str, tuple[Operation, Setup | None]] = {
    "uncontended": (acquire, None),
    "contended": (acquire, held_by_other("r", 0.3)),
    "timed out": (acquire_in_time, held_by_other("r", 0.5)),
    "unfair": (acquire_unfairly, held_by_other("r", 0.1)),
    "several": (acquire_several, None),
    "several, the last contended": (acquire_several, held_by_other("r3", 0.3)),
    "several, timed out": (acquire_several_in_time, held_by_other("r3", 0.5)),
    "a body": (enter_and_leave, None),
    "a contended body": (enter_and_leave, held_by_other("r", 0.3)),
    "entered twice": (enter_twice, None),
    "writer, then reader": (write_then_read, None),
    "a semaphore": (several_permits, None),
    "an election": (campaign, held_by_other("r", 0.3)),
    "a generator": (iterate, None),
    "a contended generator": (iterate, held_by_other("r", 0.3)),
    "a generator in a body": (iterate_within, None),
}


@STYLES
@MOMENTS
@pytest.mark.parametrize("what", ACQUIRES)
def test_a_cancelled_acquire_leaves_nothing_behind(what: str, style: Style, late: bool) -> None:
    operation, prepare = ACQUIRES[what]
    for case in cancelled_everywhere(operation, prepare, style=style, late=late):
        assert case.left() == []
        assert not case.me.core.entries
        must_get_on(case)


RELEASES: dict[str, tuple[Operation, Setup]] = {
    "a lock": (release, holding(lambda client: client.lock("r"))),
    "several": (release, holding(lambda client: client.multilock(["r", "r2", "r3"]))),
    "permits": (release_permits, holding_permits),
    "renewed first": (renew_then_release, holding(lambda client: client.lock("r"))),
}


@STYLES
@MOMENTS
@pytest.mark.parametrize("what", RELEASES)
def test_a_cancelled_release_is_done_all_the_same(what: str, style: Style, late: bool) -> None:
    operation, prepare = RELEASES[what]
    for case in cancelled_everywhere(operation, prepare, style=style, late=late):
        assert case.left() == []
        must_get_on(case)


@STYLES
@MOMENTS
def test_a_cancelled_acquire_pays_its_debt_when_the_store_did_not_hear(style: Style, late: bool) -> None:
    """The store granted what we never heard of, and does not hear half of the clean-up."""
    faults = Faults(lose_request=0.5, timeout=0.3)
    for case in cancelled_everywhere(acquire, None, style=style, late=late, faults=faults):
        case.me.link.heal()
        case.cluster.world.run(case.cluster.world.time + 5.0)
        assert case.left() == []


async def wait_on_condition(case: Case) -> None:
    async with case.me.client.condition("c") as _:
        await case.me.client.condition("c").wait(0.5)


def notified_by_other(case: Case) -> None:
    async def notify() -> None:
        await case.other.runtime.sleep(0.2)
        async with case.other.client.condition("c") as _:
            await case.other.client.condition("c").notify()

    case.run(case.other, notify())


@STYLES
@MOMENTS
@pytest.mark.parametrize("prepare", [None, notified_by_other], ids=["alone", "notified"])
def test_a_cancelled_wait_stands_on_no_condition(prepare: Setup | None, style: Style, late: bool) -> None:
    for case in cancelled_everywhere(wait_on_condition, prepare, style=style, late=late):
        assert case.left() == []
        assert not case.me.core.entries


@STYLES
@MOMENTS
def test_a_notification_that_meets_a_cancelled_waiter_goes_to_the_next(style: Style, late: bool) -> None:
    def prepare(case: Case) -> None:
        case.kept["woken"] = False
        condition = case.other.client.condition("c")

        async def wait() -> None:
            await case.other.runtime.sleep(0.1)  # behind the one that is cancelled
            async with condition:
                case.kept["woken"] = await condition.wait(10.0)

        async def notify() -> None:
            await case.other.runtime.sleep(0.2)
            async with condition:
                await condition.notify()

        case.run(case.other, wait())
        case.run(case.other, notify())

    async def wait_long(case: Case) -> None:
        condition = case.me.client.condition("c")
        async with condition:
            case.kept["heard"] = await condition.wait(6.0)

    for case in cancelled_everywhere(wait_long, prepare, style=style, late=late):
        if not case.kept.get("heard"):  # cancelled before it could hear of the notification
            assert case.kept["woken"]
            assert case.left() == []


async def meet(case: Case) -> None:
    await case.me.client.barrier("b", 2).wait(0.5)


@STYLES
@MOMENTS
def test_a_cancelled_arrival_does_not_count(style: Style, late: bool) -> None:
    for case in cancelled_everywhere(meet, None, style=style, late=late):
        state: list[int] = []

        async def look(case: Case = case, state: list[int] = state) -> None:
            barrier = case.other.client.barrier("b", 2)
            if not await barrier.broken():
                state.append(await barrier.n_waiting())

        case.finish(case.other, look())
        assert state in ([], [0])
