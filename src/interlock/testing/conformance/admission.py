"""Who may hold together: the one rule of admission, as every store must keep it."""

from __future__ import annotations

from interlock.model import EVERYTHING, Claim, Granted
from interlock.store import Store
from interlock.testing.conformance.store import StoreSuite


class Shares(StoreSuite):
    """Many claims at a time: the one rule of admission."""

    async def answers(self, store: Store, claims: list[Claim]) -> str:
        """One letter a claim: G granted, b busy."""
        letters = ["G" if isinstance(await store.claim(claim), Granted) else "b" for claim in claims]
        return "".join(letters)

    async def test_a_semaphore_grants_its_capacity_and_no_more(self) -> None:
        self.needs(shares="any")
        store = self.store()
        assert await self.answers(store, [self.claim(capacity=3) for _ in range(5)]) == "GGGbb"

    async def test_a_heavy_claim_is_not_overtaken_by_light_ones(self) -> None:
        self.needs(shares="any", fair=True)
        store = self.store()
        claims = [self.claim(permits=permits, capacity=4) for permits in (2, 3, 1, 1)]
        assert await self.answers(store, claims) == "Gbbb"
        await store.release(self.name, claims[0].id)
        assert await self.answers(store, claims[1:]) == "GGb"

    async def test_a_claim_of_no_permits_is_granted_in_its_turn(self) -> None:
        self.needs(shares="any", fair=True)
        store = self.store()
        claims = [self.claim(permits=permits, capacity=2) for permits in (2, 0, 1, 0)]
        assert await self.answers(store, claims) == "GGbb"

    async def test_readers_share_and_a_writer_is_alone(self) -> None:
        self.needs(shares=("any", "pairwise"))
        store = self.store()
        readers = [self.claim(capacity=EVERYTHING) for _ in range(3)]
        writer = self.claim(permits=EVERYTHING, capacity=EVERYTHING)
        assert await self.answers(store, [*readers, writer]) == "GGGb"
        for reader in readers:
            await store.release(self.name, reader.id)
        assert await self.answers(store, [writer, self.claim(capacity=EVERYTHING)]) == "Gb"

    async def test_a_waiting_writer_is_not_overtaken_by_later_readers(self) -> None:
        self.needs(shares=("any", "pairwise"), fair=True)
        store, reader = self.store(), self.claim(capacity=EVERYTHING)
        writer, late = self.claim(permits=EVERYTHING, capacity=EVERYTHING), self.claim(capacity=EVERYTHING)
        assert await self.answers(store, [reader, writer, late]) == "Gbb"
        await store.release(self.name, reader.id)
        assert await self.answers(store, [writer, late]) == "Gb"

    async def test_who_contends_at_once_is_never_more_than_fit(self) -> None:
        self.needs(shares="any")
        inside, most = [0], [0]

        async def contend() -> None:
            store = self.store()
            for _ in range(5):
                claim = self.claim(capacity=2)
                while not isinstance(await store.claim(claim), Granted):
                    await self.runtime.sleep(0.001)
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                await self.runtime.sleep(0.001)
                inside[0] -= 1
                await store.release(claim.resource, claim.id)

        for actor in [self.spawn(contend) for _ in range(4)]:
            await actor.result()
        assert 1 <= most[0] <= 2  # a busy machine may run them one after the other
