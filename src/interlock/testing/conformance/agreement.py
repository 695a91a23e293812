"""A store answers as the reference does, whatever is asked of it in whatever order."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from interlock.backends.memory import MemoryStore, Space
from interlock.model import EVERYTHING, Busy, Claim, ClaimAnswer, Granted, Queue, Renewal, Renewed, Standing
from interlock.store import Store
from interlock.testing.conformance.store import StoreSuite

STEPS = 25
SEEDS = 15

Action = Callable[[Store], Awaitable[Any]]


class Agreement(StoreSuite):
    """Seeded sequences, without waiting; lapses are apart, as no two stores read their clocks at once."""

    async def test_it_agrees_with_the_reference_whatever_is_asked_in_whatever_order(self) -> None:
        self.needs(shares="any", fair=True)
        store = self.store()
        for seed in range(SEEDS):
            chance = random.Random(seed)
            reference = MemoryStore(Space(self.runtime.now, self.runtime.mutex()), self.runtime)
            name, claims = f"{self.name}-{seed}", list[Claim]()
            held: set[str] = set()  # those that were told so: only these are renewed as a holder's
            for step in range(STEPS):
                action, told = self._choose(chance, name, claims, held)
                ours, theirs = plain(await action(store)), plain(await action(reference))
                assert ours == theirs, (
                    f"seed {seed}, step {step}, {told}: {ours}, the reference says {theirs}"
                )
                queue, expected = plain(await store.inspect(name)), plain(await reference.inspect(name))
                assert queue == expected, f"seed {seed}, step {step}, after {told}: {queue}, not {expected}"

    def _choose(
        self, chance: random.Random, name: str, claims: list[Claim], held: set[str]
    ) -> tuple[Action, str]:
        if not claims or chance.random() < 0.4:
            claims.append(self._new(chance, name, claims))
        claim, draw = chance.choice(claims), chance.random()

        async def claimed(store: Store) -> ClaimAnswer:
            answer = await store.claim(claim)
            (held.add if isinstance(answer, Granted) else held.discard)(claim.id)
            return answer

        if draw < 0.5:
            return claimed, f"claim {claim}"
        if draw < 0.7:
            return lambda store: store.release(name, claim.id), f"release {claim}"
        if draw < 0.8 or (draw < 0.9 and claim.id not in held):
            renewal = Renewal(name, claim.id, claim.ttl, waiting=claim.id not in held)
            return lambda store: store.renew([renewal], 5.0), f"renew {renewal}"
        if draw < 0.9:
            fewer = Renewal(name, claim.id, claim.ttl, permits=claim.permits // 2, note=f"{draw}")
            return lambda store: store.renew([fewer], 5.0), f"shrink {claim}"
        id = claim.id if draw < 0.95 else None
        return lambda store: store.evict(name, id, "seeded"), f"evict {id}"

    def _new(self, chance: random.Random, name: str, claims: list[Claim]) -> Claim:
        capacity = claims[0].capacity if claims else chance.choice([1, 3, 7, EVERYTHING])
        permits = chance.choice([1, 1, capacity, chance.randint(0, min(capacity, 7))])
        return self.claim(name, permits=permits, capacity=capacity, queued=chance.random() < 0.8)


def plain(answer: object) -> object:
    """An answer without what two stores need not agree on: tokens and times."""
    match answer:
        case Granted() | Renewed():
            return type(answer).__name__
        case Busy(ahead):
            return f"Busy {ahead}"
        case Queue(_, capacity, standings):
            return capacity, [plain(standing) for standing in standings]
        case Standing():
            return answer.id, answer.permits, answer.admitted, answer.note, answer.who
        case list():
            parts: list[object] = [*answer]
            return [plain(part) for part in parts]
        case _:
            return answer
