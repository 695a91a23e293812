"""What `Store.inspect`, `scan`, `evict` and `close` promise to whoever runs the system."""

from __future__ import annotations

from interlock._core.drive import drive
from interlock.model import Gone, Granted, Queue, Renewal
from interlock.testing.conformance.store import LONG, StoreSuite, ids


class Operators(StoreSuite):
    """Seeing and mending."""

    async def test_an_idle_resource_has_no_capacity_and_nobody_stands_there(self) -> None:
        assert await self.store().inspect(self.name) == Queue(self.name, 0, ())

    async def test_inspect_shows_holders_and_waiters_in_order(self) -> None:
        self.needs(shares="any", fair=True)
        store = self.store()
        claims = [self.claim(permits=permits, capacity=3, note=f"{permits}") for permits in (1, 2, 2, 1)]
        for claim in claims:
            await store.claim(claim)
        queue = await store.inspect(self.name)
        assert (queue.resource, queue.capacity) == (self.name, 3)
        assert ids(queue) == [claim.id for claim in claims]
        assert [(s.permits, s.admitted, s.note) for s in queue.standings] == [
            (1, True, "1"),
            (2, True, "2"),
            (2, False, "2"),
            (1, False, "1"),
        ]
        tokens = [standing.token for standing in queue.standings]
        assert tokens == sorted(set(tokens))

    async def test_an_eviction_is_named_among_the_failures_that_can_give_two_holders(self) -> None:
        """A holder that was evicted may believe until its next renewal that it holds."""
        assert any("evicts the holder" in failure for failure in self.store().traits.two_holders)

    async def test_ages_and_lapses_are_counted_from_now(self) -> None:
        self.needs(lapses="claim", ages=True)
        store, began = self.store(), self.runtime.now()
        await self.held(store, self.claim())
        await self.runtime.sleep(0.1)
        (standing,) = (await store.inspect(self.name)).standings
        passed = self.runtime.now() - began
        assert 0.05 < standing.age < passed + 5
        assert LONG - passed - 5 < standing.lapses_in < LONG + 5

    async def test_the_age_of_a_holder_counts_from_its_admission(self) -> None:
        self.needs(fair=True)
        store, holder, waiter = self.store(), self.claim(), self.claim()
        await self.held(store, holder)
        await self.waiting(store, waiter)
        await self.runtime.sleep(0.3)
        waited = (await store.inspect(self.name)).waiters[0].age
        assert waited > 0.2
        began = self.runtime.now()
        await store.release(self.name, holder.id)
        await self.held(store, waiter)
        age = (await store.inspect(self.name)).holders[0].age
        assert age < self.runtime.now() - began + 0.05, f"it waited for {waited:g} s before"

    async def test_lapsed_claims_are_not_shown(self) -> None:
        store, claim = self.store(), self.claim(ttl=self.short)
        await self.held(store, claim)
        await self.lapse(store, claim)
        assert (await store.inspect(self.name)).standings == ()
        assert await store.scan("", "", 10) == []

    async def test_scan_lists_names_in_code_point_order_page_by_page(self) -> None:
        store = self.store()
        names = ["a", "b", "b/1", "b/2", "ba", "é", "\uffee", "\U0001f512", "日本"]
        for name in reversed(names):
            await self.held(store, self.claim(name))
        assert await store.scan("", "", 100) == sorted(names)
        assert await store.scan("", "b/1", 2) == ["b/2", "ba"]
        assert await store.scan("b", "", 100) == ["b", "b/1", "b/2", "ba"]
        assert await store.scan("b/", "b/1", 100) == ["b/2"]
        assert await store.scan("", "\U0001f512", 100) == []

    async def test_a_prefix_is_taken_literally(self) -> None:
        store = self.store()
        names = ["a%b", "a_b", "a*b", "a[b", "axb", "A%b", "a\\b", "a?b"]
        for name in names:
            await self.held(store, self.claim(name))
        for name in names:
            assert await store.scan(name[:2], "", 100) == [name]

    async def test_scan_shows_only_resources_with_live_claims(self) -> None:
        store, claim = self.store(), self.claim()
        await self.held(store, claim)
        assert await store.scan(self.name, "", 10) == [self.name]
        await store.release(self.name, claim.id)
        assert await store.scan(self.name, "", 10) == []

    async def test_evicting_without_an_id_removes_every_holder_and_no_waiter(self) -> None:
        self.needs(shares="any", fair=True)
        store, claims = self.store(), [self.claim(capacity=2) for _ in range(3)]
        for claim in claims:
            await store.claim(claim)
        met = await store.evict(self.name, None, "drill")
        assert [standing.id for standing in met] == [claim.id for claim in claims[:2]]
        assert all(standing.admitted for standing in met)
        assert isinstance(await store.claim(claims[2]), Granted)

    async def test_one_claim_can_be_evicted_holder_or_waiter(self) -> None:
        self.needs(fair=True)
        store, holder, waiter = self.store(), self.claim(), self.claim()
        await self.held(store, holder)
        await self.waiting(store, waiter)
        (met,) = await store.evict(self.name, waiter.id, "drill")
        assert (met.id, met.admitted) == (waiter.id, False)
        assert ids(await store.inspect(self.name)) == [holder.id]
        assert await store.claim(waiter) == Gone(True, "drill")

    async def test_an_eviction_tells_whom_it_met(self) -> None:
        store, holder = self.store(), self.claim(note="me", who='["host",7,"main","x.py:1"]')
        granted = await self.held(store, holder)
        (met,) = await store.evict(self.name, None, "drill")
        assert (met.token, met.note, met.who) == (granted.token, "me", holder.who)

    async def test_evicting_nobody_meets_nobody(self) -> None:
        store = self.store()
        assert await store.evict(self.name, None, "drill") == []
        assert await store.evict(self.name, "nobody", "drill") == []
        await self.held(store, self.claim())

    async def test_an_evicted_claim_cannot_come_back(self) -> None:
        store, holder = self.store(), self.claim()
        await self.held(store, holder)
        await store.evict(self.name, None, "ünïcode 🔒 reason")
        for _ in range(2):
            assert await store.claim(holder) == Gone(True, "ünïcode 🔒 reason")
            assert await store.renew([Renewal(self.name, holder.id, LONG)], 5.0) == [
                Gone(True, "ünïcode 🔒 reason")
            ]
        assert await store.release(self.name, holder.id) is False
        assert await store.scan("", "", 10) == []

    async def test_tokens_rise_across_an_eviction(self) -> None:
        store, holder = self.store(), self.claim()
        before = await self.held(store, holder)
        await store.evict(self.name, None, "drill")
        assert (await self.held(store, self.claim())).token > before.token

    async def test_claims_outlive_the_store_that_made_them(self) -> None:
        self.needs(lapses="claim")
        store, holder = self.store(), self.claim()
        await self.held(store, holder)
        await store.close()
        assert ids(await self.store().inspect(self.name)) == [holder.id]

    async def test_the_blocking_side_meets_the_same_claims(self) -> None:
        store, holder = self.store(), self.claim()
        await self.held(store, holder)
        blocking = store.blocking()
        assert blocking.traits == store.traits
        assert blocking.blocking() is blocking
        assert ids(drive(blocking.inspect(self.name))) == [holder.id]  # raises if it suspends
