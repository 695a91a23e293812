"""Semaphores: a lease may take several permits, and may be given back in parts.

As in `threading`, a plain semaphore accepts permits it never gave out (a bounded one refuses). Such a
gift is kept by the object it was given to: its next claim takes that much less from the store, down to
a claim of no permits at all, which still has its place in the queue, its lease and its token. So a
stray release never widens the semaphore for anybody else.
"""

from __future__ import annotations

from interlock._core import timing
from interlock._core.attempt import Attempt
from interlock._core.client import Client
from interlock._core.holding import Holding
from interlock._core.lease import Lease
from interlock._core.settings import Settings
from interlock._core.states import FINAL
from interlock.errors import InvalidSetting
from interlock.model import Claim


class SemaphoreHolding(Holding):
    """A holding whose leases weigh differently."""

    def __init__(
        self, client: Client, resource: str, settings: Settings, *, capacity: int, bounded: bool
    ) -> None:
        capacity = timing.checked_count(capacity, "capacity")
        super().__init__(client, resource, settings, capacity=capacity)
        self.bounded = bounded
        self.gift = 0  # permits given to us that we never took
        self.gifted: dict[Lease, int] = {}  # how much of each lease is paid for by a gift

    @property
    def value(self) -> int:
        """What is left as far as this object knows: as `threading.Semaphore` shows it."""
        held = [lease for lease in list(self.leases) if lease.state not in FINAL]
        return self.capacity + self.gift - sum(lease.permits for lease in held)

    def weight(self, lease: Lease) -> int:
        return lease.permits + self.gifted.get(lease, 0)

    def attempt(
        self,
        blocking: bool = True,
        timeout: float | None = None,
        *,
        permits: int | None = None,
        note: str = "",
    ) -> Attempt:
        wanted = timing.checked_count(1 if permits is None else permits, "permits")
        if wanted > self.capacity:
            raise InvalidSetting(
                f"{self.resource}: {wanted} permits can never fit into a capacity of {self.capacity}"
            )
        with self.client.guard:
            gift = min(self.gift, wanted)
            self.gift -= gift
        try:
            attempt = super().attempt(blocking, timeout, permits=wanted - gift, note=note)
        except BaseException:
            self.gift += gift
            raise
        return GiftedAttempt(self, attempt, gift) if gift else attempt

    async def full(self) -> bool:
        """Whether one more permit would have to wait."""
        standings = (await self.client.store.inspect(self.resource)).standings
        return not self.gift and sum(standing.permits for standing in standings) >= self.capacity

    def discharge(self, lease: Lease) -> None:
        super().discharge(lease)
        with self.client.guard:
            self.gift += self.gifted.pop(lease, 0)

    async def release_permits(self, count: int) -> None:
        """Give back `count` permits: the caller's own newest first, then others of this object's."""
        count = timing.checked_count(count, "n")
        owner = self.client.runtime.owner()
        leases = list(self.leases)
        ordered = [lease for lease in reversed(leases) if lease._owner is owner]
        ordered += [lease for lease in leases if lease._owner is not owner]
        total = sum(self.weight(lease) for lease in ordered)
        if count > total and self.bounded:
            raise InvalidSetting(f"{self.resource}: semaphore released too many times")
        failure: Exception | None = None
        for lease in ordered:
            if count <= 0:
                break
            weight = self.weight(lease)
            try:
                await (
                    self.give_back(lease, strict=True) if weight <= count else self._give_part(lease, count)
                )
            except Exception as error:  # one that was lost must not keep the others from those who wait
                failure = failure or error
            count -= min(weight, count)
        with self.client.guard:
            self.gift += max(0, count)
        if failure is not None:
            raise failure

    async def _give_part(self, lease: Lease, count: int) -> None:
        real = min(lease.permits, count)
        with self.client.guard:
            if count > real:
                self.gifted[lease] -= count - real
                self.gift += count - real
        if real:
            await self.shrink(lease, lease.permits - real)


class GiftedAttempt(Attempt):
    """An attempt that is paid for, in part, by permits somebody gave back without having taken them."""

    __slots__ = ("_gift", "_semaphore")

    def __init__(self, semaphore: SemaphoreHolding, attempt: Attempt, gift: int) -> None:
        claim: Claim = attempt.claim
        super().__init__(semaphore, claim, attempt.wait, attempt.owner)
        self._semaphore = semaphore
        self._gift = gift

    async def run(self) -> Lease | None:
        lease: Lease | None = None
        try:
            lease = await super().run()
        finally:
            with self._semaphore.client.guard:
                if lease is None:
                    self._semaphore.gift += self._gift
                else:
                    self._semaphore.gifted[lease] = self._gift
        return lease
