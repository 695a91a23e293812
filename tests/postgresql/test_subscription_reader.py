"""A waiter that waits alone reads its notification itself, and other waiters are never left without a reader."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Callable, Iterator

import pytest

import interlock
from interlock import aio
from interlock.backends.kit import listener
from interlock.backends.kit.reader import WaiterSignal
from interlock.testing.lag import at_most, stretched
from interlock.testing.servers.postgresql import Server, fresh_schema, running
from tests.patience import PATIENCE, until
from tests.subscriptions import SOON, borrower, handed_over, idle_listener, in_thread, listening, waits


@pytest.fixture
def other(url: str) -> Iterator[interlock.Client]:
    """A client with a listener of its own: what it releases reaches the others by the server only."""
    with interlock.connect(f"{url}&connect_timeout=7") as client:
        yield client


@pytest.fixture
def idle_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    idle_listener(monkeypatch)


def subscribed(client: interlock.Client, other: interlock.Client) -> None:
    """One that waited in vain: from now on the subscription stands, and nobody waits."""
    with other.lock("warm-up"):
        while not listening(client).generation:
            assert client.lock("warm-up").acquire(timeout=0.3) is None


def reads_itself(client: interlock.Client) -> bool:
    return isinstance(borrower(client), WaiterSignal)


@pytest.mark.usefixtures("idle_thread")
class TestWhoWaitsAlone:
    def test_a_thread_reads_its_grant_itself(self, url: str, other: interlock.Client) -> None:
        with interlock.connect(url) as client:
            subscribed(client, other)
            assert handed_over(client, other, "x") < SOON

    def test_a_loop_reads_for_its_tasks(self, url: str, other: interlock.Client) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            async with aio.connect(url) as client:
                for name in ("x", "y"):
                    lease = other.lock(name).acquire()
                    assert lease is not None
                    task = asyncio.create_task(client.lock(name).acquire())
                    await asyncio.to_thread(until, waits(other, name))
                    await asyncio.to_thread(until, lambda: borrower(client) is loop)
                    lease.release()
                    with at_most(SOON):
                        held = await task
                    assert held is not None
                    await held.release()

        asyncio.run(main())

    def test_a_thread_is_woken_by_its_own_client(self, url: str, other: interlock.Client) -> None:
        """The grant is in the answer to the release, not in a notification."""
        with interlock.connect(url) as client:
            subscribed(client, other)
            lease = client.lock("x", ttl=5).acquire()  # another ttl: nobody's heir
            assert lease is not None
            thread = in_thread(lambda: client.lock("x").acquire())
            until(lambda: reads_itself(client))
            with at_most(SOON):
                lease.release()
                thread.join(PATIENCE)
            assert not thread.is_alive()


class TestWhoWaitsBesideOthers:
    @pytest.mark.parametrize("granted", [True, False], ids=["with its grant", "in vain"])
    def test_hears_when_the_thread_that_read_has_gone(
        self, granted: bool, url: str, other: interlock.Client
    ) -> None:
        with interlock.connect(url) as client:
            subscribed(client, other)
            first = other.lock("first").acquire()
            assert first is not None
            reader = in_thread(lambda: client.lock("first").acquire(timeout=SOON))
            until(lambda: reads_itself(client))

            def end() -> None:
                if granted:
                    first.release()
                reader.join(PATIENCE)  # it reads for nobody any more

            assert handed_over(client, other, "second", end) < SOON

    def test_two_threads_are_both_woken(self, url: str, other: interlock.Client) -> None:
        with interlock.connect(url) as client:
            subscribed(client, other)
            one = in_thread(lambda: handed_over(client, other, "one"))
            assert handed_over(client, other, "two") < SOON
            one.join(PATIENCE)
            assert not one.is_alive()


class TestWhatEndsTheReading:
    def test_a_lost_subscription_is_made_again_for_a_thread_that_read_itself(
        self, server: Server, url: str, other: interlock.Client
    ) -> None:
        with interlock.connect(url) as client:
            subscribed(client, other)
            for _ in range(3):
                lost = listening(client).generation

                def end(lost: int = lost) -> None:
                    until(lambda: reads_itself(client))
                    server.sql(
                        "select pg_terminate_backend(pid) from pg_stat_activity where query = %s",
                        f'listen "{listening(client).bell}"',
                    )
                    until(lambda: listening(client).generation not in (0, lost))

                assert handed_over(client, other, "x", end) < SOON
                assert handed_over(client, other, "x") < SOON

    def test_a_lost_subscription_is_made_again_for_a_loop(
        self, server: Server, url: str, other: interlock.Client
    ) -> None:
        async def main() -> None:
            loop = asyncio.get_running_loop()
            async with aio.connect(url) as client:
                for _ in range(3):
                    lease = other.lock("x").acquire()
                    assert lease is not None
                    task = asyncio.create_task(client.lock("x").acquire())
                    await asyncio.to_thread(until, waits(other, "x"))
                    await asyncio.to_thread(until, lambda: borrower(client) is loop)
                    lost, bell = listening(client).generation, listening(client).bell
                    server.sql(
                        "select pg_terminate_backend(pid) from pg_stat_activity where query = %s",
                        f'listen "{bell}"',
                    )
                    await asyncio.to_thread(until, _another(client, lost))
                    lease.release()
                    with at_most(SOON):
                        held = await task
                    assert held is not None
                    await held.release()

        asyncio.run(main())

    def test_the_number_that_is_polled_is_not_anothers(self, url: str, other: interlock.Client) -> None:
        """libpq closes its own descriptor when it meets the end of the connection; others may have that number at once."""
        with interlock.connect(url) as client:
            subscribed(client, other)
            subscription = listening(client)._subscription
            assert subscription.fileno() != subscription._pgconn.socket
            with other.lock("x"):
                thread = in_thread(lambda: client.lock("x").acquire(timeout=1.0))
                until(lambda: reads_itself(client))
                subscription.hang_up()
                until(lambda: listening(client)._subscription is not subscription)
                thread.join(PATIENCE)
            assert subscription.fileno() == -1

    def test_a_server_without_a_sign_of_life_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody else notices while a waiter reads: the listener's thread asks, and the answer would come to the waiter."""
        turn = stretched(0.2)  # in which a server that lives must be able to answer
        monkeypatch.setattr(listener, "QUIET_S", turn)
        with running() as server:
            url = server.url(fresh_schema())
            with interlock.connect(url) as client, interlock.connect(f"{url}&connect_timeout=7") as other:
                subscribed(client, other)
                held = other.lock("x").acquire()
                assert held is not None
                thread = in_thread(lambda: client.lock("x").acquire(timeout=PATIENCE))
                until(lambda: reads_itself(client))
                lost = listening(client).generation
                time.sleep(5 * turn)
                assert listening(client).generation == lost, "a server that answers is kept"
                with server.frozen(), at_most(SOON + 2 * turn):
                    until(lambda: listening(client).generation != lost)
                held.release()
                thread.join(PATIENCE)
                assert not thread.is_alive()

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
            until(lambda: reads_itself(client))
            with at_most(0.9):
                client.close()
                thread.join(PATIENCE)
        assert told

    def test_no_file_stays_open(self, url: str, other: interlock.Client) -> None:
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
            until(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_without_files_for_its_pipes_the_listeners_thread_reads_alone(
    url: str, other: interlock.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", full)
    with interlock.connect(url) as client:
        subscribed(client, other)
        assert handed_over(client, other, "x") < SOON
        assert listening(client).reader is None


def _another(client: aio.Client, lost: int) -> Callable[[], bool]:
    """Whether another subscription stands than the one that was lost."""
    return lambda: listening(client).generation not in (0, lost)
