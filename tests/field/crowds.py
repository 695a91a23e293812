"""FIELD: many waiters, many names. (7, 13, 19)"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any
from uuid import uuid4

from interlock._core.states import State
from interlock.model import Claim
from interlock.testing.conformance import Suite, got, within
from interlock.testing.lag import at_most
from tests.field.kinds import Kind
from tests.field.process import Process
from tests.full import FULL

WAITERS = 100

POOL = 16  # connections that threads of one client share, at most: far fewer than there are waiters


class Crowds(Suite):
    """Nobody pays for another's death, and nothing grows with the number of names."""

    # ---- 7 ----------------------------------------------------------------------

    async def test_07_dead_waiters_in_a_queue_of_100_cost_their_own_place_ttl_at_most_and_once(self) -> None:
        self.needs(fair=True, lapses="claim")  # where sessions lapse, see the next test
        store, holder, place_ttl = self.store(), self.client().lock(self.name), 5 * self.short
        await got(holder.acquire())
        with at_most(place_ttl + 5.0):
            for _ in range(WAITERS):  # every one of them died as soon as it stood there
                await store.claim(Claim(self.name, uuid4().hex, 30.0, place_ttl=place_ttl))
            alive = self.spawn(lambda: self._once(self.client().lock(self.name)))
            await self.standing(self.client(), 1, WAITERS + 1)
            await got(holder.release())
            await alive.result()

    async def test_07_kill_9_of_one_waiter_and_of_50_at_once_delays_nobody_for_longer_than_a_place_ttl(
        self,
    ) -> None:
        self.needs(fair=True, reach=("machine", "network"))
        see, holder, ttl = self.client(), self.client().lock(self.name), 1.0
        await got(holder.acquire())
        with Process("async", self.place, ttl) as one, Process("async", self.place, ttl) as many:
            survivors = Process(self.face.name, self.place, ttl)
            with survivors:
                for process, count in ((one, 1), (many, 50), (survivors, 49)):
                    process.tell(CROWD.format(name=self.name, count=count))
                await self.standing(see, 1, WAITERS)
                one.kill()
                many.kill()
                with at_most(ttl + 5.0):
                    await got(holder.release())
                    assert survivors.tell(PASSED) == 49

    async def _once(self, lock: Any) -> None:
        async with within(lock):
            pass

    # ---- 13 ---------------------------------------------------------------------

    async def test_13_many_distinct_names_leave_next_to_nothing_once_idle(self) -> None:
        kind = self.stores
        assert isinstance(kind, Kind)
        names = {"process": 100_000, "machine": 3_000, "network": 3_000}[self.traits.reach]
        if not FULL:
            names //= 5
        if self.face.asynchronous:
            names //= 3
        client, lapsing = self.client(), list[Any]()
        for number in range(names):
            dies = number % (names // 100) == 0  # more of them than may be left in the end
            lock = client.lock(f"{self.name}-{number}", ttl=self.short if dies else None, renew=not dies)
            lease = await got(lock.acquire())
            if dies:
                lapsing.append(lease)  # never released: it lapses
            else:
                await got(lease.release())
        await self.until(lambda: all(lease.state is State.LOST for lease in lapsing))

        async def next_to_nothing() -> bool:
            for number in range(20):  # a little traffic, as an idle system has
                async with within(client.lock(f"{self.name}-again-{number}")):
                    pass
            return kind.keys(self.place) < 50

        await self.until(next_to_nothing)

    # ---- 19 ---------------------------------------------------------------------

    async def test_19_a_thousand_waiters_on_a_thousand_resources_use_a_constant_number_of_connections(
        self,
    ) -> None:
        self.needs(fair=True)
        count = 1_000 if self.face.asynchronous else 300
        holder, waiter = self.client(), self.client()
        names = [f"{self.name}-{number}" for number in range(count)]
        held = [await got(holder.lock(name).acquire()) for name in names]
        actors = [self.spawn(partial(self._wait, waiter, name)) for name in names[:10]]
        await self._all_wait(names[:10])
        files, threads = self._cost(actors)
        actors += [self.spawn(partial(self._wait, waiter, name)) for name in names[10:]]
        await self._all_wait(names)

        def no_more() -> (
            bool
        ):  # once what looked has gone; a pool may have grown to its bound on a busy machine
            more_files, more_threads = self._cost(actors)
            return more_files <= files + POOL and more_threads <= threads

        await self.until(no_more)
        for lease in held:
            await got(lease.release())
        for actor in actors:
            await actor.result()

    async def _wait(self, client: Any, name: str) -> None:
        await self._once(client.lock(name))

    async def _all_wait(self, names: list[str]) -> None:
        store = self.store()
        for name in reversed(names):

            async def waits(name: str = name) -> bool:
                return bool((await store.inspect(name)).waiters)

            await self.until(waits)
        await store.close()

    def _cost(self, actors: list[Any]) -> tuple[int, int]:
        """Open files and threads, without the callers' own threads."""
        own = 0 if self.face.asynchronous else sum(not actor.ended() for actor in actors)
        return len(os.listdir("/proc/self/fd")), threading.active_count() - own


CROWD = """
passed = []
async def wait():
    async with within(client.lock({name!r})):
        passed.append(1)
def start():
    if isinstance(client, interlock.Client):
        from interlock._core.drive import drive
        threading.Thread(target=lambda: drive(wait()), daemon=True).start()
    else:
        tasks.append(asyncio.ensure_future(wait()))
tasks = []
for _ in range({count}):
    start()
"""

PASSED = """
end = time.monotonic() + 60
while len(passed) < 49 and time.monotonic() < end:
    await (asyncio.sleep(0.01) if tasks else got(time.sleep(0.01)))
len(passed)
"""
