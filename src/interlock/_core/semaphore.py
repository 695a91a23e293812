"""Semaphores: a lease may take several permits, and may be given back in parts.

As in `threading`, a plain semaphore accepts permits it never gave out (a bounded one refuses). Such a
gift is kept by the object it was given to: its next claim takes that much less from the store, down to
a claim of no permits at all, which still has its place in the queue, its lease and its token. So a
stray release never widens the semaphore for anybody else.

A release decides under the client's mutex which leases it gives back, and sets them apart, before it asks the
store: threads and tasks that release at the same time never give back the same permit.
"""

from __future__ import annotations

from typing import Self, TypeAlias

from interlock._core import timing
from interlock._core.attempt import Attempt
from interlock._core.client import Client
from interlock._core.holding import Holding
from interlock._core.lease import Lease
from interlock._core.removal import FOR_EVER
from interlock._core.runtime import Owner
from interlock._core.settings import Settings
from interlock._core.states import FINAL, State
from interlock.errors import InvalidSetting, NotHeld, Unsupported
from interlock.model import Claim

Share: TypeAlias = tuple[Lease, bool]
"""A lease that a release gives back: the whole of it, or the part by which it was made smaller already."""


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
        self._going: set[Lease] = set()  # leases that some release is giving back, whole

    def renamed(self, resource: str) -> Self:
        other = super().renamed(resource)
        other.gift, other.gifted, other._going = 0, {}, set()
        return other

    @property
    def value(self) -> int:
        """The permits that are left as far as this object knows, as `threading.Semaphore` shows them."""
        held = [lease for lease in list(self.leases) if lease.state not in FINAL]
        return self.terms.capacity + self.gift - sum(lease.permits for lease in held)

    def weight(self, lease: Lease) -> int:
        return lease.permits + self.gifted.get(lease, 0) + self.older.get(lease, 0)

    def forget(self, lease: Lease) -> None:
        super().forget(lease)
        self.gifted.pop(lease, None)

    def attempt(
        self,
        blocking: bool = True,
        timeout: float | None = None,
        *,
        permits: int | None = None,
        note: str = "",
        owner: Owner | None = None,
    ) -> Attempt:
        wanted = timing.checked_count(1 if permits is None else permits, "permits")
        if wanted > self.terms.capacity:
            raise InvalidSetting(
                f"{self.resource}: {wanted} permits can never fit into a capacity of {self.terms.capacity}"
            )
        with self.client.mutex:
            gift = min(self.gift, wanted)
            self.gift -= gift
        try:
            attempt = super().attempt(blocking, timeout, permits=wanted - gift, note=note, owner=owner)
        except BaseException:
            with self.client.mutex:
                self.gift += gift
            raise
        return GiftedAttempt(self, attempt, gift) if gift else attempt

    async def full(self) -> bool:
        """Whether one more permit would have to wait."""
        standings = (await self.client.store.inspect(self.resource)).standings
        return not self.gift and sum(standing.permits for standing in standings) >= self.terms.capacity

    def unregister_lease(self, lease: Lease) -> None:
        super().unregister_lease(lease)
        with self.client.mutex:
            self._going.discard(lease)
            self.gift += self.gifted.pop(lease, 0)

    async def release_permits(self, count: int, owner: Owner | None = None) -> None:
        """Give back `count` permits: the owner's own newest first, then others of this object's."""
        count = timing.checked_count(count, "n")
        shares: list[Share] = []
        owner = owner or self.client.runtime.owner()
        try:
            self._reserve(count, owner, shares)
            failure = await self._give(shares, owner)
        except (InvalidSetting, Unsupported):  # refused: nothing was set apart
            raise
        # Interrupted: the permits that were set apart are nobody's, and others wait for them.
        except BaseException:
            soon = self.client.runtime.now()
            await self.client.runtime.finish(lambda: self._give(shares, owner, soon))
            raise
        if failure is not None:
            raise failure

    def _reserve(self, count: int, owner: Owner, shares: list[Share]) -> None:
        """Decide which permits are given back, in one step: a second release finds only those that the
        first has left.
        """
        with self.client.mutex:
            leases = [lease for lease in self.leases if lease not in self._going]
            ordered = [lease for lease in reversed(leases) if lease._owner is owner]
            ordered += [lease for lease in leases if lease._owner is not owner]
            if self.bounded and count > sum(self.weight(lease) for lease in ordered):
                raise InvalidSetting(f"{self.resource}: semaphore released too many times")
            self._refuse_part_of_pinned(ordered, count)
            for lease in ordered:
                if count <= 0:
                    break
                weight = self.weight(lease)
                shares.append((lease, weight <= count))  # first: an interrupt must find it there
                if weight <= count:
                    self._going.add(lease)
                else:
                    self._reserve_part(lease, count)
                count -= min(weight, count)
            self.gift += max(0, count)

    def _refuse_part_of_pinned(self, ordered: list[Lease], count: int) -> None:
        """Raise if a lease would shrink that an absolute guard was shown: the store would let others in
        while the guard's transaction is open, and nobody tells us when it ends.
        """
        for lease in ordered:
            if count < (weight := self.weight(lease)):
                if lease._pinned and lease.permits and count > self.older.get(lease, 0):
                    raise Unsupported(
                        f"{self.resource}: a lease that was shown to a guard with absolute=True gives back "
                        "no part of its permits; release it as a whole: lease.release()"
                    )
                return
            count -= weight

    def _reserve_part(self, lease: Lease, count: int) -> None:
        older = min(self.older.get(lease, 0), count)
        if older:
            self.older[lease] -= older
        real = min(lease.permits, count - older)
        if real:
            lease._shrunk(lease.permits - real)
        if gift := count - older - real:
            self.gifted[lease] -= gift
            self.gift += gift

    async def _give(self, shares: list[Share], by: Owner, until: float = FOR_EVER) -> Exception | None:
        """Give back all that was set apart; return the first failure. May be repeated.

        From `until` on a store that does not answer is not waited for: the keeper asks it again.
        """
        failure: Exception | None = None
        while shares:
            lease, whole = shares[0]
            left = until - self.client.runtime.now()
            try:
                if whole:
                    await lease._give_back(strict=True, left=left, by=by)
                else:
                    await lease._shrink(lease.permits, timing.patience(left))
            except NotHeld as error:  # a lease that was lost must not keep the others from the waiters
                if lease._state is not State.RELEASED or lease._cause:
                    failure = failure or error
                # Otherwise another release has given back all that was left of it, our part included.
            except Exception as error:
                failure = failure or error
            del shares[0]
        return failure


class GiftedAttempt(Attempt):
    """An attempt that is covered, in part, by permits that were released without having been taken."""

    __slots__ = ("_gift", "_semaphore")

    def __init__(self, semaphore: SemaphoreHolding, attempt: Attempt, gift: int) -> None:
        claim: Claim = attempt.claim
        super().__init__(semaphore.client, semaphore, claim, attempt.wait, attempt.owner, attempt.runner)
        self._semaphore = semaphore
        self._gift = gift

    def at_once(self) -> Lease | None:
        """None: `run` sees to it."""
        return None

    async def run(self) -> Lease | None:
        lease: Lease | None = None
        try:
            lease = await super().run()
        finally:
            with self._semaphore.client.mutex:
                if lease is None:
                    self._semaphore.gift += self._gift
                else:
                    self._semaphore.gifted[lease] = self._gift
        return lease
