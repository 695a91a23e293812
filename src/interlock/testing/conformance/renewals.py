"""What `Store.renew` and `release` promise: nothing is revived, nothing of another's is touched."""

from __future__ import annotations

from interlock._support.record import replaced
from interlock.model import EVERYTHING, Gone, Granted, Renewal, Renewed, Standing
from interlock.store import Store
from interlock.testing.conformance.store import LONG, StoreSuite, ids


class Renewals(StoreSuite):
    """Keeping a claim, and giving it back."""

    async def one(self, store: Store) -> Standing:
        (standing,) = (await store.inspect(self.name)).standings
        return standing

    async def test_a_renewal_pushes_the_lapse_away(self) -> None:
        self.needs(lapses="claim")
        store, claim = self.store(), self.claim(ttl=self.short)
        await self.held(store, claim)
        (answer,) = await store.renew([Renewal(self.name, claim.id, LONG)], 5.0)
        assert isinstance(answer, Renewed)
        assert answer.ttl >= LONG
        assert (await self.one(store)).lapses_in > LONG / 2

    async def test_a_renewal_never_moves_a_lapse_nearer(self) -> None:
        store, claim = self.store(), self.claim()
        await self.held(store, claim)
        await store.renew([Renewal(self.name, claim.id, self.short)], 5.0)
        assert (await self.one(store)).lapses_in > LONG / 2

    async def test_a_renewed_claim_keeps_its_token(self) -> None:
        store, claim = self.store(), self.claim()
        granted = await self.held(store, claim)
        await store.renew([Renewal(self.name, claim.id, LONG)], 5.0)
        assert (await self.one(store)).token == granted.token

    async def test_a_place_in_the_queue_can_be_renewed(self) -> None:
        self.needs(fair=True)
        store, waiter = self.store(), self.claim(place_ttl=self.short)
        await self.held(store, self.claim())
        await self.waiting(store, waiter)
        (answer,) = await store.renew([Renewal(self.name, waiter.id, LONG, waiting=True)], 5.0)
        assert isinstance(answer, Renewed)
        assert (await store.inspect(self.name)).waiters[0].lapses_in > LONG / 2

    async def test_a_claim_that_only_waits_is_never_renewed_as_a_holder_s(self) -> None:
        self.needs(fair=True)
        store, holder, waiter = self.store(), self.claim(), self.claim()
        await self.held(store, holder)
        await self.waiting(store, waiter)
        asked = [Renewal(self.name, id, LONG) for id in (holder.id, waiter.id)]
        for note in (
            None,
            "mine",
        ):  # some stores have a way of their own for a renewal that changes more than the time
            first, second = await store.renew([replaced(one, note=note) for one in asked], 5.0)
            assert isinstance(first, Renewed)
            assert second == Gone()
        (answer,) = await store.renew([Renewal(self.name, waiter.id, LONG, permits=0)], 5.0)
        assert answer == Gone()
        await store.release(self.name, holder.id)
        assert isinstance(await store.claim(waiter), Granted)
        (answer,) = await store.renew([Renewal(self.name, waiter.id, LONG)], 5.0)
        assert isinstance(answer, Renewed)

    async def test_a_claim_that_is_told_of_its_grant_is_renewed_as_a_holder_s(self) -> None:
        self.needs(fair=True)
        store, holder, waiter = self.store(), self.claim(), self.claim()
        await self.held(store, holder)
        busy = await self.waiting(store, waiter)
        await store.release(self.name, holder.id)

        async def told() -> bool:
            granted = await store.wait(waiter, busy, self.short)
            return granted is not None or isinstance(await store.claim(waiter), Granted)

        await self.until(told)
        (answer,) = await store.renew([Renewal(self.name, waiter.id, LONG)], 5.0)
        assert isinstance(answer, Renewed)

    async def test_what_lapsed_is_gone_and_nothing_is_re_created(self) -> None:
        store, claim = self.store(), self.claim(ttl=self.short)
        await self.held(store, claim)
        await self.lapse(store, claim)
        assert await store.renew([Renewal(self.name, claim.id, LONG)], 5.0) == [Gone()]
        assert ids(await store.inspect(self.name)) == []

    async def test_what_was_released_is_gone_and_nothing_is_re_created(self) -> None:
        store, claim = self.store(), self.claim()
        await self.held(store, claim)
        await store.release(self.name, claim.id)
        assert await store.renew([Renewal(self.name, claim.id, LONG)], 5.0) == [Gone()]
        assert ids(await store.inspect(self.name)) == []

    async def test_what_never_stood_is_gone_and_nothing_is_created(self) -> None:
        store = self.store()
        assert await store.renew([Renewal(self.name, "nobody", LONG)], 5.0) == [Gone()]
        assert await store.scan("", "", 10) == []

    async def test_what_was_evicted_is_gone_and_told_why(self) -> None:
        store, claim = self.store(), self.claim()
        await self.held(store, claim)
        await store.evict(self.name, None, "making room")
        answer = await store.renew([Renewal(self.name, claim.id, LONG)], 5.0)
        assert answer == [Gone(True, "making room")]

    async def test_a_renewal_under_another_id_touches_nobody(self) -> None:
        store, claim = self.store(), self.claim(note="mine")
        await self.held(store, claim)
        assert await store.renew([Renewal(self.name, "another", LONG, note="theirs")], 5.0) == [Gone()]
        assert (await self.one(store)).note == "mine"

    async def test_many_are_answered_one_each_in_order(self) -> None:
        store = self.store()
        claims = [self.claim(f"{self.name}-{n}") for n in range(120)]
        for claim in claims[::3]:
            await self.held(store, claim)
        renewals = [Renewal(claim.resource, claim.id, LONG) for claim in claims]
        answers = await store.renew(renewals, 5.0)
        assert [isinstance(answer, Renewed) for answer in answers] == [n % 3 == 0 for n in range(120)]

    async def test_no_renewals_are_no_answers(self) -> None:
        assert await self.store().renew([], 5.0) == []

    async def test_a_note_changes_only_if_one_is_given(self) -> None:
        store, claim = self.store(), self.claim(note="first")
        await self.held(store, claim)
        await store.renew([Renewal(self.name, claim.id, LONG)], 5.0)
        assert (await self.one(store)).note == "first"
        await store.renew([Renewal(self.name, claim.id, LONG, note="")], 5.0)
        assert (await self.one(store)).note == ""

    async def test_a_claim_shrinks_in_place_and_lets_others_in(self) -> None:
        self.needs(shares=("any", "pairwise"), fair=True)
        store = self.store()
        writer = self.claim(permits=EVERYTHING, capacity=EVERYTHING)
        reader = self.claim(capacity=EVERYTHING)
        granted = await self.held(store, writer)
        await self.waiting(store, reader)
        await store.renew([Renewal(self.name, writer.id, LONG, permits=1)], 5.0)
        assert isinstance(await store.claim(reader), Granted)
        standing = (await store.inspect(self.name)).standings[0]
        assert (standing.id, standing.permits, standing.token) == (writer.id, 1, granted.token)

    async def test_releasing_twice_is_harmless_and_told(self) -> None:
        store, claim = self.store(), self.claim()
        await self.held(store, claim)
        assert await store.release(self.name, claim.id) is True
        assert await store.release(self.name, claim.id) is False

    async def test_a_release_lets_the_next_in(self) -> None:
        self.needs(fair=True)
        store, holder, waiter = self.store(), self.claim(), self.claim()
        await self.held(store, holder)
        await self.waiting(store, waiter)
        await store.release(self.name, holder.id)
        assert isinstance(await store.claim(waiter), Granted)

    async def test_a_waiter_that_releases_leaves_the_queue(self) -> None:
        self.needs(fair=True)
        store, holder, waiter = self.store(), self.claim(), self.claim()
        await self.held(store, holder)
        await self.waiting(store, waiter)
        assert await store.release(self.name, waiter.id) is True
        assert ids(await store.inspect(self.name)) == [holder.id]

    async def test_a_release_under_another_id_or_name_touches_nobody(self) -> None:
        store, claim = self.store(), self.claim()
        await self.held(store, claim)
        assert await store.release(self.name, "another") is False
        assert await store.release(self.name + "x", claim.id) is False
        assert ids(await store.inspect(self.name)) == [claim.id]

    async def test_releasing_what_lapsed_is_told_and_touches_nobody(self) -> None:
        store, old, new = self.store(), self.claim(ttl=self.short), self.claim()
        await self.held(store, old)
        await self.lapse(store, old)
        await self.held(store, new)
        assert await store.release(self.name, old.id) is False
        assert ids(await store.inspect(self.name)) == [new.id]

    async def test_a_lingering_claim_is_beyond_reach_and_ends_by_itself(self) -> None:
        self.needs(fair=True, lingers=True)
        store, holder, waiter = self.store(), self.claim(), self.claim()
        await self.held(store, holder)
        await self.waiting(store, waiter)
        assert await store.release(self.name, holder.id, self.short) is True
        assert await store.release(self.name, holder.id) is False
        assert await store.renew([Renewal(self.name, holder.id, LONG)], 5.0) == [Gone()]
        await self.waiting(store, waiter)

        async def let_in() -> bool:
            return isinstance(await store.claim(waiter), Granted)

        await self.until(let_in)

    async def test_a_waiter_does_not_linger(self) -> None:
        self.needs(fair=True)
        store, holder, waiter = self.store(), self.claim(), self.claim()
        await self.held(store, holder)
        await self.waiting(store, waiter)
        assert await store.release(self.name, waiter.id, LONG) is True
        assert ids(await store.inspect(self.name)) == [holder.id]
