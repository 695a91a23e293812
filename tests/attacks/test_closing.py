"""Attacks on the end of a client: nobody waits for ever in it, and nothing of it lives on."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import interlock
from interlock import aio
from interlock._core import register, watching
from interlock._runtime import lifetimes
from interlock.errors import ClientClosed, StoreUnavailable
from interlock.testing.lag import at_most
from tests.attacks.stage import AsyncStage, Stage, eventually, raises
from tests.patience import PATIENCE

WAITS: dict[str, Callable[[interlock.Client], object]] = {
    "lock": lambda client: client.lock("x").acquire(),
    "with": lambda client: client.lock("x").__enter__(),
    "unfair lock": lambda client: client.lock("x", fair=False).acquire(),
    "rlock": lambda client: client.rlock("x").acquire(),
    "multilock": lambda client: client.multilock(["a", "x"]).acquire(),
    "election": lambda client: client.election("x").campaign("me"),
    "event": lambda client: client.event("e").wait(),
    "latch": lambda client: client.latch("l", 1).wait(),
    "barrier": lambda client: client.barrier("b", 2).wait(),
    "register": lambda client: list(client.register("r").watch()),
    "watch": lambda client: list(client.watch("x")),
    "observe": lambda client: list(client.election("x").observe()),
}


def url(kind: str, tmp_path: Path) -> str:
    return f"memory://{tmp_path}" if kind == "memory" else f"sqlite:///{tmp_path}/locks.db"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("what", WAITS)
def test_whoever_waits_in_a_client_that_is_closed_hears_of_it(
    what: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "RECHECK_PERIOD_S", 0.2)  # who watches a value hears of it at the next look
    monkeypatch.setattr(watching, "RECHECK_PERIOD_S", 0.2)
    with interlock.connect(url(kind, tmp_path)) as other, other.lock("x"):
        client = interlock.connect(url(kind, tmp_path))
        raised: list[BaseException] = []

        def wait() -> None:
            try:
                WAITS[what](client)
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        time.sleep(0.05)  # whether it waits already cannot be seen for all of them
        with at_most(3):
            client.close()
            thread.join(PATIENCE)
        assert not thread.is_alive()
        assert [type(error) for error in raised] == [ClientClosed]
        eventually(lambda: not other.inspect("x").waiters)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_waiter_in_a_closed_client_is_told_at_once(kind: str, tmp_path: Path) -> None:
    with interlock.connect(url(kind, tmp_path)) as other, other.lock("x"):
        client = interlock.connect(url(kind, tmp_path))
        raised: list[BaseException] = []

        def wait() -> None:
            try:
                client.lock("x").acquire()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        eventually(lambda: other.inspect("x").waiters)
        with at_most(1):
            client.close()
            eventually(lambda: raised)
        assert isinstance(raised[0], ClientClosed)
        assert not other.inspect("x").waiters


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_task_that_waits_in_a_closed_client_is_told_at_once(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.connect(url(kind, tmp_path)) as other, other.lock("x"):
            client = aio.connect(url(kind, tmp_path))
            task = asyncio.create_task(client.lock("x").acquire())
            while not (await other.inspect("x")).waiters:
                await asyncio.sleep(0.001)
            with at_most(1):
                await client.close()
                with pytest.raises(ClientClosed):
                    await asyncio.wait_for(task, PATIENCE)
            assert not (await other.inspect("x")).waiters

    asyncio.run(main())


def test_a_close_that_is_cancelled_closes_all_the_same() -> None:
    stage = AsyncStage()
    begun = asyncio.Event()

    async def slowly(*args: object, **options: object) -> bool:
        begun.set()
        await asyncio.sleep(0.05)
        return await stage.store.inner.release(*args, **options)  # type: ignore[arg-type]

    async def main() -> None:
        await stage.client.lock("x").acquire()
        stage.store.instead["release"] = slowly
        closing = asyncio.create_task(stage.client.close())
        await begun.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not (await stage.store.inner.inspect("x")).standings
        job = stage.core.keeper._job
        assert job is None or not job.alive()

    asyncio.run(main())


def test_a_client_closed_while_its_store_is_away_holds_nothing_and_is_closed_in_time() -> None:
    stage = Stage()
    leases = [stage.client.lock(f"x{n}").acquire() for n in range(20)]

    def away(*args: object, **options: object) -> None:
        time.sleep(0.5)  # a request that gets no answer takes its time
        raise StoreUnavailable("no answer")

    stage.store.before["release"] = away
    with at_most(8):
        stage.client.close()
    assert {lease.state for lease in leases if lease} == {interlock.State.RELEASED}


def test_a_lease_granted_to_a_client_that_is_being_closed_is_not_held() -> None:
    stage = Stage()
    stage.store.after["claim"] = lambda *args, **options: stage.client.close()
    with pytest.raises(ClientClosed):
        stage.client.lock("x").acquire()
    assert not stage.store.inner._space.queues


def test_a_claim_whose_asker_has_no_answer_yet_is_taken_back_by_whoever_closes_the_client() -> None:
    stage = Stage()
    answered = threading.Event()
    stage.store.after["claim"] = lambda *args: answered.wait(
        PATIENCE
    )  # granted, and the reply is on its way for long
    raised: list[BaseException] = []

    def take() -> None:
        try:
            stage.client.lock("x").acquire()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    eventually(lambda: stage.store.asked)
    stage.client.close()
    assert "release" in stage.store.asked
    answered.set()
    thread.join(PATIENCE)
    assert [type(error) for error in raised] == [ClientClosed]


def test_clients_nobody_has_any_more_leave_no_thread_behind(tmp_path: Path) -> None:
    before = threading.active_count()
    for n in range(10):
        client = interlock.connect(f"sqlite:///{tmp_path}/locks.db")
        with client.lock(f"x{n}"):
            pass
        del client
    gc.collect()
    eventually(lambda: threading.active_count() <= before)


def test_a_debt_to_a_store_that_is_unfit_neither_storms_nor_stops_the_others() -> None:
    stage = Stage()
    for name in ("one", "two"):
        lease = stage.client.lock(name).acquire()
        assert lease
        stage.store.before["release"] = raises(interlock.StoreUnfit("the disk is full"))
        with pytest.raises(interlock.StoreUnfit):
            lease.release()
    time.sleep(1.2)  # two more tries of the keeper
    assert len(stage.events) < 20
    stage.store.before.clear()
    eventually(lambda: not stage.store.inner._space.queues)
    stage.client.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_who_waits_while_the_process_ends_does_not_line_up_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others would wait behind a process that is gone. One that goes on after all asks again a little later."""
    with interlock.connect(url(kind, tmp_path)) as other, other.lock("x"):
        with interlock.connect(url(kind, tmp_path)) as client:

            def wait() -> None:
                with suppress(ClientClosed):
                    client.lock("x").acquire()

            thread = threading.Thread(target=wait, daemon=True)
            thread.start()
            eventually(
                lambda: any(waiter.age > 0.05 for waiter in other.inspect("x").waiters)
            )  # and knows it
            monkeypatch.setattr(lifetimes, "_clients", weakref.WeakSet([client._core]))
            lifetimes.give_back_everything()  # as when the interpreter exits
            monkeypatch.undo()
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                assert not other.inspect("x").waiters
            eventually(lambda: other.inspect("x").waiters)
        thread.join(PATIENCE)
        assert not thread.is_alive()
