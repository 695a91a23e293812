"""What a client shows to operators: queues, names, changes; and what it lets them mend."""

from __future__ import annotations

from functools import partial
from typing import Any

from interlock.errors import InvalidName, InvalidSetting
from interlock.model import Queue
from interlock.testing.conformance.face import PATIENCE, each, first, got, refused, within
from interlock.testing.conformance.suite import Suite


class Sight(Suite):
    """`inspect`, `scan`, `watch` and `evict` of a client."""

    async def test_scan_reads_page_by_page_to_the_end(self) -> None:
        client = self.client()
        names = [f"{self.name}/{number:03}" for number in range(30)]
        leases = [await got(client.lock(name).acquire()) for name in names]
        await got(client.lock(self.name + "x").acquire())
        assert [name async for name in each(client.scan(self.name + "/"))] == names
        assert [name async for name in each(client.scan("nothing like it"))] == []
        for lease in leases:
            await got(lease.release())

    async def test_scan_does_not_show_what_is_ours_alone(self) -> None:
        self.needs(shares=("any", "pairwise"))
        client = self.client()

        async def wait() -> None:
            condition = client.condition(self.name)
            async with within(condition):
                await got(condition.wait(10))

        waiter, store = self.spawn(wait), self.store()

        async def stands() -> bool:
            return any(name != self.name for name in await store.scan(self.name, "", 10))

        await self.until(stands)
        assert [name async for name in each(client.scan()) if name != self.name] == []
        condition = client.condition(self.name)
        async with within(condition):
            await got(condition.notify())
        await waiter.result()

    async def test_watch_yields_the_queue_now_and_after_each_change(self) -> None:
        client, lock, seen = self.client(), self.client().lock(self.name), list[int]()

        async def watch() -> None:
            async for queue in each(client.watch(self.name, timeout=PATIENCE)):
                seen.append(len(queue.holders))
                if len(seen) == 3:
                    return

        watcher = self.spawn(watch)
        await self.until(lambda: seen == [0])
        await got(lock.acquire())
        await self.until(lambda: seen == [0, 1])
        await got(lock.release())
        await watcher.result()
        assert seen == [0, 1, 0]

    async def test_watching_ends_after_its_quiet_seconds(self) -> None:
        client = self.client()
        assert [queue async for queue in each(client.watch(self.name, timeout=0.05))] == [
            Queue(self.name, 0, ())
        ]
        assert await first(client.watch(self.name), 1) == [Queue(self.name, 0, ())]

    async def test_an_eviction_needs_a_reason(self) -> None:
        client = self.client()
        for reason in ("", "  ", "a\x00b", "\ud800", "x" * 4097):
            await refused(InvalidSetting, partial(client.evict, self.name, reason=reason))
        await refused(TypeError, lambda: client.evict(self.name, reason=None))
        assert await got(client.evict(self.name, reason="nobody is there")) == []

    async def test_names_are_checked_before_anybody_is_asked(self) -> None:
        client = self.client()
        for name in ("", "a\x00b", "x" * 1025, "\ud800"):
            await refused(InvalidName, partial(client.inspect, name))
            await refused(InvalidName, partial(self._watched, client, name))
            await refused(InvalidName, partial(client.evict, name, reason="a drill"))

    async def _watched(self, client: Any, name: str) -> None:
        await first(client.watch(name), 1)
