"""FIELD: losing a lease, and knowing it in time. (4, 5, 6, 8, 10, 11)"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any
from uuid import uuid4

from interlock import events
from interlock._core.states import State
from interlock.errors import LeaseLost, NotHeld
from interlock.model import Claim, Gone, Granted, Renewal
from interlock.testing.conformance import Suite, got, refused, within
from interlock.testing.faults import Faults, Faulty, Link
from interlock.testing.lag import at_most, stretched
from tests.field.kinds import Kind
from tests.field.process import Process, Told
from tests.field.tap import tapped
from tests.full import FULL
from tests.patience import PATIENCE


class Losing(Suite):
    """Each loss is told by the holder's own clock, before anyone else can have the resource."""

    # ---- 4 ----------------------------------------------------------------------

    async def test_04_a_renewal_after_another_took_and_released_it_re_creates_nothing(self) -> None:
        store = self.store()
        claim, other = (Claim(self.name, uuid4().hex, ttl) for ttl in (self.short, 30.0))
        assert isinstance(await store.claim(claim), Granted)

        async def taken() -> bool:
            return isinstance(await store.claim(other), Granted)

        await self.until(taken)
        await store.release(self.name, other.id)
        assert await store.renew([Renewal(self.name, claim.id, 30.0)]) == [Gone()]
        assert await store.scan("", "", 10) == []

    async def test_04_a_lease_that_lapsed_meanwhile_is_lost_and_stays_lost(self) -> None:
        client = self.client()
        lease = await got(client.lock(self.name, ttl=self.short, renew=False).acquire())
        async with within(self.client().lock(self.name)) as other:
            assert other.token > lease.token
        await refused(LeaseLost, lease.renew)
        assert lease.state is State.LOST
        await self.standing(client, 0, 0)

    # ---- 5 ----------------------------------------------------------------------

    async def test_05_the_network_is_black_holed_and_the_holder_is_told_before_the_ttl(self) -> None:
        ttl, link, heard = 5 * self.short, Link(Faults(latency=0.0)), list[events.Event]()
        client = self.client(
            ttl=ttl, listener=heard.append, wrap=lambda store, runtime: Faulty(store, runtime, link)
        )
        lock = client.lock(self.name)
        async with within(lock):
            pass  # connected, and its keeper too
        with at_most(ttl):
            lease = await got(lock.acquire())
            link.cut()
            assert await got(lease.lost.wait(PATIENCE))
        assert lease.state is State.LOST
        link.heal()
        await self.until(lambda: events.Lost in map(type, heard))
        kinds = [type(event) for event in heard]
        assert kinds.index(events.Doubtful) < kinds.index(events.Lost)
        await refused(LeaseLost, lock.release)

    async def test_05_a_short_silence_is_doubt_and_not_a_loss(self) -> None:
        ttl, link = 15 * self.short, Link(Faults(latency=0.0))
        client = self.client(ttl=ttl, wrap=lambda store, runtime: Faulty(store, runtime, link))
        lease = await got(client.lock(self.name).acquire())
        link.faults = Faults(latency=0.0, timeout=0.1)  # from now on: the first request had to connect
        link.cut()
        await self.until(lambda: lease.state is State.DOUBTFUL)
        lease.check()
        link.heal()
        await self.until(lambda: lease.state is State.HELD)
        await got(lease.release())

    # ---- 6 ----------------------------------------------------------------------

    async def test_06_stopped_for_twice_the_ttl_the_first_checkpoint_raises_and_the_late_write_is_refused(
        self,
    ) -> None:
        self.needs(reach=("machine", "network"))
        ttl = stretched(0.5)
        with Process(self.face.name, self.place, ttl=ttl) as holder:
            token = holder.tell(f"lease = await got(client.lock({self.name!r}).acquire()); lease.token")
            guard = f"guard = client.guard({self.name!r}); await got(guard.accept(lease))"
            assert holder.tell(guard) == token
            holder.stop()
            try:
                async with within(self.client().lock(self.name)) as lease:  # after the ttl, not before
                    assert lease.token > token
                    await got(self.client().guard(self.name).accept(lease))
                await self.runtime.sleep(ttl)
            finally:
                holder.resume()
            checks = {
                "lease.check()": "LeaseLost",
                "await got(guard.accept(lease))": "LeaseLost",
                "await got(guard.accept(lease.token))": "StaleToken",
            }
            for text, kind in checks.items():
                assert (await refused(Told, partial(holder.tell, text))).kind == kind

    # ---- 8 ----------------------------------------------------------------------

    async def test_08_the_event_loop_is_blocked_for_twice_the_ttl_and_the_lease_is_renewed(self) -> None:
        heard, ttl = list[events.Event](), stretched(0.6)
        client = self.client(ttl=ttl, listener=heard.append)
        async with within(client.lock(self.name)) as lease:
            time.sleep(2 * ttl)  # blocks the loop as a computation would; a thread is simply busy
            lease.check()
        stalls = [event for event in heard if isinstance(event, events.LoopStalled)]
        assert [event for event in heard if isinstance(event, events.Lost)] == []
        if self.face.asynchronous:
            assert stalls
            assert stalls[0].seconds > 0.5
        else:
            assert not stalls

    # ---- 10 ---------------------------------------------------------------------

    async def test_10_release_races_renewal_and_nothing_is_renewed_after_its_release(self) -> None:
        times = {"process": 100_000 if FULL else 20_000, "machine": 2_000, "network": 1_000}[
            self.traits.reach
        ]
        if self.face.asynchronous:
            times //= 10
        heard, current, lost = list[events.Event](), list[Any]([None]), list[LeaseLost]()
        client = self.client(
            ttl=5.0,
            listener=lambda event: heard.extend([event] * event.warning),
            wrap=tapped(lambda *call: None) if self.face.asynchronous else None,  # awaits to be overtaken at
        )

        async def renew() -> None:
            seen: Any = None
            while (lease := current[0]) != "end":
                if lease is seen:
                    await self.runtime.sleep(0.00002)
                    continue
                seen = lease
                try:
                    await got(seen.renew())
                except LeaseLost as error:
                    lost.append(error)  # it was released, and nobody may call that a loss
                except NotHeld:
                    pass

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)  # threads overtake each other where they hardly ever would
        try:
            racer = self.spawn(renew)
            for _ in range(times):
                lease = await got(client.lock(self.name).acquire())
                current[0] = lease
                await got(lease.release())
        finally:
            current[0] = "end"
            sys.setswitchinterval(interval)
        await racer.result()
        assert lost == []
        assert [event for event in heard if isinstance(event, events.Lost)] == []
        await self.standing(self.client(), 0, 0)

    # ---- 11 ---------------------------------------------------------------------

    async def test_11_after_an_eviction_tokens_still_rise(self) -> None:
        client = self.client()
        first = await got(client.lock(self.name).acquire())
        await got(client.evict(self.name, reason="a drill"))
        async with within(client.lock(self.name)) as second:
            assert second.token > first.token

    async def test_11_after_everything_was_wiped_tokens_still_rise(self) -> None:
        assert isinstance(self.stores, Kind)
        tokens = list[int]()
        for _ in range(3):
            client = self.client()
            for _ in range(50):
                async with within(client.lock(self.name)) as lease:
                    tokens.append(lease.token)
            version = await got(client.register(self.name).update(lambda _: len(tokens)))
            tokens.append(version.version)
            await got(client.close())
            self.stores.wipe(self.place)
        assert tokens == sorted(set(tokens))
