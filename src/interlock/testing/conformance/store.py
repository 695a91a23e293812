"""What tests of a store alone share: claims, made by hand and taken away afterwards."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from interlock.model import Busy, Claim, Granted, Queue
from interlock.store import Store
from interlock.testing.conformance.suite import Suite

LONG = 30.0  # seconds: lapses in no test


class StoreSuite(Suite):
    """Tests of a store alone, without a client."""

    def prepare(self) -> None:
        self._made: list[Claim] = []

    def claim(self, name: str = "", *, ttl: float = LONG, **settings: Any) -> Claim:
        """A new claim; released after the test if it still stands."""
        claim = Claim(name or self.name, uuid4().hex, ttl, **settings)
        self._made.append(claim)
        return claim

    async def held(self, store: Store, claim: Claim) -> Granted:
        answer = await store.claim(claim)
        assert isinstance(answer, Granted), answer
        return answer

    async def let_in(self, store: Store, claim: Claim) -> Granted:
        """The grant that follows from what another client has done.

        Of several servers, the one that is asked may learn of that a moment later.
        """
        if self.traits.survives != "minority":
            return await self.held(store, claim)

        async def granted() -> Granted | None:
            answer = await store.claim(claim)
            return answer if isinstance(answer, Granted) else None

        found: Granted = await self.until(granted)
        return found

    async def waiting(self, store: Store, claim: Claim) -> Busy:
        answer = await store.claim(claim)
        assert isinstance(answer, Busy), answer
        return answer

    async def lapse(self, store: Store, claim: Claim) -> None:
        """Wait until this claim, which nobody renews, has lapsed; with a session, so have all others of
        the store.
        """
        self.crash(store)
        other = self.store()

        async def gone() -> bool:
            queue = await other.inspect(claim.resource)
            return claim.id not in [standing.id for standing in queue.standings]

        await self.until(gone)

    async def tidy(self) -> None:
        store = self.store()
        for claim in self._made:
            await store.release(claim.resource, claim.id)


def ids(queue: Queue) -> list[str]:
    return [standing.id for standing in queue.standings]
