"""The wait of an attempt: from the store's first answer that others are ahead, until its claim is granted.

    Busy -> pause -> ask again -> ... -> Granted

While it waits, the attempt has a place in the store's queue, which the keeper renews. The pause ends when the
store rings, when something ahead may have lapsed, or when the caller wants to be back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock import events
from interlock._core import timing
from interlock._core.place import QueuePlace
from interlock._core.removal import FOR_EVER
from interlock._core.signature import as_present_holder
from interlock._support.wording import duration
from interlock.errors import StoreUnavailable
from interlock.model import Busy, ClaimAnswer, Gone, Granted, Standing

if TYPE_CHECKING:
    from interlock._core.attempt import Attempt
    from interlock._core.lease import Lease

LONG_WAIT_S = 1.0  # seconds after which the listener is told that a caller waits, and for whom
BACK_OFF_S = (0.01, 0.25)  # seconds: the first and the longest pause of a claim that stands in no queue


class Waiter:
    """An attempt that waits: what the store has told it, its place in the queue, and its pauses."""

    __slots__ = (
        "_attempt",
        "_client",
        "_last_reply",
        "_pauses",
        "_place",
        "_reported",
        "_runtime",
        "_timed_out_quietly",
        "ahead",
        "holder",
    )

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._client = attempt.client
        self._runtime = attempt.client.runtime
        self.ahead = attempt.ahead
        self.holder: Standing | None = None  # the holder that it waits for, if the store has named it
        self._last_reply = attempt.asked  # when the store last answered
        self._place: QueuePlace | None = None
        self._pauses = 0  # how often it has paused without a place in the queue
        self._reported = False  # the listener knows that it waits
        # The last pause used up its time: nothing has happened that it was to notice.
        self._timed_out_quietly = False

    async def until_granted(self, answer: ClaimAnswer) -> Granted | Lease | None:
        """Wait in the store's queue, and ask again until the claim is granted or gone; None if the time was
        up.
        """
        attempt, late = self._attempt, False
        try:
            while not attempt.usable(answer):
                if isinstance(answer, Gone):
                    self.leave_queue()  # a claim that enters anew has another id, and a place of its own
                    answer = await attempt.after_eviction(answer)
                    continue
                if isinstance(answer, Busy):  # named in errors
                    self.ahead, self.holder = answer.ahead, answer.holder and as_present_holder(answer.holder)
                self._last_reply = self._runtime.now()
                if (left := attempt.left()) <= 0 and isinstance(answer, Granted):
                    # Granted, and used up on arrival, as after a slow connect. Nobody else has it, so None
                    # would be wrong.
                    if late:
                        raise self._too_late(answer)
                    late = True
                    attempt.be_back(self._runtime.now())  # with a grace of its own
                elif left <= 0:
                    await attempt.take_back(FOR_EVER if attempt.until is None else attempt.until)
                    return None
                granted = await self._await_turn(answer, left) if isinstance(answer, Busy) else None
                if granted is not None:
                    return granted
                try:
                    answer = await attempt.ask()
                except StoreUnavailable:
                    if attempt.left() > 0 or not self.queues():
                        raise
                    # The store has been answering, and is only too busy for a last question: it said who is
                    # ahead.
                    await attempt.take_back(attempt.until if attempt.until is not None else FOR_EVER)
                    return None
            return answer
        finally:
            if self._place is not None:
                self.leave_queue()

    def _too_late(self, granted: Granted) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._attempt.claim.resource}: the store has granted it, but each answer took longer than "
            f"half of its ttl of {duration(granted.ttl)}; choose a longer ttl"
        )

    # ---- pauses -----------------------------------------------------------------------

    async def _await_turn(self, busy: Busy, left: float) -> Granted | Lease | None:
        """Pause until asking again may help, at most `left` seconds; a usable grant if there is one
        meanwhile.
        """
        attempt, client, inherits = self._attempt, self._client, True
        while True:
            if not self._reported:
                left = self._report_long_wait(left)
            granted = await self._pause(busy, left, inherits)
            if client.closed:  # a waiter of a client that was closed would wait for ever
                client.check_open()
            if granted is None and (pause := client.draining()) > 0:
                await self._runtime.sleep(max(0.0, min(pause, attempt.left())))
            if granted is not None or not self._watched(busy) or (left := attempt.left()) <= 0:
                return granted
            inherits = False  # the answer is old: a later grant may have been made since

    async def _pause(self, busy: Busy, left: float, inherits: bool) -> Granted | Lease | None:
        """Wait for our turn, at most until something ahead lapses by itself, and never past the end."""
        self._timed_out_quietly = False
        attempt, client, claim = self._attempt, self._client, self._attempt.claim
        if not claim.queued and client.store.traits.fair:
            await self._back_off(busy, left)
            return None
        if not claim.queued:  # nobody queues there, so the store knows best when to ask again
            await client.store.wait(claim, busy, min(left, max(0.001, busy.retry_after)))
            return None
        limit = self._longest_pause(busy, left)
        if inherits and claim.block > 1 and (called := client.cohorts.join_heirs(attempt, busy)) is not None:
            until = self._runtime.now() + limit
            # Not for so long that our place in the store would have to be renewed.
            lease = await attempt.inherited(called, min(limit, timing.renew_every(claim.place_ttl)))
            if lease is not None:
                return lease
            limit = max(0.001, until - self._runtime.now())
        place = self._keep_place()
        until = self._runtime.now() + limit
        try:
            granted = await client.store.wait(claim, busy, limit)
        except StoreUnavailable:
            # Asking again will tell; but not at once: a store that answers and cannot wait would be asked
            # without end.
            await self._runtime.sleep(min(limit, 0.05 * (0.5 + self._runtime.random())))
            return None
        if granted is None:
            self._timed_out_quietly = self._runtime.now() >= until
            return None
        if granted.sent is None:
            # Told with the wake-up: where claims lapse by themselves, it lives as long as the place does.
            granted = Granted(granted.token, granted.ttl, place.refreshed, granted.unconfirmed)
        if not attempt.usable(granted):
            return None
        attempt.asked = self._runtime.now()  # it was granted while we waited
        return granted

    def _watched(self, busy: Busy) -> bool:
        """Whether the renewals of our place watch over it, so that there is no reason to ask the store now.

        They do if nothing has ended the pause, the place was renewed in time, and no lapse ahead was due.
        """
        place, now = self._place, self._runtime.now()
        if place is None or not self._timed_out_quietly or not self._client.store.traits.renewals_wake:
            return False
        in_time = now - place.refreshed < self._attempt.claim.place_ttl * timing.OVERDUE_PART
        return in_time and (self._waits_for_ring(busy) or now < self._last_reply + busy.retry_after)

    def _waits_for_ring(self, busy: Busy) -> bool:
        """Whether a lapse ahead is so far away that a renewal of our place notices it before."""
        if not self._client.store.traits.renewals_wake:
            return False
        return busy.retry_after > self._attempt.claim.place_ttl * timing.WATCHED_BY_RENEWALS_PART

    def _longest_pause(self, busy: Busy, left: float) -> float:
        """Seconds until something that we must watch may have lapsed, or our own place."""
        if not self._waits_for_ring(busy):
            left = min(left, max(0.001, self._last_reply + busy.retry_after - self._runtime.now()))
        # A place that a session carries is not prolonged by asking again.
        return min(left, self._attempt.claim.place_ttl) if self._client.session is None else left

    async def _back_off(self, busy: Busy, left: float) -> None:
        """Pause before the next try of a claim that stands in no queue: longer each time, up to a bound.

        The bound keeps a free lock from lying idle for long, and a crowd from keeping the server busy.
        """
        longest = min(BACK_OFF_S[1], max(BACK_OFF_S[0], busy.retry_after), BACK_OFF_S[0] * 1.5**self._pauses)
        self._pauses += 1
        await self._runtime.sleep(min(left, longest * (0.5 + self._runtime.random())))

    def _report_long_wait(self, left: float) -> float:
        """Report a wait that has become long, once; return how long to wait at most, so as not to miss
        that moment.
        """
        attempt, client, claim = self._attempt, self._client, self._attempt.claim
        waited = self._runtime.now() - attempt.began
        if waited < LONG_WAIT_S:
            return min(left, LONG_WAIT_S - waited)
        self._reported = True
        client.emit(events.Waiting(claim.resource, waited, self.ahead if claim.queued else 0, self.holder))
        for lease in list(client.leases):
            if lease.resource == claim.resource and lease._blocks(claim, attempt.owner):
                client.emit(events.WaitingForItself(lease.resource, attempt.owner.name, lease.token))
        return left

    # ---- the place ----------------------------------------------------------------------

    def queues(self) -> bool:
        """Whether the store has told us of a place in the queue, so recently that the place may still
        live.
        """
        if self._place is None:
            return False
        heard = max(self._last_reply, self._place.refreshed)
        return self._runtime.now() - heard < self._attempt.claim.place_ttl

    def _keep_place(self) -> QueuePlace:
        """Have the keeper renew our place in the store's queue, which was refreshed when we asked last."""
        place, client, attempt = self._place, self._client, self._attempt
        if place is None:
            self._place = place = QueuePlace(attempt.claim, attempt.asked, attempt.runner)
            client.keeper.keep(place)
        else:
            place.refreshed = max(place.refreshed, attempt.asked)
        # Again, now that the place can be seen: closing the client wakes the waiters that it sees.
        if client.closed:
            client.check_open()
        return place

    def leave_queue(self) -> None:
        """Have the keeper no longer renew our place."""
        place, keeper = self._place, self._client.keeper
        if place is not None:
            place.left = True
            if keeper.newly_kept.pop(place, self) is not None:  # most are gone before the keeper has looked
                keeper.drop(place)
            self._place = None
