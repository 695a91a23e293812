"""Under asyncio the event loop never blocks, and a cancelled call disturbs nobody."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest

from interlock import aio
from interlock._core.drive import drive
from interlock._runtime.tasks import Tasks
from interlock.backends.sql.sqlite import SqliteStore, open_store
from interlock.errors import StoreUnavailable, Unreached
from interlock.model import Busy, Granted, Renewal, Renewed
from interlock.testing.lag import at_most, stretched
from tests.patience import PATIENCE
from tests.sqlite.common import claim, eventually
from tests.sqlite.waiting import reading


@asynccontextmanager
async def opened(path: str) -> AsyncIterator[SqliteStore]:
    store = open_store(path, Tasks(), asynchronous=True)
    yield store
    await store.close()


def test_the_loop_runs_on_while_another_process_keeps_the_file_locked(path: str) -> None:
    async def program() -> None:
        async with opened(path) as store:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("begin immediate")
                asking = asyncio.create_task(store.claim(claim()))
                for _ in range(20):
                    await asyncio.sleep(0.001)
                    assert not asking.done(), "the loop stood still until it was answered"
                other.execute("rollback")
            assert isinstance(await asking, Granted)

    asyncio.run(program())


def test_a_cancelled_claim_is_taken_back_after_it_was_made(path: str) -> None:
    async def program() -> None:
        async with opened(path) as store:
            for number in range(50):
                asking = asyncio.create_task(store.claim(claim(id=f"{number}")))
                await asyncio.sleep(0 if number % 2 else 0.0001)
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                await store.release("r", f"{number}")
                assert (await store.inspect("r")).standings == ()

    asyncio.run(program())


def test_every_call_keeps_its_own_time_behind_a_locked_file(path: str) -> None:
    async def program() -> None:
        async with opened(path) as store:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("begin immediate")
                with at_most(0.6 + 0.4):
                    slow = asyncio.create_task(store.claim(claim(), timeout=0.6))
                    await asyncio.sleep(0.01)
                    with at_most(0.1 + 0.25), pytest.raises(StoreUnavailable):
                        await store.renew([Renewal("r", "a", 1.0)], timeout=0.1)
                    with pytest.raises(StoreUnavailable):
                        await slow
                other.execute("rollback")

    asyncio.run(program())


def test_a_thread_renews_through_the_blocking_twin_while_the_loop_is_stuck(path: str) -> None:
    async def program() -> None:
        async with opened(path) as store:
            ttl = stretched(0.3)
            await store.claim(claim(ttl=ttl))
            twin = store.blocking()
            assert store.blocking() is twin
            assert twin.blocking() is twin
            answers: list[object] = []
            stuck = threading.Event()

            def keep() -> None:
                while not stuck.wait(0.05):
                    answers.extend(drive(twin.renew([Renewal("r", "a", ttl)], timeout=PATIENCE)))

            keeper = threading.Thread(target=keep)
            keeper.start()
            time.sleep(2.7 * ttl)  # the loop is blocked for more than twice the ttl
            stuck.set()
            keeper.join()
            assert set(answers) == {Renewed(ttl)}
            assert isinstance(await store.claim(claim(id="b", queued=False)), Busy)

    asyncio.run(program())


def test_the_twin_waits_on_its_own_thread(path: str) -> None:
    async def program() -> None:
        async with opened(path) as store:
            await store.claim(claim(id="a"))
            twin = store.blocking()
            assert isinstance(twin, SqliteStore)
            busy = await store.claim(claim(id="b"))
            assert isinstance(busy, Busy)
            waiter = asyncio.create_task(
                asyncio.to_thread(lambda: drive(twin.wait(claim(id="b"), busy, 30.0)))
            )
            await asyncio.to_thread(eventually, lambda: reading(twin))
            with at_most(1.0):
                await store.release("r", "a")
                await waiter

    asyncio.run(program())


def test_a_hundred_tasks_wait_and_are_let_in_one_by_one(path: str) -> None:
    async def program() -> None:
        async with opened(path) as store:

            async def turn(number: int) -> int:
                mine = claim(id=f"{number}")
                answer = await store.claim(mine)
                while isinstance(answer, Busy):
                    await store.wait(mine, answer, 5.0)
                    answer = await store.claim(mine)
                assert isinstance(answer, Granted)
                assert len((await store.inspect("r")).holders) == 1
                assert await store.release("r", mine.id)
                return answer.token

            tokens = await asyncio.wait_for(
                asyncio.gather(*(turn(number) for number in range(100))), PATIENCE
            )
            assert tokens == sorted(set(tokens))

    asyncio.run(program())


def test_an_unclosed_store_leaves_no_thread_behind(path: str) -> None:
    before = threading.active_count()

    async def program() -> None:
        store = open_store(path, Tasks(), asynchronous=True)
        await store.claim(claim())

    asyncio.run(program())
    eventually(lambda: threading.active_count() <= before)


def test_a_thread_that_cannot_be_started_is_started_for_the_next_call(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the call that could not be made is not made later, for nobody."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def program() -> None:
        async with opened(path) as store:
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                with pytest.raises(Unreached, match="can't start new thread"):
                    await store.claim(claim("r", "never"))
            assert isinstance(await store.claim(claim("other", "b")), Granted)
            assert (await store.inspect("r")).standings == ()

    asyncio.run(program())


def test_a_crowd_that_gives_up_at_the_same_time_is_told_that_it_was_too_late(path: str) -> None:
    """Not that the store is away: it only has too much to do for a last question of each."""

    async def program() -> list[object]:
        async with aio.connect(f"sqlite:///{path}") as client:
            lease = await client.lock("r").acquire()
            assert lease
            crowd = [client.lock("r").acquire(timeout=3.0) for _ in range(500)]
            outcomes: list[object] = await asyncio.gather(*crowd)
            await lease.release()
            return outcomes

    assert asyncio.run(program()) == [None] * 500
