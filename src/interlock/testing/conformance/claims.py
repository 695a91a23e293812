"""What `Store.claim` promises, sentence by sentence."""

from __future__ import annotations

from interlock.errors import SettingsMismatch
from interlock.model import Claim, Gone
from interlock.store import WAITERS
from interlock.testing.conformance.face import refused
from interlock.testing.conformance.store import LONG, StoreSuite, ids


class Claims(StoreSuite):
    """One claim at a time."""

    async def test_a_claim_on_an_idle_resource_is_granted_at_once(self) -> None:
        store = self.store()
        granted = await self.held(store, self.claim())
        assert granted.token > 0
        assert granted.ttl >= LONG

    async def test_a_claim_that_does_not_fit_is_told_how_many_are_ahead_and_when_they_lapse(self) -> None:
        self.needs(fair=True)
        store = self.store()
        await self.held(store, self.claim())
        second = await self.waiting(store, self.claim())
        third = await self.waiting(store, self.claim())
        assert (second.ahead, third.ahead) == (1, 2)
        assert second.retry_after > 0
        assert self.traits.lapses == "session" or second.retry_after <= LONG + 1

    async def test_a_claim_that_will_not_queue_leaves_no_trace(self) -> None:
        store, holder = self.store(), self.claim()
        await self.held(store, holder)
        refused = await self.waiting(store, self.claim(queued=False))
        assert refused.ahead == 1
        assert ids(await store.inspect(self.name)) == [holder.id]

    async def test_a_claim_that_will_not_queue_is_granted_where_it_fits(self) -> None:
        await self.held(self.store(), self.claim(queued=False))

    async def test_a_claim_that_is_granted_here_is_the_one_that_stands(self) -> None:
        store, claim = self.store(), self.claim()
        granted = store.claim_idle(claim)
        again = await self.held(store, claim)
        assert granted is None or granted.token == again.token
        assert ids(await store.inspect(self.name)) == [claim.id]

    async def test_where_somebody_stands_nothing_is_granted_here(self) -> None:
        store, holder = self.store(), self.claim()
        await self.held(store, holder)
        assert store.claim_idle(self.claim()) is None
        assert ids(await store.inspect(self.name)) == [holder.id]

    async def test_a_claim_that_stands_alone_can_be_released_here_once(self) -> None:
        store, claim = self.store(), self.claim()
        for _ in range(2):
            await self.held(store, claim)
            assert store.release_alone(claim.resource, claim.id) or await store.release(
                claim.resource, claim.id
            )
            assert not store.release_alone(claim.resource, claim.id)
            assert ids(await store.inspect(self.name)) == []

    async def test_a_claim_with_a_waiter_behind_it_is_not_released_here(self) -> None:
        self.needs(fair=True)
        store, holder, waiter = self.store(), self.claim(), self.claim()
        await self.held(store, holder)
        await self.waiting(self.store(), waiter)
        assert not store.release_alone(holder.resource, holder.id)
        assert ids(await store.inspect(self.name)) == [holder.id, waiter.id]

    async def test_claims_of_two_stores_on_one_place_meet(self) -> None:
        await self.held(self.store(), self.claim())
        await self.waiting(self.store(), self.claim())

    async def test_tokens_rise_with_every_claim_that_enters(self) -> None:
        store, tokens = self.store(), list[int]()
        for _ in range(50):
            claim = self.claim()
            tokens.append((await self.held(store, claim)).token)
            await store.release(claim.resource, claim.id)
        assert tokens == sorted(set(tokens))

    async def test_the_tokens_of_a_block_are_nobody_elses(self) -> None:
        self.needs(blocks=True)
        store, block = self.store(), 10**9
        for queued in (True, False):
            first = self.claim(block=block, queued=queued)
            waiters = [self.claim(block=block) for _ in range(2)] if queued else []
            before = (await self.held(store, first)).token
            for waiter in waiters:
                await store.claim(waiter)
            await store.release(first.resource, first.id)
            for claim in (*waiters, self.claim()):
                token = (await self.held(store, claim)).token
                assert token >= before + block
                await store.release(claim.resource, claim.id)
                before = token if claim in waiters else before

    async def test_tokens_follow_the_order_of_the_queue(self) -> None:
        self.needs(fair=True)
        store, claims = self.store(), [self.claim() for _ in range(5)]
        for claim in claims:
            await store.claim(claim)
        tokens: list[int] = []
        for claim in claims:
            tokens.append((await self.held(store, claim)).token)
            await store.release(claim.resource, claim.id)
        assert tokens == sorted(set(tokens))

    async def test_repeating_a_claim_never_enters_twice(self) -> None:
        store, holder, waiter = self.store(), self.claim(), self.claim()
        first = await self.held(store, holder)
        again = await self.held(store, holder)
        assert again.token == first.token
        await self.waiting(store, waiter)
        assert (await self.waiting(store, waiter)).ahead == 1
        places = [waiter.id] if self.traits.fair else []
        assert ids(await store.inspect(self.name)) == [holder.id, *places]

    async def test_repeating_a_granted_claim_gives_it_its_whole_ttl_again(self) -> None:
        self.needs(lapses="claim")
        store, claim = self.store(), self.claim(ttl=self.short * 2)
        await self.held(store, claim)
        for _ in range(6):
            await self.runtime.sleep(self.short / 2)
            await self.held(store, claim)
        (standing,) = (await store.inspect(self.name)).standings
        assert standing.lapses_in > self.short

    async def test_repeating_a_claim_never_moves_its_lapse_nearer(self) -> None:
        self.needs(lapses="claim")
        store, claim = self.store(), self.claim()
        await self.held(store, claim)
        hurried = Claim(claim.resource, claim.id, self.short)
        await self.held(store, hurried)
        (standing,) = (await store.inspect(self.name)).standings
        assert standing.lapses_in > LONG / 2

    async def test_a_place_in_the_queue_lapses_unless_it_is_refreshed(self) -> None:
        self.needs(fair=True, lapses="claim")
        store, holder, waiter = self.store(), self.claim(), self.claim(place_ttl=self.short)
        await self.held(store, holder)
        await self.waiting(store, waiter)
        await self.lapse(store, waiter)
        assert ids(await store.inspect(self.name)) == [holder.id]

    async def test_asking_again_refreshes_a_place_in_the_queue(self) -> None:
        self.needs(fair=True)
        store, waiter = self.store(), self.claim(place_ttl=self.short * 2)
        await self.held(store, self.claim())
        await self.waiting(store, waiter)
        for _ in range(6):
            await self.runtime.sleep(self.short / 2)
            assert (await self.waiting(store, waiter)).ahead == 1
        assert waiter.id in ids(await store.inspect(self.name))

    async def test_a_lapsed_claim_enters_anew_at_the_tail_with_a_new_token(self) -> None:
        self.needs(fair=True)
        store, other = self.store(), self.store()
        first, second = self.claim(ttl=self.short), self.claim()
        before = await self.held(store, first)
        await self.waiting(other, second)
        await self.lapse(store, first)
        between = await self.let_in(other, second)
        assert (await self.waiting(store, first)).ahead == 1
        await other.release(second.resource, second.id)
        after = await self.let_in(store, first)
        assert before.token < between.token < after.token

    async def test_a_waiter_gets_in_when_the_holder_has_lapsed(self) -> None:
        self.needs(fair=True)
        store, other, holder, waiter = self.store(), self.store(), self.claim(ttl=self.short), self.claim()
        await self.held(store, holder)
        busy = await self.waiting(other, waiter)
        assert self.traits.lapses == "session" or busy.retry_after <= self.short + 1
        await self.lapse(store, holder)
        await self.let_in(other, waiter)

    async def test_dead_waiters_do_not_stand_in_the_way(self) -> None:
        self.needs(fair=True)
        store, crashed = self.store(), self.store()
        holder, dead, alive = self.claim(), self.claim(place_ttl=self.short), self.claim()
        await self.held(store, holder)
        await self.waiting(crashed, dead)
        assert (await self.waiting(store, alive)).ahead == 2
        await self.lapse(crashed, dead)
        assert (await self.waiting(store, alive)).ahead == 1
        await store.release(holder.resource, holder.id)
        await self.held(store, alive)

    async def test_an_evicted_claim_is_told_so(self) -> None:
        store, claim = self.store(), self.claim()
        await self.held(store, claim)
        await store.evict(self.name, claim.id, "maintenance")
        assert await store.claim(claim) == Gone(True, "maintenance")

    async def test_two_capacities_on_one_resource_are_a_mismatch(self) -> None:
        self.needs(shares="any")
        store, claim = self.store(), self.claim(capacity=3)
        await self.held(store, claim)
        mismatch = await refused(SettingsMismatch, lambda: store.claim(self.claim(capacity=2)))
        assert (mismatch.resource, mismatch.asked, mismatch.standing) == (self.name, 2, 3)
        await store.release(claim.resource, claim.id)
        await self.held(store, self.claim(capacity=2))

    async def test_lapsed_claims_have_no_say_in_the_capacity(self) -> None:
        self.needs(shares="any")
        store, crashed, claim = self.store(), self.store(), self.claim(capacity=3, ttl=self.short)
        await self.held(crashed, claim)
        await self.lapse(crashed, claim)
        await self.held(store, self.claim(capacity=2))

    async def test_what_the_caller_says_of_itself_is_kept_word_for_word(self) -> None:
        store = self.store()
        words = "10.0.0.7:8080 \"'\\ {} %s ünïcödé 🔒 \n\t" + "é" * 2000
        who = '["höst",7,"Main Thread","pkg/run.py:88"]'
        await self.held(store, self.claim(note=words, who=who))
        (standing,) = (await store.inspect(self.name)).standings
        assert (standing.note, standing.who) == (words, who)

    async def test_names_are_compared_by_exact_code_points(self) -> None:
        store = self.store()
        alike = [
            "a",
            "A",
            "a ",
            " a",
            "a/",
            "a//",
            "\u00e1",
            "a\u0301",
            "\uff41",
            "a%",
            "a_",
            "a*",
            "a?",
            "a\\",
        ]
        alike += ["a'", 'a"', "{a}", "a:b", "a;b", "\u00e9" * 512, "\U0001f512" * 256]
        alike += ["x" * 1024, "x" * 1023 + "y", "n" * 1024 + WAITERS]
        for name in alike:
            await self.held(store, self.claim(name))
        assert await store.scan("", "", 1000) == sorted(alike)
