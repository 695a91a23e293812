"""The one acquire loop. Every synchronizer, on every store, in both colours, runs it.

    claim -> Granted                                  one round trip when nobody is in the way
    claim -> Busy -> wait -> claim -> ... -> Granted    a place in the queue, kept alive by the keeper

What interrupts it, at any await, leaves nothing behind: the claim is taken back, to the end.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeGuard

from interlock import events
from interlock._core import timing
from interlock._core.pending_release import FIRST_PAUSE, PendingRelease
from interlock._core.signature import signed
from interlock.errors import ClientClosed, Evicted, StoreUnavailable, StoreUnfit, Unreached
from interlock.model import Busy, Claim, ClaimAnswer, Gone, Granted, Renewal, RenewAnswer, Renewed, Standing
from interlock.ports import IO_TIMEOUT, Owner, Runtime

if TYPE_CHECKING:
    from interlock._core.client import Client

FOR_EVER = float("inf")
LONG_WAIT = 1.0  # seconds after which somebody is told that a caller waits, and for whom
BACK_OFF = (0.01, 0.25)  # seconds: the first and the longest pause of a claim that stands in no queue
TRIES = 3  # a first claim is asked for this often before the store counts as unavailable


class Place:
    """A waiter's place in a queue, as the keeper sees it. It has no deadline: losing it costs a turn."""

    def __init__(self, claim: Claim, now: float, owner: Owner | None = None) -> None:
        self.deadline = float("inf")
        self._owner = owner
        self.left = False  # its waiter has gone, and may have been interrupted before it was dropped
        self._when = now + timing.renew_every(claim.place_ttl)
        self.refreshed = now  # before the question that was answered last: the place lives from then
        self.resource, self.id = claim.resource, claim.id
        self._ask = Renewal(claim.resource, claim.id, claim.place_ttl)

    @property
    def _over(self) -> bool:
        """Whether its waiter is gone: a place kept for nobody would jam the queue for ever."""
        return self.left or (self._owner is not None and not self._owner.alive())

    def _renewal(self, now: float) -> Renewal | None:
        self._when = now + timing.renew_every(self._ask.ttl)
        return self._ask

    def _answered(self, asked: float, answer: RenewAnswer) -> None:
        """A refreshed place; one that lapsed is entered anew by the waiter's own next claim."""
        if isinstance(answer, Renewed):
            self.refreshed = asked

    def _unanswered(self) -> None:
        """Nothing to do: the waiter asks for itself before its place can lapse twice."""

    def _look(self, now: float) -> None:
        """Nothing to do: a place has no deadline."""

    def _lose(self) -> None:
        """Nothing to do: the waiter's own next claim enters anew."""

    def _left_behind(self) -> bool:
        """Whether its waiter has ended without leaving the queue."""
        return not self.left


class Acquiring:
    """One attempt to have one claim granted."""

    __slots__ = (
        "_answered",
        "_client",
        "_pauses",
        "_place",
        "_runtime",
        "_stands",
        "_told_of_waiting",
        "_until",
        "ahead",
        "asked",
        "began",
        "claim",
        "holder",
        "owner",
        "runner",
    )

    def __init__(
        self, client: Client, claim: Claim, wait: float | None, owner: Owner, runner: Owner | None = None
    ) -> None:
        self.owner = owner  # of the lease
        self.runner = runner or owner  # the thread or task that waits for the lease
        self._client = client
        self._runtime: Runtime = client.runtime
        self.claim = claim
        # When the store was last asked (before the question: see Lease), and when it last said something.
        self.began = self.asked = self._answered = now = client.runtime.now()
        self._until = None if wait is None else now + wait
        self.ahead = 0
        self.holder: Standing | None = None  # for whom it waits, if the store has told
        self._place: Place | None = None
        self._stands = False  # a claim of ours may stand in the store
        self._pauses = 0  # how often we have paused without a place in the queue
        self._told_of_waiting = False

    def be_back(self, by: float) -> None:
        """Be as late as the call it is a part of: the locks of one call share one grace."""
        self._until = by

    async def granted(self) -> Granted | None:
        """The grant, or None when the time was up; then, and on any error, nothing is left in the store."""
        try:
            self._stands = True
            patience = IO_TIMEOUT if self._until is None else timing.patience(self._until - self.asked)
            try:
                answer = await self._client.store.claim(self.claim, patience)
            except StoreUnavailable as error:
                self._stands = not isinstance(error, Unreached)
                answer = await self._ask(error)
            return answer if self._usable(answer) else await self._wait(answer)
        except BaseException:
            # Cancelled, interrupted or cut off: the store may have granted what we never heard of.
            # The claim's id makes taking it back safe whether or not it did. A store that hangs must not hold up a
            # caller that wants to be gone: then the keeper goes on.
            await self._take_back_quietly()
            raise
        finally:
            if self._place is not None:
                self._place.left = True
                self._client.keeper.drop(self._place)

    async def _wait(self, answer: ClaimAnswer) -> Granted | None:
        """Until it is granted, gone, or the time is up."""
        while not self._usable(answer):
            if isinstance(answer, Gone):
                self._stands = False
                raise Evicted(self.claim.resource, answer.reason)
            if isinstance(answer, Busy):
                self.ahead, self.holder = (
                    answer.ahead,
                    answer.holder and signed(answer.holder),
                )  # named in errors
            self._answered = self._runtime.now()
            left = self.left()
            if left <= 0:
                await self.take_back(FOR_EVER if self._until is None else self._until)
                return None
            granted: ClaimAnswer | None = None
            if isinstance(answer, Busy):
                if not self._told_of_waiting:
                    left = self._tell_of_waiting(left)
                granted = await self._pause(answer, left)
                self._client.open()  # who waits in a client that was closed would wait for ever
                if granted is None and (quiet := self._client.quiet()) > 0:
                    await self._runtime.sleep(max(0.0, min(quiet, self.left())))
            if granted is None:
                try:
                    granted = await self._ask()
                except StoreUnavailable:
                    if self.left() > 0 or not self._queues():
                        raise
                    # The store has been answering, and is only too busy for a last question: it said who is ahead.
                    await self.take_back(self._until if self._until is not None else FOR_EVER)
                    return None
            answer = granted
        return answer

    def _queues(self) -> bool:
        """Whether the store has told us of a place in the queue, and that not so long ago that it may have lapsed."""
        return self._place is not None and self._runtime.now() - self._answered < self.claim.place_ttl

    def _usable(self, answer: ClaimAnswer) -> TypeGuard[Granted]:
        """Whether it is a grant, of which most is left: one that took its ttl to arrive is asked for again."""
        if type(answer) is not Granted:
            return False
        sent = self.asked if answer.sent is None else answer.sent
        return self._runtime.now() - sent < answer.ttl * timing.FRESH

    def left(self) -> float:
        """Seconds until the caller wants to be back; below 0 once that has passed."""
        return FOR_EVER if self._until is None else self._until - self._runtime.now()

    async def _pause(self, busy: Busy, left: float) -> Granted | None:
        """Wait for our turn, at most until something ahead lapses by itself, and never past the end."""
        claim = self.claim
        if not claim.queued and self._client.store.traits.fair:
            await self._back_off(busy, left)
            return None
        if not claim.queued:  # nobody queues there, so the store knows best when to ask again
            await self._client.store.wait(claim, busy, min(left, max(0.001, busy.retry_after)))
            return None
        if self._place is None:
            self._place = Place(claim, self.asked, self.runner)
            self._client.keeper.keep(self._place)
        else:
            self._place.refreshed = max(self._place.refreshed, self.asked)
        self._client.open()  # now that the place can be seen: whoever closes the client wakes those in it
        limit = min(left, max(0.001, busy.retry_after), claim.place_ttl)
        try:
            granted = await self._client.store.wait(claim, busy, limit)
        except StoreUnavailable:
            # Asking again will tell; but not at once: a store that answers and cannot wait would be asked without end.
            await self._runtime.sleep(min(limit, 0.05 * (0.5 + self._runtime.random())))
            return None
        if granted is None:
            return None
        # Told with the wake-up: where claims lapse by themselves, it lives as long as the place does.
        self.asked = self._place.refreshed
        return granted if self._usable(granted) else None

    async def _back_off(self, busy: Busy, left: float) -> None:
        """Pause before the next try of a claim that stands in no queue: longer each time, up to a bound.

        The bound keeps a free lock from lying idle for long, and a crowd from keeping the server busy.
        """
        longest = min(BACK_OFF[1], max(BACK_OFF[0], busy.retry_after), BACK_OFF[0] * 1.5**self._pauses)
        self._pauses += 1
        await self._runtime.sleep(min(left, longest * (0.5 + self._runtime.random())))

    def _tell_of_waiting(self, left: float) -> float:
        """Report a wait that has become long, once; return how long to wait at most, so as not to miss that moment."""
        client, waited = self._client, self._runtime.now() - self.began
        if waited < LONG_WAIT:
            return min(left, LONG_WAIT - waited)
        self._told_of_waiting = True
        client.emit(
            events.Waiting(self.claim.resource, waited, self.ahead if self.claim.queued else 0, self.holder)
        )
        for lease in list(client.leases):
            if lease.resource == self.claim.resource and lease._blocks(self.claim, self.owner):
                client.emit(events.WaitingForItself(lease.resource, self.owner.name, lease.token))
        return left

    async def _ask(self, failure: StoreUnavailable | None = None) -> ClaimAnswer:
        """Claim; ask again when there is no answer (or was none): the store knows us by the claim's id.

        A newcomer gives up after a few tries; a waiter keeps asking for as long as its place may live.
        """
        tries = 0
        while True:
            if failure is not None:
                tries += 1
                if (tries >= TRIES and not self._queues()) or self.left() <= 0:
                    raise failure
                pause = min(1.0, 0.02 * 2**tries) * (0.5 + self._runtime.random())
                await self._runtime.sleep(max(0.0, min(self.left(), pause)))
            self.asked = self._runtime.now()
            stood, self._stands = self._stands, True
            try:
                return await self._client.store.claim(self.claim, timing.patience(self.left()))
            except StoreUnavailable as error:
                failure = error
                self._stands = stood or not isinstance(error, Unreached)

    async def take_back(self, until: float) -> None:
        """Remove the claim from the store, to the end, whatever interrupts; from `until` on, leave it to the keeper."""
        if self._stands:
            await self._runtime.finish(lambda: self._remove(until))

    async def _take_back_quietly(self) -> None:
        soon = self._runtime.now() + timing.HURRY
        try:
            await self.take_back(soon if self._until is None else min(soon, self._until))
        except ClientClosed:
            pass  # whoever closed the client has taken it back
        except Exception as error:  # never over the first error
            self._client.emit(events.CleanupFailed(self.claim.resource, repr(error)))

    async def _remove(self, until: float) -> None:
        if self._client.inside():  # a signal handler or a garbage collector ended us in the midst of a guard
            self._client.keeper.hand_over(self)
            return
        await removed(self._client, self.claim, until=until)
        self._stands = False

    def _clean_up(self) -> None:
        """For the keeper, when nobody else can: see `Keeper.hand_over`."""
        if self._place is not None:
            self._place.left = True
            self._client.keeper.drop(self._place)
        if self._stands:
            self._stands = False
            release_later(self._client, self.claim, 0.0, pause=0.0)


class Removal(Enum):
    """What became of a claim that was to be removed."""

    DONE = "it stood, and we removed it"
    GONE = "it stood no more"
    PENDING = "the store did not answer: the keeper goes on asking"


DONE, GONE, PENDING = Removal


async def removed(client: Client, claim: Claim, linger: float = 0.0, until: float = FOR_EVER) -> Removal:
    """Release a claim; from `until` on, wait for no more than one short request.

    It is gone only when the store's *first* answer was that no such claim stands: after a lost reply that
    would be our own doing.
    """
    if linger and not client.store.traits.lingers:
        release_later(client, claim, 0.0, pause=linger)
        return DONE
    for tries in range(2):
        patience = IO_TIMEOUT if until == FOR_EVER else timing.patience(until - client.runtime.now())
        try:
            stood = await client.store.release(claim.resource, claim.id, linger, patience)
        except StoreUnavailable:
            if client.runtime.now() >= until:
                break
        except StoreUnfit:  # a full disk, say: that can be mended before the claim lapses
            release_later(client, claim, linger)
            raise
        else:
            return DONE if stood or tries else GONE
    release_later(client, claim, linger)
    return PENDING


def release_later(client: Client, claim: Claim, linger: float, pause: float = FIRST_PAUSE) -> None:
    """Have the keeper release a claim in `pause` seconds, and again until the store has answered."""
    due = client.runtime.now() + pause
    until = FOR_EVER if client.sessions else due + claim.ttl  # by when the claim has lapsed by itself
    client.keeper.release_later(PendingRelease(claim.resource, claim.id, linger, due=due, until=until))
