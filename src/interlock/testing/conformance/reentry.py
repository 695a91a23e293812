"""What locks promise that can be taken again: rlocks, and read-write locks between reading and writing."""

from __future__ import annotations

from typing import Any

from interlock._core.states import State
from interlock.errors import LeaseLost, NotHeld, WouldDeadlock
from interlock.model import EVERYTHING
from interlock.testing.conformance.face import PATIENCE, got, refused, within
from interlock.testing.conformance.suite import Suite


class RLocks(Suite):
    """`rlock`: the same lease again, for the same thread or task."""

    async def test_re_entry_keeps_lease_and_token_and_asks_nobody(self) -> None:
        client, see = self.client(), self.client()
        lock = client.rlock(self.name)
        first = await got(lock.acquire())
        assert await got(lock.acquire()) is first
        async with within(lock) as third:
            assert third is first
        assert len((await self.queue(see)).standings) == 1
        await got(lock.release())
        first.check()
        await got(lock.release())
        assert first.state is State.RELEASED
        await self.standing(see, holders=0, waiters=0)

    async def test_all_rlocks_of_a_client_on_one_name_count_together(self) -> None:
        client = self.client()
        one, other = client.rlock(self.name), client.rlock(self.name)
        lease = await got(one.acquire())
        assert await got(other.acquire(blocking=False)) is lease
        await got(one.release())
        assert other.owned()
        await got(other.release())
        assert lease.state is State.RELEASED

    async def test_another_owner_waits_and_cannot_release(self) -> None:
        client = self.client()
        lock = client.rlock(self.name)
        await got(lock.acquire())

        async def intrude() -> None:
            assert not lock.owned()
            assert not await got(lock.acquire(blocking=False))
            await refused(NotHeld, lock.release)

        await self.spawn(intrude).result()
        await got(lock.release())

    async def test_nobody_enters_again_what_was_lost_meanwhile(self) -> None:
        client = self.client()
        lock = client.rlock(self.name, ttl=self.short, renew=False)
        lease = await got(lock.acquire())
        await self.until(lambda: lease.state is State.LOST)
        assert not lock.owned()
        await refused(LeaseLost, lock.acquire)
        await refused(LeaseLost, lock.release)
        assert await got(lock.acquire(timeout=PATIENCE))
        await got(lock.release())

    async def test_a_lease_released_by_hand_is_forgotten(self) -> None:
        lock = self.client().rlock(self.name)
        first = await got(lock.acquire())
        await got(first.release())
        second = await got(lock.acquire())
        assert second.token > first.token
        await got(lock.release())
        await refused(NotHeld, lock.release)


class RWLocks(Suite):
    """`rwlock`: readers share, a writer is alone, nobody starves, nobody hangs."""

    def rwlock(self, client: Any = None, **options: Any) -> Any:
        self.needs(shares=("any", "pairwise"))
        return (client or self.client()).rwlock(self.name, **options)

    async def test_readers_share(self) -> None:
        locks = [self.rwlock() for _ in range(3)]
        for lock in locks:
            assert await got(lock.read().acquire(blocking=False))
        for lock in locks:
            await got(lock.read().release())

    async def test_a_writer_is_alone(self) -> None:
        ours, theirs = self.rwlock(), self.rwlock()
        async with within(ours.write()):
            assert not await got(theirs.read().acquire(blocking=False))
            assert not await got(theirs.write().acquire(blocking=False))
        async with within(ours.read()):
            assert not await got(theirs.write().acquire(blocking=False))

    async def test_a_waiting_writer_is_not_overtaken_by_later_readers(self) -> None:
        self.needs(fair=True)
        reader, writer, late, see = self.rwlock(), self.rwlock(), self.rwlock(), self.client()
        await got(reader.read().acquire())
        order = list[str]()

        async def enter(lock: Any, name: str) -> None:
            async with within(lock):
                order.append(name)

        waiting = [self.spawn(lambda: enter(writer.write(), "writer"))]
        await self.standing(see, holders=1, waiters=1)
        assert not await got(self.rwlock().read().acquire(blocking=False))
        waiting.append(self.spawn(lambda: enter(late.read(), "reader")))
        await self.standing(see, holders=1, waiters=2)
        await got(reader.read().release())
        for actor in waiting:
            await actor.result()
        assert order == ["writer", "reader"]

    async def test_a_reader_that_wants_to_write_is_refused_and_keeps_reading(self) -> None:
        lock = self.rwlock()
        async with within(lock.read()) as lease:
            await refused(WouldDeadlock, lock.write().acquire)
            await refused(WouldDeadlock, lambda: lock.write().acquire(blocking=False))
            lease.check()

    async def test_a_writer_may_read(self) -> None:
        lock = self.rwlock()
        async with within(lock.write()) as writing, within(lock.read()) as reading:
            assert reading is writing
            assert lock.read().owned()
            assert lock.write().owned()

    async def test_a_writer_becomes_a_reader_under_the_same_token(self) -> None:
        ours, theirs = self.rwlock(), self.rwlock()
        lease = await got(ours.write().acquire())
        token = lease.token
        assert lease.permits == EVERYTHING
        assert await got(ours.read().acquire()) is lease
        await got(ours.write().release())
        assert (lease.permits, lease.token, lease.state) == (1, token, State.HELD)
        assert not ours.write().owned()
        assert await got(theirs.read().acquire(blocking=False))
        assert not await got(self.rwlock().write().acquire(blocking=False))
        await got(ours.read().release())
        await got(theirs.read().release())
        assert lease.state is State.RELEASED

    async def test_reader_and_writer_may_enter_again(self) -> None:
        lock = self.rwlock()
        async with within(lock.read()) as one, within(lock.read()) as two:
            assert one is two
        async with within(lock.write()) as one, within(lock.write()) as two:
            assert one is two

    async def test_releasing_the_wrong_side_is_refused(self) -> None:
        lock = self.rwlock()
        await got(lock.read().acquire())
        await refused(NotHeld, lock.write().release)
        await got(lock.read().release())
        await refused(NotHeld, lock.read().release)

    async def test_readers_never_meet_a_writer(self) -> None:
        readers, writers, met = list[int](), list[int](), list[str]()

        async def read() -> None:
            lock = self.rwlock()
            for _ in range(5):
                async with within(lock.read()):
                    readers.append(1)
                    met.extend(["writer"] * len(writers))
                    await self.runtime.sleep(0.0005)
                    readers.pop()

        async def write() -> None:
            lock = self.rwlock()
            for _ in range(5):
                async with within(lock.write()):
                    writers.append(1)
                    met.extend(["writer"] * (len(writers) - 1) + ["reader"] * len(readers))
                    await self.runtime.sleep(0.0005)
                    writers.pop()

        for actor in [self.spawn(main) for main in (read, write, read, write)]:
            await actor.result()
        assert met == []
