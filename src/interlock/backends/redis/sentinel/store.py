"""The store port over a master that sentinels watch: a grant or a renewal counts, and a register is written,
only while a majority of them names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interlock.backends.kit.connect_pace import left_after
from interlock.backends.redis.replicated import ReplicatedStore
from interlock.backends.redis.sentinel.views import NEVER
from interlock.backends.redis.store import RedisStore
from interlock.errors import StoreUnavailable, Unreached
from interlock.model import Busy, Claim, ClaimAnswer, Granted, NoAnswer, Renewal, RenewAnswer, Renewed
from interlock.store import IO_TIMEOUT

if TYPE_CHECKING:
    from interlock.backends.redis.sentinel.discovery import Sentinels


WRITES_AGREED_S = 5.0  # seconds for which an agreement of the sentinels counts for the write of a register


class SentinelStore(RedisStore):
    """Claims on the present master.

    If no majority of its sentinels agrees on it for a ttl, its word does not count.
    """

    _route: Sentinels

    async def claim(self, claim: Claim, timeout: float = IO_TIMEOUT) -> ClaimAnswer:
        if self._route.agreement.fresh(claim.ttl):  # as of before the question, from which the lease counts
            return await super().claim(claim, timeout)
        began, pace = self._runtime.now(), self._route.pace
        answer = await super().claim(claim, timeout)
        if type(answer) is Granted:
            # The time that a new connection would have: the sentinels may have to be asked on new ones.
            spent = self._runtime.now() - began
            within = left_after(timeout, spent) if pace.counts(timeout) else pace.within(timeout)
            if not await self._route.agreement.confirmed(claim.ttl, self._runtime, within):
                # Not released here: see ReplicatedStore.claim.
                raise StoreUnavailable(f"{claim.resource}: {self._route.disagreement}")
        return answer

    async def wait(self, claim: Claim, busy: Busy | None, timeout: float) -> Granted | None:
        """Wait as every store does, but return no grant of a master that may have been replaced: the caller
        asks again.

        Otherwise one waiter after the other would believe for as long as its place lives that it holds.
        """
        granted = await super().wait(claim, busy, timeout)
        if granted is None:
            return None
        within = claim.place_ttl / 4
        return granted if await self._route.agreement.confirmed(claim.ttl, self._runtime, within) else None

    async def renew(self, renewals: Sequence[Renewal], timeout: float = IO_TIMEOUT) -> list[RenewAnswer]:
        until = self._runtime.now() + timeout
        answers = await super().renew(renewals, timeout)
        agreement, pairs = self._route.agreement, list(zip(renewals, answers, strict=True))
        gained = [ask.ttl for ask, answer in pairs if isinstance(answer, Renewed) and not ask.waiting]
        left = max(0.0, until - self._runtime.now())
        if not gained or await agreement.confirmed(min(gained), self._runtime, left):
            return answers
        return [
            NoAnswer(f"{ask.resource}: {self._route.disagreement}")
            if isinstance(answer, Renewed) and not ask.waiting and not agreement.recent(ask.ttl)
            else answer
            for ask, answer in pairs
        ]

    async def _write(self, name: str, body: bytes, timeout: float) -> Any:
        """Write only to a master that the sentinels agree on: a grant can be taken back, but no write."""
        return await super()._write(name, body, await self._time_after_agreement(name, timeout))

    async def confirm_read(self, name: str, version: int, timeout: float = IO_TIMEOUT) -> bool:
        return await super().confirm_read(name, version, await self._time_after_agreement(name, timeout))

    async def _time_after_agreement(self, name: str, timeout: float) -> float:
        """The time that is left once the sentinels agree on the master; `Unreached` if they do not."""
        agreement, pace = self._route.agreement, self._route.pace
        if not agreement.fresh(WRITES_AGREED_S):
            began, counts = self._runtime.now(), pace.counts(timeout)
            if self._route.agreed == NEVER:  # nor is there a connection yet, which asks the sentinels
                await self.read(name, timeout)
            within = timeout if counts else pace.within(timeout)
            if not await agreement.confirmed(WRITES_AGREED_S, self._runtime, within):
                raise Unreached(self._route.disagreement)
            if counts:
                timeout = left_after(timeout, self._runtime.now() - began)
        return timeout


class ReplicatedSentinelStore(SentinelStore, ReplicatedStore):
    """The same, where replicas must confirm grants and renewals, too.

    Even a majority of them proves nothing about the master: replicas may join an old one after it was cut
    off, and clients of the new one need not ask for any.
    """
