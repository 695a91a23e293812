"""A waiter's place in a queue, as the keeper sees it."""

from __future__ import annotations

from interlock._core import timing
from interlock._core.runtime import Owner
from interlock.model import Claim, Renewal, RenewAnswer, Renewed


class QueuePlace:
    """Renewed by the keeper while its waiter lives.

    It has no deadline: losing it costs a turn in the queue.
    """

    waiting = True  # for its turn

    def __init__(self, claim: Claim, now: float, owner: Owner | None = None) -> None:
        self.deadline = float("inf")
        self._owner = owner
        self.left = False  # its waiter has gone, and may have been interrupted before the place was dropped
        self._due = now + claim.place_ttl / timing.RENEWALS_PER_TTL
        self._leeway = claim.place_ttl / 8  # a crowd of waiters is renewed in few requests
        self.refreshed = now  # before the last question that was answered: the place lives from then
        self.resource, self.id = claim.resource, claim.id
        self._ask = Renewal(claim.resource, claim.id, claim.place_ttl, waiting=self.waiting)

    @property
    def _ended(self) -> bool:
        """Whether its waiter is gone: a place that is kept for nobody would jam the queue for ever."""
        return self.left or (self._owner is not None and not self._owner.alive())

    def _renewal(self, now: float) -> Renewal | None:
        self._due = now + self._ask.ttl / timing.RENEWALS_PER_TTL
        return self._ask

    def _on_reply(self, asked: float, answer: RenewAnswer) -> None:
        """Note that the place was refreshed; one that lapsed is entered anew by the waiter's own next
        claim.
        """
        if isinstance(answer, Renewed):
            self.refreshed = asked

    def _on_no_reply(self, why: str = "") -> None:
        """Nothing to do: the waiter asks for itself before its place can lapse twice."""

    def _poll(self, now: float) -> None:
        """Nothing to do: a place has no deadline."""

    def _on_session_lost(self) -> None:
        """Nothing to do: the waiter's own next claim enters anew."""

    def _left_behind(self) -> bool:
        """Whether its waiter has ended without leaving the queue."""
        return not self.left
