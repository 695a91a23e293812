"""Attacks on the loss signal: whoever has lost a lease is told, once, wherever it stands."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

import interlock
from interlock import aio
from interlock._core.states import LeaseEvent, State
from interlock.testing.lag import at_most, stretched
from tests.attacks.stage import AsyncStage, Stage, eventually
from tests.ended_loops import abandon
from tests.patience import PATIENCE


@pytest.mark.parametrize("kind", ["rlock", "rwlock"])
def test_a_loss_after_an_inner_body_has_ended_still_cancels_the_outer_body(kind: str) -> None:
    async def main() -> None:
        async with aio.connect("memory://") as client:
            lock = client.rlock("x", ttl=0.3) if kind == "rlock" else client.rwlock("x", ttl=0.3).write()

            async def attacked() -> None:
                async with lock:
                    async with lock:
                        pass
                    await client.evict("x", reason="attack")
                    async with asyncio.timeout(PATIENCE):
                        await asyncio.sleep(60)

            with pytest.raises(interlock.LeaseLost):
                await attacked()

    asyncio.run(main())


def test_a_loss_in_an_inner_body_takes_back_only_its_own_cancellation() -> None:
    async def main() -> None:
        async with aio.connect("memory://") as client:
            lock = client.rlock("x", ttl=0.3)
            task = asyncio.current_task()
            assert task is not None

            async def attacked() -> None:
                async with lock, lock:
                    await client.evict("x", reason="attack")
                    await asyncio.sleep(60)

            with pytest.raises(interlock.LeaseLost):
                await attacked()
            assert task.cancelling() == 0
            await asyncio.sleep(0)

    asyncio.run(main())


def test_a_lease_lost_while_its_doubt_is_being_reported_is_reported_lost_once() -> None:
    stage = Stage()
    lost: list[object] = []
    lease = held(stage.client.lock("x", on_lost=lost.append))

    class Interleaved:
        """Another thread finds the loss just after the first has written down its doubt."""

        armed = True

        def __enter__(self) -> None:
            real.__enter__()

        def __exit__(self, *error: object) -> None:
            real.__exit__(None, None, None)
            if self.armed and lease._state is State.DOUBTFUL:
                self.armed = False
                lease._move(LeaseEvent.LAPSED, "lapsed")

        def _is_owned(self) -> bool:
            return real._is_owned()

    real = stage.core.mutex
    stage.core.mutex = Interleaved()
    lease._on_no_reply()
    stage.core.mutex = real
    eventually(lambda: lost)
    assert [type(event).__name__ for event in stage.events].count("Lost") == 1
    stage.client.close()


def test_a_lease_whose_task_was_left_on_a_closed_loop_is_not_renewed_for_ever() -> None:
    stage = AsyncStage()
    held = threading.Event()

    async def hold() -> None:
        async with stage.client.lock("x", ttl=0.3):
            held.set()
            await asyncio.sleep(60)

    loop = asyncio.new_event_loop()
    task = loop.create_task(hold())
    run_until(loop, held.is_set)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    with interlock_client(stage) as other:
        assert other.lock("x").acquire(timeout=PATIENCE)
    abandon(task)


def test_the_place_of_a_waiter_left_on_a_closed_loop_is_not_kept_for_ever() -> None:
    stage = AsyncStage()
    with interlock_client(stage) as other:
        holder = other.lock("x").acquire()
        assert holder
        loop = asyncio.new_event_loop()
        task = loop.create_task(stage.client.lock("x", ttl=0.3).acquire())
        run_until(loop, lambda: len(other.inspect("x").waiters) == 1)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        eventually(lambda: not other.inspect("x").waiters)
        holder.release()
        abandon(task)


def run_until(loop: asyncio.AbstractEventLoop, fact: Callable[[], object]) -> None:
    """Run a loop until something is so, and leave its tasks where they are."""
    eventually(lambda: fact() or loop.run_until_complete(asyncio.sleep(0.001)))


def held(lock: interlock.Lock) -> interlock.Lease:
    lease = lock.acquire()
    assert lease
    return lease


def interlock_client(stage: AsyncStage) -> interlock.Client:
    return Stage(shared=stage.plain.inner._space).client


def test_a_loss_reaches_its_task_on_whichever_loop_that_runs() -> None:
    async def outer() -> None:
        async with aio.connect("memory://two-loops") as client, client.lock("mine"):
            with at_most(3):
                got = await asyncio.to_thread(asyncio.run, inner(client))
                assert got == "lost"

    async def inner(client: aio.Client) -> str:
        try:
            async with client.lock("x", ttl=0.3):
                await client.evict("x", reason="attack")
                async with asyncio.timeout(PATIENCE):
                    await asyncio.sleep(60)
        except interlock.LeaseLost:
            return "lost"
        return "not told"

    asyncio.run(outer())


def test_on_lost_is_called_even_when_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    lost: list[object] = []
    lease = stage.client.lock("x", on_lost=lost.append).acquire()
    assert lease

    def full(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        lease._move(LeaseEvent.LAPSED, "lapsed")
    eventually(lambda: lost)
    stage.client.close()


def test_a_listener_that_ends_its_thread_does_not_end_renewal() -> None:
    def listener(event: object) -> None:
        if threading.current_thread().name == "interlock-keeper":
            raise SystemExit

    with interlock.connect("memory://listener", listener=listener) as client:
        ttl = stretched(0.3)
        lock = client.lock("x", ttl=ttl)
        with lock as lease:
            client.lock("lost", ttl=0.05, renew=False).acquire()  # reported lost on the keeper's thread
            time.sleep(2 * ttl)  # twice the ttl: whoever renewed it must still do so
            lease.check()


def test_a_lock_is_not_shown_as_locked_after_its_lease_has_run_out() -> None:
    stage = Stage()
    lock = stage.client.lock("x", ttl=0.1, renew=False)
    assert lock.acquire()
    stage.core.keeper.stop_soon()
    time.sleep(0.12)  # what is tested is that nothing but the clock is needed
    assert "unlocked" in repr(lock)
    stage.client.close()
