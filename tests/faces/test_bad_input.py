"""Bad input: a clear error of the right builtin kind, on every store alike, and nothing is left behind."""

from __future__ import annotations

import asyncio
import math
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import interlock
from interlock import aio
from interlock._core.drive import drive
from interlock._core.register import Cell
from interlock.errors import ClientClosed, InvalidName, InvalidSetting
from interlock.testing.conformance import got

Client = Any


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{uuid4().hex}" if request.param == "memory" else f"sqlite:///{tmp_path}/locks.db"


@pytest.fixture(params=["sync", "async"])
def attempt(request: pytest.FixtureRequest, url: str) -> Iterator[Callable[[Callable[[Client], Any]], Any]]:
    """Calls `use(client)` under one of the faces, and sees that nothing stands afterwards."""

    def use_sync(use: Callable[[Client], Any]) -> Any:
        with interlock.connect(url) as client:
            return use(client)

    def use_async(use: Callable[[Client], Any]) -> Any:
        async def main() -> Any:
            async with aio.connect(url) as client:
                return await got(use(client))

        return asyncio.run(main())

    yield use_sync if request.param == "sync" else use_async
    with interlock.connect(url) as client:
        assert list(client.scan()) == []
        for kind in ("register", "event"):
            value = getattr(client, kind)("x")
            assert not (value.read().version if kind == "register" else value.is_set())


NAMED: dict[str, Callable[[Client, Any], Any]] = {
    "lock": lambda client, name: client.lock(name),
    "rlock": lambda client, name: client.rlock(name),
    "rwlock": lambda client, name: client.rwlock(name),
    "semaphore": lambda client, name: client.semaphore(name, 2),
    "bounded_semaphore": lambda client, name: client.bounded_semaphore(name, 2),
    "multilock": lambda client, name: client.multilock(["fine", name]),
    "election": lambda client, name: client.election(name),
    "register": lambda client, name: client.register(name),
    "event": lambda client, name: client.event(name),
    "latch": lambda client, name: client.latch(name, 2),
    "barrier": lambda client, name: client.barrier(name, 2),
    "condition": lambda client, name: client.condition(name),
    "guard": lambda client, name: client.guard(name),
    "inspect": lambda client, name: client.inspect(name),
    "evict": lambda client, name: client.evict(name, reason="a drill"),
}
BAD_NAMES = ["", "x" * 1025, "é" * 513, "a\x00b", "a\nb", "\x7f", "\x85", "\u2028", "\ud800", "a\udfffb"]


def test_a_value_that_is_nested_too_deeply_is_refused(attempt: Any) -> None:
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]
    with pytest.raises(InvalidSetting, match="nested too deeply"):
        attempt(lambda client: client.register("x").compare_and_set(0, deep))
    while deep:  # or its end would be as deep
        deep = deep[0]


@pytest.mark.parametrize("kind", NAMED)
def test_a_name_no_store_can_keep_is_refused_everywhere(attempt: Any, kind: str) -> None:
    def use(client: Client) -> None:
        for name in BAD_NAMES:
            with pytest.raises(InvalidName) as refusal:
                answer = NAMED[kind](client, name)
                if hasattr(answer, "send"):  # a coroutine: it is refused when it is awaited
                    answer.send(None)
            assert isinstance(refusal.value, ValueError)
        for other in (None, 7, b"x", 1.5):
            with pytest.raises(TypeError):
                answer = NAMED[kind](client, other)
                if hasattr(answer, "send"):
                    answer.send(None)

    attempt(use)


@pytest.mark.parametrize(
    "name", ["/", " ", "{x}", "%s", "é", "日本 🔒", "a/b//c", "'; --", "..", "x" * 1024, "🔒" * 256]
)
def test_any_printable_name_works_everywhere(attempt: Any, name: str) -> None:
    def use(client: Client) -> Any:
        async def all_of_them() -> None:
            for lock in (
                client.lock(name),
                client.rlock(name),
                client.semaphore(name),
                client.multilock([name]),
            ):
                assert await got(lock.acquire(timeout=5))
                await got(lock.release())
            event = client.event(name)
            await got(event.set())
            assert await got(event.is_set())
            await got(event.clear())
            condition = client.condition(name)
            await got(condition.acquire())
            assert not await got(condition.wait(0.001))
            await got(condition.release())

        return all_of_them()

    def drive_it(client: Client) -> Any:
        from interlock._core.drive import drive

        coroutine = use(client)
        return coroutine if isinstance(client, aio.Client) else drive(coroutine)

    attempt(drive_it)


LOCKS = ["lock", "rlock", "rwlock", "semaphore", "bounded_semaphore", "multilock", "election"]


def made(client: Client, kind: str, **options: Any) -> Any:
    return getattr(client, kind)(["x"] if kind == "multilock" else "x", **options)


@pytest.mark.parametrize("kind", LOCKS)
def test_a_bad_ttl_or_timeout_is_refused_when_the_lock_is_made(attempt: Any, kind: str) -> None:
    def use(client: Client) -> None:
        for ttl in (0, -1, 0.001, math.nan, math.inf, 1e12, 10**400):
            with pytest.raises(InvalidSetting, match="ttl must be between"):
                made(client, kind, ttl=ttl)
        for no_number in ("5", True, [5], 5j):
            with pytest.raises(TypeError, match="ttl must be a number of seconds"):
                made(client, kind, ttl=no_number)
        for timeout in (-2, -0.1, math.nan):
            with pytest.raises(ValueError, match="timeout value must be"):
                made(client, kind, timeout=timeout)
        for timeout in (math.inf, 1e100):
            with pytest.raises(OverflowError):
                made(client, kind, timeout=timeout)
        with pytest.raises(TypeError):
            made(client, kind, timeout="soon")
        with pytest.raises(TypeError, match="on_lost must be callable"):
            made(client, kind, on_lost="me")

    attempt(use)


@pytest.mark.parametrize("kind", ["lock", "rlock", "rwlock", "semaphore", "multilock"])
def test_a_bad_hold_is_refused(attempt: Any, kind: str) -> None:
    def use(client: Client) -> None:
        for hold in (0, -1, math.nan, math.inf):
            with pytest.raises(InvalidSetting, match="max_hold must be"):
                made(client, kind, max_hold=hold)
        if kind in ("lock", "rlock", "semaphore"):
            with pytest.raises(InvalidSetting, match="min_hold must not exceed max_hold"):
                made(client, kind, min_hold=2, max_hold=1)

    attempt(use)


COUNTED: dict[str, Callable[[Client, Any], Any]] = {
    "capacity of a semaphore": lambda client, count: client.semaphore("x", count),
    "capacity of a bounded semaphore": lambda client, count: client.bounded_semaphore("x", count),
    "count of a latch": lambda client, count: client.latch("x", count),
    "parties of a barrier": lambda client, count: client.barrier("x", count),
}


@pytest.mark.parametrize("what", COUNTED)
def test_a_bad_count_is_refused(attempt: Any, what: str) -> None:
    def use(client: Client) -> None:
        for count in (0, -1, 2**31, 10**30):
            with pytest.raises(InvalidSetting):
                COUNTED[what](client, count)
        for no_count in (1.0, "1", True, None):
            with pytest.raises(TypeError):
                COUNTED[what](client, no_count)

    attempt(use)


CALLS: dict[str, Callable[[Client, Any], Any]] = {
    "acquire of a lock": lambda client, timeout: client.lock("x").acquire(timeout=timeout),
    "acquire of an rlock": lambda client, timeout: client.rlock("x").acquire(timeout=timeout),
    "acquire of a semaphore": lambda client, timeout: client.semaphore("x").acquire(timeout=timeout),
    "acquire of a multilock": lambda client, timeout: client.multilock(["x"]).acquire(timeout=timeout),
    "campaign": lambda client, timeout: client.election("x").campaign(timeout=timeout),
    "wait for an event": lambda client, timeout: client.event("x").wait(timeout),
    "wait for a latch": lambda client, timeout: client.latch("x", 1).wait(timeout),
    "wait at a barrier": lambda client, timeout: client.barrier("x", 2).wait(timeout),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_bad_timeout_of_a_call_is_refused_as_threading_does(attempt: Any, call: str) -> None:
    for timeout, kind in ((-2, ValueError), (math.nan, ValueError), (1e100, OverflowError), ("1", TypeError)):
        with pytest.raises(kind):
            attempt(lambda client, timeout=timeout: CALLS[call](client, timeout))


def test_a_call_that_may_not_block_takes_no_timeout(attempt: Any) -> None:
    for kind in ("lock", "rlock", "semaphore"):
        with pytest.raises(ValueError, match="can't specify a timeout for a non-blocking call"):
            attempt(lambda client, kind=kind: made(client, kind).acquire(False, 1))


def test_a_closed_client_says_so(attempt: Any) -> None:
    kept: list[Any] = []
    attempt(lambda client: kept.extend([client, client.lock("x"), client.event("x")]))
    client, lock, event = kept
    for call in (lambda: client.lock("y"), lock.acquire, event.set, lambda: client.inspect("x")):
        with pytest.raises(ClientClosed):
            answer: Any = call()
            answer.send(None)


def test_the_lock_of_a_condition_must_be_one(attempt: Any) -> None:
    with pytest.raises(TypeError, match="needs acquire and release"):
        attempt(lambda client: client.condition("x", 7))


def test_the_action_of_a_barrier_must_be_callable(attempt: Any) -> None:
    with pytest.raises(TypeError, match=r"action must be callable"):
        attempt(lambda client: client.barrier("x", 2, "me"))


def test_a_mismatch_speaks_of_what_the_user_has_set() -> None:
    with interlock.connect(f"memory://{uuid4().hex}") as client:
        client.latch("latch", 3).count_down()
        with pytest.raises(interlock.SettingsMismatch, match=r"a count of 4.* a count of 3.* the same count"):
            client.latch("latch", 4).count()
        client.barrier("barrier", 3).abort()
        with pytest.raises(interlock.SettingsMismatch, match=r"2 parties.* 3 parties.* the same number"):
            client.barrier("barrier", 2).abort()
        with client.rwlock("rw").read():
            with pytest.raises(
                interlock.SettingsMismatch, match=r"capacity 1.* a read-write lock.* same kind"
            ):
                client.lock("rw").acquire()
        with client.semaphore("sem", capacity=3):
            with pytest.raises(
                interlock.SettingsMismatch, match=r"a read-write lock.* capacity 3.* same kind"
            ) as met:
                client.rwlock("sem").write().acquire()
    assert str(pickle.loads(pickle.dumps(met.value))) == str(met.value)
    assert "2147483647" not in str(met.value)


def test_min_hold_has_the_bounds_of_a_ttl() -> None:
    with interlock.connect(f"memory://{uuid4().hex}") as client:
        client.lock("x", min_hold=365 * 86400.0)
        for seconds in (365 * 86400.0 + 1, 1e300):
            with pytest.raises(interlock.InvalidSetting, match="min_hold must be at most"):
                client.lock("x", min_hold=seconds)


@pytest.mark.parametrize(
    "value",
    [1, "text", True, [], [1], [1, "2", 3], {}, {"parties": 2}, {"parties": "2"}, [[1], 2, 3], {"a": None}],
    ids=str,
)
def test_what_another_program_left_in_a_latch_or_a_barrier_is_an_error_of_ours(value: Any) -> None:
    with interlock.connect(f"memory://{uuid4().hex}") as client:
        for kind in ("latch", "barrier"):
            assert drive(Cell(client._core, kind, "x").compare_and_set(0, value))
        latch, barrier = client.latch("x", 2), client.barrier("x", 2)
        calls: list[Callable[[], Any]] = [latch.count, latch.count_down, lambda: latch.wait(0)]
        calls += [lambda: barrier.wait(1), lambda: barrier.n_waiting, lambda: barrier.broken, barrier.abort]
        for call in calls:
            with pytest.raises(interlock.StoreUnfit, match="interlock did not write"):
                call()
        latch.reset()
        barrier.reset()
        assert (latch.count(), barrier.n_waiting) == (2, 0)
