"""A waiter that waits alone reads its grant itself, and other waiters are never left without a reader."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import redis

import interlock
from interlock import aio
from interlock.backends.kit import listener as kit_listener
from interlock.backends.kit.reader import WaiterSignal
from interlock.backends.redis.pubsub import listener
from interlock.testing.lag import at_most
from interlock.testing.servers.redis import Server, running
from tests.attacks.stage import eventually
from tests.ended_loops import abandon, ended_loops
from tests.patience import PATIENCE
from tests.redis.reader import left_to_the_borrower, reading, subscribed
from tests.subscriptions import SOON, borrower, handed_over, idle_listener, in_thread, waits


@pytest.fixture
def other(url: str) -> Iterator[interlock.Client]:
    """Another program's client: what it releases reaches us by the subscription only."""
    with interlock.connect(url) as client:
        yield client


@pytest.fixture
def idle_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    idle_listener(monkeypatch)


def settled(client: aio.Client) -> bool:
    """Whether somebody waits who was refused after the subscription stood, and has nothing to look for any more."""
    store: Any = client._core.store
    now = store._listener.generation
    return bool(
        now and store._listener.topics and any(asked == now for asked, _ in store._own_claims.places.values())
    )


def another(client: aio.Client, lost: Any) -> bool:
    """Whether the reading that was lost is not the one any more."""
    return reading(client) is not lost


async def lent_to_this_loop(client: aio.Client) -> Any:
    """The reading, once this loop has borrowed it."""
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(eventually, lambda: borrower(client) is loop)
    return reading(client)


@pytest.mark.usefixtures("idle_thread")
class TestWhoWaitsAlone:
    def test_a_thread_reads_its_grant_itself(self, url: str, other: interlock.Client) -> None:
        with interlock.connect(url) as client:
            subscribed(client, other)
            assert handed_over(client, other, "x") < SOON

    def test_a_loop_reads_for_its_tasks(self, url: str, other: interlock.Client) -> None:
        async def main() -> None:
            async with aio.connect(url) as client:
                for name in ("x", "y", "z"):
                    lease = other.lock(name).acquire()
                    assert lease is not None
                    waiting = [asyncio.create_task(client.lock(name).acquire()) for _ in range(3)]
                    await asyncio.to_thread(eventually, waits(other, name))
                    await lent_to_this_loop(client)
                    lease.release()
                    with at_most(SOON):
                        for _ in waiting:
                            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                            task = done.pop()
                            waiting.remove(task)
                            held = task.result()
                            assert held is not None
                            await held.release()

        asyncio.run(main())


class TestWhoWaitsBesideOthers:
    @pytest.mark.parametrize("granted", [True, False], ids=["with its grant", "in vain"])
    def test_hears_when_the_thread_that_read_has_gone(
        self, granted: bool, server: Server, url: str, other: interlock.Client
    ) -> None:
        with interlock.connect(url) as client:
            subscribed(client, other)
            first, second = other.lock("first").acquire(), other.lock("second").acquire()
            assert first is not None
            assert second is not None
            reader = in_thread(lambda: client.lock("first").acquire(timeout=SOON))
            eventually(lambda: isinstance(borrower(client), WaiterSignal))
            got: list[float] = []

            def take() -> None:
                with client.lock("second"):
                    got.append(time.monotonic())

            thread = in_thread(take)
            eventually(waits(other, "second"))
            left_to_the_borrower(client, server)
            if granted:
                first.release()
            reader.join(PATIENCE)  # it reads for nobody any more
            released = time.monotonic()
            second.release()
            thread.join(PATIENCE)
            if not granted:
                first.release()
            assert got[0] - released < SOON

    @ended_loops
    def test_does_not_depend_on_a_loop_that_is_stuck(self, url: str, other: interlock.Client) -> None:
        """One asyncio client, two loops in two threads: the first borrows the reading, and then blocks."""
        client = aio.connect(url)
        stuck, over = threading.Event(), threading.Event()
        got: list[float] = []
        held = [other.lock(name).acquire() for name in ("blocked", "wanted")]

        async def block() -> None:
            task = asyncio.create_task(client.lock("blocked").acquire())
            while borrower(client) is not asyncio.get_running_loop():
                await asyncio.sleep(0.01)
            stuck.set()
            over.wait(PATIENCE)  # what no task should do
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        async def take() -> None:
            async with client.lock("wanted"):
                got.append(time.monotonic())

        first = in_thread(lambda: asyncio.run(block()))
        assert stuck.wait(PATIENCE)
        second = in_thread(lambda: asyncio.run(take()))
        eventually(waits(other, "wanted"))
        released = time.monotonic()
        for lease in held:
            assert lease is not None
            lease.release()
        second.join(PATIENCE)
        over.set()
        first.join(PATIENCE)
        assert got[0] - released < SOON
        asyncio.run(client.close())


class TestWhatEndsTheReading:
    def test_a_lost_subscription_is_made_again_for_a_thread_that_read_itself(
        self, server: Server, url: str, other: interlock.Client
    ) -> None:
        with interlock.connect(url) as client, redis.Redis(port=server.port) as admin:
            subscribed(client, other)
            for _ in range(3):
                lost = threading.Timer(0.2, lambda: admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub"))
                lost.start()
                assert handed_over(client, other, "x") < SOON
                lost.join()
                assert handed_over(client, other, "x") < SOON

    def test_a_lost_subscription_is_made_again_for_a_loop(
        self, server: Server, url: str, other: interlock.Client
    ) -> None:
        async def main() -> None:
            async with aio.connect(url) as client:
                with redis.Redis(port=server.port) as admin:
                    for _ in range(3):
                        lease = other.lock("x").acquire()
                        assert lease is not None
                        task = asyncio.create_task(client.lock("x").acquire())
                        await asyncio.to_thread(eventually, waits(other, "x"))
                        lost = await lent_to_this_loop(client)
                        admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
                        await asyncio.to_thread(eventually, partial(another, client, lost))
                        lease.release()
                        with at_most(SOON):
                            held = await task
                        assert held is not None
                        await held.release()

        asyncio.run(main())

    @ended_loops
    def test_a_client_serves_the_next_loop_when_the_one_that_read_has_ended(
        self, url: str, other: interlock.Client
    ) -> None:
        client = aio.connect(url)

        async def take() -> None:
            lease = other.lock("x").acquire()
            assert lease is not None
            task = asyncio.create_task(client.lock("x").acquire())
            await asyncio.to_thread(eventually, waits(other, "x"))
            await asyncio.to_thread(eventually, lambda: reading(client) is not None)
            lease.release()
            with at_most(SOON):
                held = await task
            assert held is not None
            await held.release()

        for _ in range(3):
            asyncio.run(take())
        with at_most(0.9):
            asyncio.run(client.close())

    @ended_loops
    @pytest.mark.parametrize("lends", [True, False])
    def test_one_left_behind_on_a_closed_loop_keeps_no_thread_and_nobody_else_waiting(
        self, monkeypatch: pytest.MonkeyPatch, url: str, other: interlock.Client, lends: bool
    ) -> None:
        monkeypatch.setattr(listener, "IDLE_CLOSE_S", 0.3)
        monkeypatch.setattr(kit_listener, "QUIET_S", 0.1)
        monkeypatch.setattr(kit_listener, "POLLS", lends)
        client: Any = aio.connect(url)
        with other.lock("x"):
            loop = asyncio.new_event_loop()
            task = loop.create_task(client.lock("x").acquire())
            loop.run_until_complete(asyncio.to_thread(eventually, lambda: settled(client)))
            thread = client._core.store._listener._thread
            time.sleep(0.5)
            assert thread.is_alive(), "somebody waits"
            loop.close()
            with at_most(SOON):
                thread.join(PATIENCE)
            assert not thread.is_alive()

        async def take() -> None:
            lease = other.lock("y").acquire()
            assert lease is not None
            later = asyncio.create_task(client.lock("y").acquire())
            await asyncio.to_thread(eventually, waits(other, "y"))
            await asyncio.to_thread(eventually, lambda: client._core.store._listener.generation)
            lease.release()
            with at_most(SOON):
                held = await later
            assert held is not None
            await held.release()
            await client.close()

        asyncio.run(take())
        abandon(task)

    @ended_loops
    def test_nobody_reconnects_for_one_left_behind_on_a_closed_loop(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(kit_listener, "POLLS", False)  # its thread reads, and notices at once
        with running() as server:
            client: Any = aio.connect(server.url())
            other = interlock.connect(server.url())
            assert other.lock("x").acquire()
            loop = asyncio.new_event_loop()
            task = loop.create_task(client.lock("x").acquire())
            loop.run_until_complete(asyncio.to_thread(eventually, lambda: settled(client)))
            thread = client._core.store._listener._thread
            loop.close()
            server.kill()
            with at_most(SOON):
                thread.join(PATIENCE)
            assert not thread.is_alive()
            server.restart()
            abandon(task)
            other.close()
            asyncio.run(client.close())

    def test_a_thread_that_reads_itself_learns_that_its_client_was_closed(
        self, url: str, other: interlock.Client
    ) -> None:
        client = interlock.connect(url)
        subscribed(client, other)
        told: list[BaseException] = []

        def take() -> None:
            try:
                client.lock("x").acquire()
            except interlock.ClientClosed as error:
                told.append(error)

        with other.lock("x"):
            thread = in_thread(take)
            eventually(lambda: isinstance(borrower(client), WaiterSignal))
            with at_most(0.9):
                client.close()
                thread.join(PATIENCE)
        assert told

    def test_a_thread_that_reads_itself_is_called_back_from_a_server_without_a_sign_of_life(
        self, monkeypatch: pytest.MonkeyPatch, server: Server, url: str, other: interlock.Client
    ) -> None:
        monkeypatch.setattr(kit_listener, "QUIET_S", 0.2)
        with interlock.connect(url) as client:
            subscribed(client, other)
            held = other.lock("x").acquire()
            assert held is not None
            thread = in_thread(lambda: client.lock("x").acquire(timeout=PATIENCE))
            eventually(lambda: isinstance(borrower(client), WaiterSignal))
            left_to_the_borrower(client, server)
            lost = reading(client)
            with server.frozen(), at_most(SOON):
                eventually(lambda: not lost._waiting)
            held.release()
            thread.join(PATIENCE)

    def test_a_loop_forgets_the_number_of_a_subscription_that_ended_for_want_of_waiters(
        self, monkeypatch: pytest.MonkeyPatch, url: str, other: interlock.Client
    ) -> None:
        """Or it would watch, under that number, what somebody opens next."""
        monkeypatch.setattr(listener, "IDLE_CLOSE_S", 0.3)
        monkeypatch.setattr(kit_listener, "QUIET_S", 0.1)

        async def main() -> None:
            loop: Any = asyncio.get_running_loop()
            async with aio.connect(url) as client:
                with other.lock("x"):
                    while borrower(client) is not loop:
                        assert await client.lock("x").acquire(timeout=0.2) is None
                ended = reading(client)
                number = ended._connection.fileno()
                async with asyncio.timeout(PATIENCE):
                    while ended._connection.fileno() >= 0:
                        await asyncio.sleep(0.01)
                assert number not in loop._selector.get_map()

        asyncio.run(main())

    def test_one_that_is_let_in_by_its_own_client_is_woken_though_it_reads(self, url: str) -> None:
        """A grant in a script's reply does not come by the subscription: the wake pipe must wake the reading thread."""
        with interlock.connect(url) as client, interlock.connect(url) as other:
            subscribed(client, other)
            lease = client.lock("x", ttl=5).acquire()  # another ttl: nobody's heir
            assert lease is not None
            got: list[float] = []

            def take() -> None:
                with client.lock("x"):
                    got.append(time.monotonic())

            thread = in_thread(take)
            eventually(lambda: isinstance(borrower(client), WaiterSignal))
            with at_most(SOON):
                lease.release()
                thread.join(PATIENCE)
            assert got

    def test_no_file_stays_open_after_any_of_them(
        self, server: Server, url: str, other: interlock.Client
    ) -> None:
        def once() -> None:
            async def wait_in_vain() -> None:
                async with aio.connect(url) as client:
                    assert await client.lock("x").acquire(timeout=0.1) is None

            asyncio.run(wait_in_vain())
            with interlock.connect(url) as client:
                assert client.lock("x").acquire(timeout=0.1) is None

        with other.lock("x"):
            once()
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(5):
                once()
            eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)
