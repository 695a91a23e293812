"""What is built on registers: the optimistic lock, the event, the latch and the guard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from interlock.errors import InvalidSetting, LeaseLost, NotHeld, SettingsMismatch, StaleToken, Unsupported
from interlock.testing.conformance.face import PATIENCE, each, got, noted, refused
from interlock.testing.conformance.suite import Suite
from interlock.testing.lag import at_most


class OptimisticLocks(Suite):
    """`register`."""

    wanted: ClassVar[dict[str, object]] = {"registers": True}

    async def write(self, register: Any, value: Any) -> None:
        def replace(old: Any) -> Any:
            return value

        await got(register.update(replace))

    async def test_nothing_is_there_until_it_is_written(self) -> None:
        read = await got(self.client().register(self.name).read())
        assert (read.value, read.version) == (None, 0)

    async def test_what_was_written_is_read_by_others(self) -> None:
        ours, theirs = self.client().register(self.name), self.client().register(self.name)
        values: list[Any] = [1, 1.5, "text 🔒", True, [], {"a": [1, {"b": None}]}, False, 0, ""]
        for value in values:
            await self.write(ours, value)
            assert (await got(theirs.read())).value == value

    async def test_a_write_over_a_stale_read_is_refused(self) -> None:
        ours, theirs = self.client().register(self.name), self.client().register(self.name)
        stale = await got(ours.read())
        written = await got(theirs.compare_and_set(stale, "theirs"))
        assert await got(ours.compare_and_set(stale, "ours")) is None
        fresh = await got(ours.read())
        assert (fresh.value, fresh.version) == ("theirs", written.version)
        assert (await got(ours.compare_and_set(fresh.version, "ours"))).version > fresh.version

    async def test_writing_none_deletes(self) -> None:
        register = self.client().register(self.name)
        written = await got(register.compare_and_set(0, "x"))
        deleted = await got(register.compare_and_set(written, None))
        read = await got(register.read())
        assert read.value is None
        assert read.version == deleted.version > written.version

    async def test_no_update_is_lost(self) -> None:
        def one_more(value: Any) -> Any:
            return (value or 0) + 1

        async def count() -> None:
            register = self.client().register(self.name)
            for _ in range(8):
                await got(register.update(one_more))

        for actor in [self.spawn(count) for _ in range(4)]:
            await actor.result()
        assert (await got(self.client().register(self.name).read())).value == 32

    async def test_a_watcher_sees_the_last_of_all_changes(self) -> None:
        ours, theirs, seen = self.client().register(self.name), self.client().register(self.name), list[Any]()

        async def watch() -> None:
            async for read in each(theirs.watch(timeout=PATIENCE)):
                seen.append(read.value)
                if read.value == "end":
                    return

        watcher = self.spawn(watch)
        await self.until(lambda: seen == [None])
        for value in ("a", "b", "end"):
            await self.write(ours, value)
        await watcher.result()
        assert seen[0] is None
        assert seen[-1] == "end"

    async def test_what_is_no_json_is_refused_and_nothing_is_written(self) -> None:
        register = self.client().register(self.name)
        for no_json in (float("nan"), float("inf"), "x" * (2**20 + 1)):
            await refused(InvalidSetting, partial(register.compare_and_set, 0, no_json))
        for nothing_like_it in (object(), {1, 2}, b"bytes"):
            await refused(TypeError, partial(register.compare_and_set, 0, nothing_like_it))
        assert (await got(register.read())).version == 0

    async def test_kinds_of_one_name_do_not_meet(self) -> None:
        client = self.client()
        await got(client.event(self.name).set())
        await self.write(client.register(self.name), "mine")
        await got(client.latch(self.name, 2).count_down())
        assert await got(client.latch(self.name, 2).count()) == 1
        assert (await got(client.register(self.name).read())).value == "mine"
        assert await got(client.lock(self.name).acquire(blocking=False))


class Events(Suite):
    """`event`."""

    wanted: ClassVar[dict[str, object]] = {"registers": True}

    async def test_a_flag_is_seen_by_everyone(self) -> None:
        ours, theirs = self.client().event(self.name), self.client().event(self.name)
        assert not await got(theirs.is_set())
        await got(ours.set())
        assert await got(theirs.is_set())
        assert await got(theirs.wait(0))
        await got(theirs.clear())
        assert not await got(ours.is_set())
        assert not await got(ours.wait(0.01))

    async def test_everyone_who_waits_goes_on_when_it_is_set(self) -> None:
        event, began = self.client().event(self.name), list[int]()

        async def wait() -> bool:
            mine = self.client().event(self.name)
            began.append(1)
            return bool(await got(mine.wait(PATIENCE)))

        waiters = [self.spawn(wait) for _ in range(3)]
        await self.until(lambda: len(began) == 3)
        with at_most(3.0):
            await got(event.set())
            assert [await waiter.result() for waiter in waiters] == [True] * 3

    async def test_a_wait_ends_after_its_timeout(self) -> None:
        event = self.client().event(self.name)
        began = self.runtime.now()
        with at_most(0.1 + 0.25):
            assert await got(event.wait(0.1)) is False
        assert self.runtime.now() - began > 0.09
        await refused(ValueError, lambda: event.wait(-1))


async def _got(call: Callable[[], Any]) -> Any:
    return await got(call())


class Latches(Suite):
    """`latch`."""

    wanted: ClassVar[dict[str, object]] = {"registers": True}

    async def test_it_opens_once_when_the_count_is_down(self) -> None:
        ours, theirs = self.client().latch(self.name, 3), self.client().latch(self.name, 3)
        assert await got(ours.count()) == 3
        assert await got(ours.count_down()) == 2
        assert not await got(theirs.wait(0.01))
        waiter = self.spawn(lambda: got(theirs.wait(10)))
        assert await got(ours.count_down(5)) == 0
        assert await waiter.result() is True
        assert await got(theirs.count_down()) == 0
        assert await got(theirs.wait(0))

    async def test_reset_starts_again(self) -> None:
        latch = self.client().latch(self.name, 2)
        await got(latch.count_down(2))
        await got(latch.reset())
        assert await got(latch.count()) == 2

    async def test_everyone_who_waits_goes_on_though_it_is_reset_at_once(self) -> None:
        latch, others = self.client().latch(self.name, 2), [self.client() for _ in range(3)]
        watches = [noted(other._core.store) for other in others]
        waits = [partial(other.latch(self.name, 2).wait, 10) for other in others]
        waiters = [self.spawn(partial(_got, wait)) for wait in waits]
        await self.until(lambda: all(watches))
        await got(latch.count_down(2))
        await got(latch.reset())
        await got(latch.count_down())
        with at_most(3.0):
            assert [await waiter.result() for waiter in waiters] == [True] * 3
        assert not await got(latch.wait(0))
        await got(latch.reset())
        assert (
            await got(self.client().latch(self.name, 5).count()) == 5
        )  # nobody has to agree with those before

    async def test_a_reset_opens_nothing(self) -> None:
        client, latch = self.client(), self.client().latch(self.name, 2)
        watches = noted(client._core.store)
        waiter = self.spawn(lambda: got(client.latch(self.name, 2).wait(0.1)))
        # On a busy machine the wait may be over before it has begun to watch.
        await self.until(lambda: watches or waiter.ended())
        await got(latch.count_down())
        await got(latch.reset())
        await got(latch.count_down())
        assert await waiter.result() is False

    async def test_no_count_down_is_lost(self) -> None:
        async def count() -> None:
            latch = self.client().latch(self.name, 20)
            for _ in range(5):
                await got(latch.count_down())

        for actor in [self.spawn(count) for _ in range(4)]:
            await actor.result()
        assert await got(self.client().latch(self.name, 20).count()) == 0

    async def test_those_who_disagree_on_the_count_are_told(self) -> None:
        await got(self.client().latch(self.name, 3).count_down())
        await refused(SettingsMismatch, self.client().latch(self.name, 4).count_down)
        await refused(SettingsMismatch, self.client().latch(self.name, 4).wait)
        await refused(ValueError, lambda: self.client().latch(self.name, 0))
        await refused(ValueError, lambda: self.client().latch(self.name, 3).count_down(0))


class Guards(Suite):
    """`guard`: the high-water mark of a resource's tokens."""

    wanted: ClassVar[dict[str, object]] = {"registers": True}

    async def test_a_token_lower_than_one_accepted_is_stale(self) -> None:
        client = self.client()
        guard, lock = client.guard(self.name), client.lock(self.name)
        assert await got(guard.highest()) == 0
        first = await got(lock.acquire())
        await got(lock.release())
        second = await got(lock.acquire())
        assert await got(guard.accept(second)) == second.token
        error = await refused(StaleToken, lambda: self.client().guard(self.name).accept(first.token))
        assert (error.token, error.accepted) == (first.token, second.token)
        assert await got(guard.highest()) == second.token
        await got(lock.release())

    async def test_the_same_token_is_accepted_again(self) -> None:
        guard = self.client().guard(self.name)
        for token in (7, 7, 8):
            assert await got(guard.accept(token)) == token
        await refused(StaleToken, lambda: guard.accept(7))
        for bad in (True, "8", None, 8.0):
            await refused(TypeError, partial(guard.accept, bad))

    async def test_a_lease_that_is_not_held_is_refused(self) -> None:
        client = self.client()
        guard, lock = client.guard(self.name), client.lock(self.name)
        released = await got(lock.acquire())
        await got(lock.release())
        await refused(NotHeld, lambda: guard.accept(released))
        evicted = await got(lock.acquire())
        await got(client.evict(self.name, reason="the guard must hear of it"))
        await refused(LeaseLost, lambda: evicted.renew())
        await refused(LeaseLost, lambda: guard.accept(evicted))
        assert await got(guard.highest()) == 0

    async def test_a_lease_of_another_resource_is_refused(self) -> None:
        client = self.client()
        guard = client.guard(self.name)
        lock = client.lock(f"{self.name} too")
        lease = await got(lock.acquire())
        await refused(Unsupported, lambda: guard.accept(lease))
        await got(lock.release())
        assert await got(guard.highest()) == 0

    async def test_a_lease_that_others_hold_too_is_refused(self) -> None:
        self.needs(shares="any")
        client = self.client()
        guard = client.guard(self.name)
        for shared in (client.semaphore(self.name, capacity=2), client.rwlock(self.name).read()):
            lease = await got(shared.acquire())
            await refused(Unsupported, partial(guard.accept, lease))
            await got(shared.release())
        assert await got(guard.highest()) == 0

    async def test_a_number_that_no_store_grants_is_refused(self) -> None:
        guard = self.client().guard(self.name)
        for bad in (-1, 0, 2**63, 10**30, 10**5000):
            await refused(ValueError, partial(guard.accept, bad))
        assert await got(guard.highest()) == 0
        assert await got(guard.accept(2**63 - 1)) == 2**63 - 1
