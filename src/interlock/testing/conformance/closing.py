"""Closing a client: every call that waits in it learns that at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from interlock._core.register import RECHECK_PERIOD_S
from interlock.errors import ClientClosed, InterlockError
from interlock.testing.conformance.face import each, got, noted, refused
from interlock.testing.conformance.suite import Suite
from interlock.testing.lag import at_most


class Closing(Suite):
    """Calls that wait, in a client that is closed."""

    async def ends_with_its_client(self, call: Callable[[Any], Any]) -> None:
        client = self.client()
        waits = noted(client._core.store)
        waiting = self.spawn(partial(refused, ClientClosed, partial(call, client)))
        await self.until(lambda: waits)
        # A call that is not woken looks again by itself, but only after LOOK_AGAIN seconds.
        with at_most(RECHECK_PERIOD_S / 2, "the call was not woken"):
            await got(client.close())
            await waiting.result()

    async def test_a_watch_of_a_queue_ends(self) -> None:
        await self.ends_with_its_client(lambda client: seen_all(client.watch(self.name)))

    async def test_an_observer_of_an_election_ends(self) -> None:
        await self.ends_with_its_client(lambda client: seen_all(client.election(self.name).observe()))

    async def test_a_watch_of_a_register_ends(self) -> None:
        self.needs(registers=True)
        await self.ends_with_its_client(lambda client: seen_all(client.register(self.name).watch()))

    async def test_the_wait_for_an_event_ends(self) -> None:
        self.needs(registers=True)
        await self.ends_with_its_client(lambda client: client.event(self.name).wait())

    async def test_the_wait_for_a_latch_ends(self) -> None:
        self.needs(registers=True)
        await self.ends_with_its_client(lambda client: client.latch(self.name, 2).wait())

    async def test_the_wait_at_a_barrier_ends(self) -> None:
        self.needs(registers=True, shares=("any", "pairwise"))
        await self.ends_with_its_client(lambda client: client.barrier(self.name, 2).wait())

    async def test_a_wait_that_begins_when_its_store_was_closed_ends(self) -> None:
        store = self.client()._core.store
        queue = await store.inspect(self.name)
        await store.close()
        waits: list[Callable[[], Awaitable[object]]] = [
            lambda: store.watch(self.name, queue, RECHECK_PERIOD_S)
        ]
        if self.traits.registers:
            waits.append(lambda: store.watch_register(self.name, 0, RECHECK_PERIOD_S))
        for wait in waits:
            with at_most(RECHECK_PERIOD_S / 2, "the wait did not end"), suppress(InterlockError):
                await wait()


async def seen_all(iterator: Any) -> None:
    async for _ in each(iterator):
        pass
