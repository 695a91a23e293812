"""What `Store.wait`, `watch` and `watch_register` promise: nobody sleeps through a change, nobody
oversleeps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from interlock._core.outline import outline
from interlock.model import EVERYTHING, Claim, Granted, Queue, Renewal
from interlock.store import Store
from interlock.testing.conformance.store import LONG, StoreSuite
from interlock.testing.lag import at_most

SOON = 3.0  # seconds within which a wake-up must come
GRACE = 0.25  # seconds by which a wait may overrun its timeout

Change = Callable[[], Awaitable[object]]
Wait = Callable[[], Coroutine[Any, Any, object]]


class Wakeups(StoreSuite):
    """Each test waits for much longer than it allows the wake-up to take."""

    async def woken(self, wait: Wait, change: Change) -> None:
        """Assert that the wait, begun before the change, ends soon after it."""
        began: list[float] = []

        async def sleep() -> None:
            began.append(self.runtime.now())
            await wait()

        actor = self.spawn(sleep)
        await self.until(lambda: began)
        await self.runtime.sleep(0.05)  # let it fall asleep: a wake-up before would prove nothing
        with at_most(SOON, "it slept through the change"):
            await change()
            await actor.result()

    async def claimed(self, store: Store, *claims: Claim) -> list[object]:
        return [await store.claim(claim) for claim in claims]

    async def waits(self, store: Store, claim: Claim) -> Wait:
        """What a waiter does until it is in: wait, and look."""
        busy = await self.waiting(store, claim)

        async def wait() -> None:
            end = self.runtime.now() + LONG
            while self.runtime.now() < end:
                granted = await store.wait(claim, busy, end - self.runtime.now())
                answer = granted if granted is not None else await store.claim(claim)
                if isinstance(answer, Granted):
                    return

        return wait

    async def test_a_waiter_is_woken_when_the_holder_releases(self) -> None:
        self.needs(fair=True)
        ours, theirs, holder = self.store(), self.store(), self.claim()
        await self.held(theirs, holder)
        wait = await self.waits(ours, self.claim())
        await self.woken(wait, lambda: theirs.release(holder.resource, holder.id))

    async def test_a_waiter_is_woken_when_the_holder_is_evicted(self) -> None:
        self.needs(fair=True)
        ours, theirs, holder = self.store(), self.store(), self.claim()
        await self.held(theirs, holder)
        wait = await self.waits(ours, self.claim())
        await self.woken(wait, lambda: theirs.evict(holder.resource, None, "a test"))

    async def test_a_waiter_is_woken_when_the_one_ahead_gives_up(self) -> None:
        self.needs(shares="any", fair=True)
        ours, theirs = self.store(), self.store()
        holder, heavy = self.claim(capacity=2), self.claim(permits=2, capacity=2)
        await self.claimed(theirs, holder, heavy)
        wait = await self.waits(ours, self.claim(capacity=2))
        await self.woken(wait, lambda: theirs.release(heavy.resource, heavy.id))

    async def test_a_reader_is_woken_when_the_writer_becomes_a_reader(self) -> None:
        self.needs(shares=("any", "pairwise"), fair=True)
        ours, theirs = self.store(), self.store()
        writer = self.claim(permits=EVERYTHING, capacity=EVERYTHING)
        await self.held(theirs, writer)
        wait = await self.waits(ours, self.claim(capacity=EVERYTHING))
        await self.woken(
            wait, lambda: theirs.renew([Renewal(writer.resource, writer.id, LONG, permits=1)], 5.0)
        )

    async def test_all_who_fit_are_woken_by_one_release(self) -> None:
        self.needs(shares="any", fair=True)
        ours, theirs, holder = self.store(), self.store(), self.claim(permits=3, capacity=3)
        await self.held(theirs, holder)
        waits = [await self.waits(ours, self.claim(capacity=3)) for _ in range(3)]
        actors = [self.spawn(wait) for wait in waits[1:]]
        await self.woken(waits[0], lambda: theirs.release(holder.resource, holder.id))
        for actor in actors:
            await actor.result()

    async def test_a_waiter_that_is_evicted_is_woken(self) -> None:
        self.needs(fair=True)
        ours, theirs, waiter = self.store(), self.store(), self.claim()
        await self.held(theirs, self.claim())
        busy = await self.waiting(ours, waiter)
        await self.woken(
            lambda: ours.wait(waiter, busy, LONG), lambda: theirs.evict(waiter.resource, waiter.id, "a test")
        )

    async def test_a_waiter_is_woken_when_its_own_store_takes_its_claim_back(self) -> None:
        self.needs(fair=True)
        ours, waiter = self.store(), self.claim()
        await self.held(self.store(), self.claim())
        busy = await self.waiting(ours, waiter)
        await self.woken(
            lambda: ours.wait(waiter, busy, LONG), lambda: ours.release(waiter.resource, waiter.id)
        )

    async def test_a_holder_is_woken_when_another_removes_its_claim(self) -> None:
        ours, theirs, holder = self.store(), self.store(), self.claim()
        await self.held(ours, holder)
        await self.woken(
            lambda: ours.wait(holder, None, LONG), lambda: theirs.release(holder.resource, holder.id)
        )

    async def test_a_holder_is_woken_when_it_is_evicted(self) -> None:
        ours, theirs, holder = self.store(), self.store(), self.claim()
        await self.held(ours, holder)
        await self.woken(
            lambda: ours.wait(holder, None, LONG), lambda: theirs.evict(holder.resource, None, "a test")
        )

    async def test_a_change_before_the_wait_is_not_missed(self) -> None:
        self.needs(fair=True)
        ours, theirs = self.store(), self.store()
        for _ in range(10):
            holder, waiter = self.claim(), self.claim()
            await self.held(theirs, holder)
            busy = await self.waiting(ours, waiter)
            await theirs.release(holder.resource, holder.id)
            with at_most(SOON, "it slept through the change"):
                await ours.wait(waiter, busy, LONG)
            await self.held(ours, waiter)
            await ours.release(waiter.resource, waiter.id)

    async def test_a_wait_never_overruns_its_timeout(self) -> None:
        store, holder = self.store(), self.claim()
        await self.held(store, holder)
        for timeout in (0.0, 0.05, 0.2):
            with at_most(timeout + GRACE):
                await store.wait(holder, None, timeout)

    async def test_a_watcher_is_told_who_comes_and_who_leaves(self) -> None:
        ours, theirs, holder = self.store(), self.store(), self.claim()
        idle = await ours.inspect(self.name)
        await self.woken(self.watches(ours, idle), lambda: theirs.claim(holder))
        held = await ours.inspect(self.name)
        await self.woken(self.watches(ours, held), lambda: theirs.release(holder.resource, holder.id))

    async def test_a_watcher_is_told_of_a_changed_note(self) -> None:
        ours, theirs, holder = self.store(), self.store(), self.claim(note="old")
        await self.held(theirs, holder)
        seen = await ours.inspect(self.name)
        renewal = Renewal(holder.resource, holder.id, LONG, note="new")
        await self.woken(self.watches(ours, seen), lambda: theirs.renew([renewal], 5.0))

    async def test_a_watcher_is_told_when_the_next_is_let_in(self) -> None:
        self.needs(fair=True)
        ours, theirs, holder = self.store(), self.store(), self.claim()
        await self.claimed(theirs, holder, self.claim())
        seen = await ours.inspect(self.name)
        await self.woken(self.watches(ours, seen), lambda: theirs.evict(self.name, None, "a test"))

    async def test_a_watcher_learns_of_a_lapse(self) -> None:
        self.needs(lapses="claim")
        store, holder = self.store(), self.claim(ttl=self.short)
        await self.held(store, holder)
        seen = await store.inspect(self.name)
        with at_most(self.short + SOON):
            await self.watches(store, seen)()

    async def test_a_watch_never_overruns_its_timeout(self) -> None:
        store = self.store()
        idle = await store.inspect(self.name)
        for timeout in (0.0, 0.1):
            with at_most(timeout + GRACE):
                await store.watch(self.name, idle, timeout)
            if self.traits.registers:
                with at_most(timeout + GRACE):
                    await store.watch_register(self.name, 0, timeout)

    def watches(self, store: Store, seen: Queue) -> Wait:
        """What a watcher does: wait, and look, until something differs."""

        async def watch() -> None:
            end = self.runtime.now() + LONG
            while outline(await store.inspect(self.name)) == outline(seen):
                assert self.runtime.now() < end
                await store.watch(self.name, seen, end - self.runtime.now())

        return watch

    async def test_a_watcher_of_a_register_is_woken_by_a_write_and_by_a_deletion(self) -> None:
        self.needs(registers=True)
        ours, theirs = self.store(), self.store()
        for value in ("1", None):
            version = (await ours.read(self.name)).version

            async def watch(version: int = version) -> None:
                end = self.runtime.now() + LONG
                while (await ours.read(self.name)).version == version and self.runtime.now() < end:
                    await ours.watch_register(self.name, version, end - self.runtime.now())

            async def write(version: int = version, value: str | None = value) -> None:
                assert await theirs.compare_and_set(self.name, version, value, f"{self.name}-{value}")

            await self.woken(watch, write)
