"""Releases that a node has not acknowledged: it gets them when it is back, and nobody else waits for that."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Collection
from functools import partial
from uuid import uuid4

import pytest

from interlock._core.runtime import Job
from interlock._runtime.tasks import Tasks
from interlock.backends.redlock.algorithm.membership import MAX_PENDING_RELEASES, Membership
from interlock.backends.redlock.store import RedlockStore
from interlock.backends.redlock.transport.timeouts import Timeouts
from interlock.backends.redlock.wire.requests import OnReply, Release, Request
from interlock.model import Claim, Granted
from interlock.testing.servers.redlock import DURABLE, Servers, quorum, say
from interlock.urls import open_store
from tests.patience import PATIENCE
from tests.redlock.colours import COLOURS, patiently, run, started, until

LONG = 300.0
NAMES = ("a", "b", "c", "d")


async def owing(servers: Servers, store: RedlockStore) -> None:
    """The first node is dead, and has not acknowledged some releases."""
    await started(store)
    claims = [Claim(name, uuid4().hex, LONG) for name in NAMES]
    for claim in claims:
        assert isinstance(await patiently(store, partial(store.claim, claim)), Granted)

    async def there() -> bool:
        return bool(say(servers[0], "EXISTS", *NAMES) == len(NAMES))

    await until(store, there)
    servers[0].kill()
    for claim in claims:
        await patiently(store, partial(store.release, claim.resource, claim.id))


class RetriedReleases:
    """Counts the releases that only the first node is sent, and may do something before each."""

    def __init__(self, store: RedlockStore, also_quiet: int | None = None) -> None:
        self._transport = store._quorum.transport
        self._ask = self._transport.ask
        self._also = [] if also_quiet is None else [also_quiet]
        self.count = 0
        self._transport.ask = self.ask  # type: ignore[method-assign]

    def before(self) -> None:
        """Nothing, unless a test says so."""

    async def ask(
        self,
        request: Request,
        to: Collection[int],
        awaited: Collection[int],
        on_reply: OnReply,
        timeouts: Timeouts,
    ) -> list[int]:
        if not isinstance(request, Release) or to != (0,):
            return await self._ask(request, to, awaited, on_reply, timeouts)
        self.count += 1
        self.before()
        return [*await self._ask(request, to, awaited, on_reply, timeouts), *self._also]


async def all_told(servers: Servers, store: RedlockStore) -> None:
    async def is_so() -> bool:
        # A blocking client sees what is wrong when it is next used.
        await patiently(store, partial(store.inspect, "x"))
        return not say(servers[0], "EXISTS", *NAMES) and not store._quorum.members.pending_releases

    await until(store, is_so)


@COLOURS
def test_a_node_that_hangs_while_it_is_told_is_not_waited_for_once_for_each_release(colour: str) -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            await owing(servers, store)
            members, told = store._quorum.members, RetriedReleases(store)

            async def gone_again() -> bool:
                return told.count > 0 and 0 in members.away

            started = threading.Event()

            def freeze() -> None:
                started.wait(PATIENCE)  # or it would be frozen before it could say that it has started
                servers[0].freeze()

            told.before = freeze  # type: ignore[method-assign]
            servers[0].start()
            started.set()
            await until(store, gone_again)
            assert told.count == 1
            assert len(members.pending_releases) == len(NAMES)
            told.before = lambda: None  # type: ignore[method-assign]
            os.kill(servers[0].pid, signal.SIGCONT)
            await all_told(servers, store)

        run(colour, servers.url(), main)


@COLOURS
def test_a_node_is_told_once_though_another_keeps_silent(colour: str) -> None:
    with quorum(3, *DURABLE) as servers:

        async def main(store: RedlockStore) -> None:
            await owing(servers, store)
            told = RetriedReleases(store, also_quiet=1)
            servers[0].start()
            await all_told(servers, store)
            assert told.count == len(NAMES)

        run(colour, servers.url(), main)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_recovery_goes_on_on_the_next_loop() -> None:
    """A loop may be closed with tasks on it; the task that polled the nodes is then gone."""
    with quorum(3, *DURABLE) as servers:
        store = open_store(servers.url(), Tasks(), asynchronous=True)
        assert isinstance(store, RedlockStore)
        first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

        async def under_way() -> Job | None:
            job = store._recovery._job
            return job if job is not None and job.alive() else None

        try:
            first.run_until_complete(owing(servers, store))
            job = first.run_until_complete(until(store, under_way))
            job.task._log_destroy_pending = False
            del job
            first.close()
            servers[0].start()
            second.run_until_complete(all_told(servers, store))
        finally:
            second.run_until_complete(store.close())
            second.close()
        gc.collect()  # the first loop's connections, which it took along: complain here or nowhere


def test_threads_may_add_pending_releases_at_once() -> None:
    members = Membership(["one", "two", "three"])
    most = MAX_PENDING_RELEASES * members.size
    for n in range(most):
        members.add_pending_release(0, Release("x", f"{n}"), 0.0)
    broken: list[BaseException] = []

    def add_pending_release(thread: int) -> None:
        try:
            for n in range(20_000):
                members.add_pending_release(1, Release("x", f"{thread}-{n}"), 0.0)
        except BaseException as error:
            broken.append(error)

    threads = [threading.Thread(target=add_pending_release, args=(n,)) for n in range(4)]
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(often)
    assert not broken
    assert len(members.pending_releases) == most
