"""The acquire loop: one attempt to take one lease. Every synchronizer, on every store, sync and async, runs
it.

    claim -> Granted                                    one round trip if nobody is in the way
    claim -> Busy -> wait -> claim -> ... -> Granted    a place in the queue, which the keeper keeps alive

The file follows an attempt in order: the call, the cohort, the claim, the wait, and the way back. Whatever
interrupts an attempt, at any await, leaves nothing behind: the claim is taken back, to the end (`undo`).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeGuard

from interlock import events
from interlock._core import timing
from interlock._core.cohort import TURN_S, Member, Turn
from interlock._core.lease import Lease
from interlock._core.removal import FOR_EVER, release_later, remove
from interlock._core.runtime import Owner, Runtime, Signal
from interlock._core.signature import as_present_holders
from interlock._core.waiter import Waiter
from interlock._support.record import replaced
from interlock.errors import (
    AcquireTimeout,
    ClientClosed,
    Evicted,
    HeldUp,
    InterlockError,
    StoreUnavailable,
    StoreUnfit,
    Unreached,
)
from interlock.model import Claim, ClaimAnswer, Gone, Granted, Standing
from interlock.store import IO_TIMEOUT

if TYPE_CHECKING:
    from interlock._core.client import Client
    from interlock._core.holding import Holding

MAX_CLAIM_TRIES = 3  # a first claim is asked for this often before the store counts as unavailable
# Seconds in which a connection is refused; a store that took longer has had its time to be connected to.
QUICK_REFUSAL_S = 0.25
MAX_HOLDERS_NAMED = 16  # claims at the front of the queue that are asked for when an error names the holders
BLANK_GRANT = Granted(0, 0.0)  # of a lease that is made before it is known whether it will be granted


class Attempt:
    """A claim on its way to a lease."""

    __slots__ = (
        "_holding",
        "_refused",
        "_runtime",
        "_stands",
        "_waiter",
        "asked",
        "began",
        "claim",
        "client",
        "lease",
        "member",
        "over",
        "owner",
        "queued",
        "runner",
        "until",
        "wait",
    )

    def __init__(
        self,
        client: Client,
        holding: Holding | None,  # None for a claim that leads to no lease: see `Room`
        claim: Claim,
        wait: float | None,
        owner: Owner,
        runner: Owner | None = None,
    ) -> None:
        self.client = client
        self._holding = holding
        self._runtime: Runtime = client.runtime
        self.claim = claim
        self.wait = wait
        self.owner = owner  # of the lease
        self.runner = runner or owner  # the thread or task that waits for the lease
        # When the store was last asked: noted before the question, see Lease.
        self.began = self.asked = now = client.runtime.now()
        self.until = None if wait is None else now + wait  # when the caller wants to be back
        self.lease: Lease | None = None
        self.queued = False  # listeners were told that it waits
        self.over = False  # it has ended without a lease, and nothing of it is left
        self._stands = False  # our claim may stand in the store
        self._refused = False  # the store has refused to make it: see `remove`
        self._waiter: Waiter | None = None  # what only an attempt that has to wait needs
        self.member: Member | None = None  # what only one of a cohort needs

    def be_back(self, by: float) -> None:
        """Set the deadline: all locks of one multilock share a single one, and a single grace."""
        self.until = by

    def left(self) -> float:
        """Seconds until the caller wants to be back; below 0 once that has passed."""
        return FOR_EVER if self.until is None else self.until - self._runtime.now()

    @property
    def ahead(self) -> int:
        """How many claims are ahead, as far as it has been told."""
        if self._waiter is not None:
            return self._waiter.ahead
        return 0 if self.member is None else self.member.ahead

    @property
    def holder(self) -> Standing | None:
        """The holder that it waits for, if the store has named it."""
        return None if self._waiter is None else self._waiter.holder

    # ---- the call -----------------------------------------------------------------

    def at_once(self) -> Lease | None:
        """The lease, if the store decides here and nobody is in the way; otherwise `run` goes on.

        After an error, `undo` it.
        """
        client, claim, holding = self.client, self.claim, self._holding
        if not client.decides_here or claim.block > 1 or holding is None:
            return None
        client.attempts[self] = None  # as in `run`, which ends it, or `undo`
        self._stands = True
        try:
            granted = client.store.claim_idle(claim)
        except StoreUnfit:
            self._refused = True
            raise
        if granted is None or not self.usable(granted):
            return None
        self.lease = lease = client.lease_type(holding, claim, granted, self.asked, self.owner)
        holding.register_lease(self, lease)
        lease._begin()
        client.attempts.pop(self, None)
        if client.closed:
            client.attempt_ended()
        return lease

    async def run(self) -> Lease | None:
        """The lease, or None if the time was up; then, and on any error, nothing is left in the store."""
        client, holding = self.client, self._holding
        assert holding is not None
        try:
            # A blocking caller has tried that before.
            if client.decides_here and not self._stands and (lease := self.at_once()) is not None:
                return lease
            client.attempts[self] = None  # closing the client waits for us
            if self.claim.block > 1 and (called := client.cohorts.join(self)) is not None:
                granted = await self._stand_in_line(called)
            else:
                self._stands = True
                patience = IO_TIMEOUT if self.until is None else timing.patience(self.until - self.asked)
                try:
                    answer = await client.store.claim(self.claim, patience)
                except StoreUnavailable as error:
                    self._stands = not isinstance(error, Unreached)
                    answer = await self.ask(error)
                except StoreUnfit:
                    self._refused = True
                    raise
                granted = answer if self.usable(answer) else await self._wait(answer)
            if granted is None:
                self._give_up()
                return None
            self.lease = lease = granted if isinstance(granted, Lease) else self._lease(holding, granted)
            holding.register_lease(self, lease)
            lease._begin()
            return lease
        except BaseException as error:
            try:
                await self.undo()
            finally:
                self._report_failure(error)
            raise
        finally:
            client.attempts.pop(self, None)
            if client.closed:
                client.attempt_ended()

    def _lease(self, holding: Holding, granted: Granted) -> Lease:
        """The lease over a grant of the store."""
        client = self.client
        if client.session is not None:
            self.claim = client.session.cut(self.claim, client.store.traits)
        return client.lease_type(holding, self.claim, granted, self.asked, self.owner)

    def _give_up(self) -> None:
        """The time was up, and nothing stands in the store."""
        if self.claim.block > 1:
            self.client.cohorts.leave(self)
        self.over = True
        self._report_timeout()

    def _report_timeout(self) -> None:
        waited, holding = self._runtime.now() - self.began, self._holding
        said = () if holding is None else (holding.kind, holding.template)
        self.client.emit(events.TimedOut(self.claim.resource, waited, self.ahead, self.queued, *said))

    def _report_wait(self) -> None:
        """Tell listeners that this attempt has to wait, once."""
        holding = self._holding
        if not self.queued and holding is not None and self.client.wants_all_events():
            self.queued = True
            self.client.emit(events.Queued(self.claim.resource, holding.kind, holding.template))

    def _report_failure(self, error: BaseException) -> None:
        """Tell listeners why there is no lease."""
        holding = self._holding
        if holding is not None and self.client.wants_all_events() and not self.client.inside():
            waited, cancelled = self._runtime.now() - self.began, not isinstance(error, Exception)
            self.client.emit(
                events.AcquireFailed(
                    self.claim.resource,
                    waited,
                    type(error).__name__,
                    cancelled,
                    self.queued,
                    holding.kind,
                    holding.template,
                )
            )

    async def acquire_or_raise(self) -> Lease:
        """The lease; `AcquireTimeout` if the time was up."""
        lease = await self.run()
        if lease is None:
            raise await self.timed_out()
        return lease

    async def timed_out(self) -> InterlockError:
        """The error for a caller that must not go on without the lease; it names the holders if the store
        can.
        """
        resource, store = self.claim.resource, self.client.store
        waited = self._runtime.now() - self.began
        try:
            queue = await store.inspect(resource, timing.patience(self.left()), limit=MAX_HOLDERS_NAMED)
        except InterlockError:
            return AcquireTimeout(resource, waited, self.ahead)
        return AcquireTimeout(resource, waited, self.ahead, as_present_holders(queue).holders)

    # ---- the cohort: behind another attempt of the same client ---------------------

    async def _stand_in_line(self, called: Signal) -> Granted | Lease | None:
        """Wait behind the head; but not long, or a later waiter of another client would be let in before
        us.
        """
        client = self.client
        self._report_wait()
        granted = await self.inherited(called, self.left())
        if granted is not None:
            return granted
        if client.closed:
            client.check_open()
        if not called.is_set() and self.left() <= 0:
            return None
        client.cohorts.take_shared_place(self)
        return await self.granted()

    async def inherited(self, called: Signal, timeout: float) -> Lease | None:
        """Wait for the claim of another attempt, at most for a turn: the lease that has it from now on, or
        None if it was not passed on to us.
        """
        member = self.member
        assert self._holding is not None
        assert member is not None
        # Made before the wait: afterwards everybody who wants the lock waits for us.
        lease = self.client.lease_type(self._holding, self.claim, BLANK_GRANT, self.asked, self.owner)
        await self._runtime.wait(called, min(timeout, TURN_S))
        turn = member.turn
        if turn is not None and turn.holder is member:  # no mutex: nobody but us takes it from here
            member.called = None
        elif (turn := self.client.cohorts.decide(member)) is None:
            return None
        now = self._runtime.now()
        if turn.lender._deadline - now > self.claim.place_ttl * timing.TAKEN_OVER_PART:
            self._take_over(member, turn, now)
            return lease
        await self._decline(member, turn)  # our loop was stuck: the lease would be lost before it is used
        return None

    def _take_over(self, member: Member, turn: Turn, now: float) -> None:
        """Take the claim that was passed on to us: from here on it is ours to keep or to take back."""
        self.asked = now
        member.inherited_by, self.claim = member.inherited_by or self.claim.who, turn.lender._claim
        self._stands = True

    async def _decline(self, member: Member, turn: Turn) -> None:
        """Give the claim that was passed on to us back to the store."""
        mine, who, stood = self.claim, member.inherited_by, self._stands
        self._take_over(member, turn, self._runtime.now())
        try:
            await self._take_back_quietly()
        finally:  # cancelled once more, too: a claim that counts as passed on would be kept in mind for ever
            self.claim, member.inherited_by, self._stands = mine, who, stood
            self.client.cohorts.declined(member, turn)

    # ---- the claim ------------------------------------------------------------------

    async def granted(self) -> Granted | Lease | None:
        """Ask the store until it grants the claim; None if the time was up. After an error, `undo` it."""
        answer = await self.ask()
        return answer if self.usable(answer) else await self._wait(answer)

    def usable(self, answer: ClaimAnswer) -> TypeGuard[Granted]:
        """Whether it is a grant of which most is left: one that took its ttl to arrive is asked for again."""
        if type(answer) is not Granted:
            return False
        sent = self.asked if answer.sent is None else answer.sent
        return self._runtime.now() - sent < answer.ttl * timing.FRESH_PART

    async def ask(self, failure: StoreUnavailable | None = None) -> ClaimAnswer:
        """Claim; ask again if there is no answer (or was none): the store knows us by the claim's id.

        A newcomer gives up after a few tries; a waiter keeps asking for as long as its place may live.
        """
        tries = 0
        while True:
            if failure is not None:
                # Then others of us are being answered, and it is not our turn yet.
                tries += not isinstance(failure, HeldUp)
                if (
                    (tries >= MAX_CLAIM_TRIES or self._unreachable(failure)) and not self._queues()
                ) or self.left() <= 0:
                    raise failure
                pause = min(1.0, 0.02 * 2**tries) * (0.5 + self._runtime.random())
                await self._runtime.sleep(max(0.0, min(self.left(), pause)))
            self.asked = self._runtime.now()
            stood, self._stands = self._stands, True
            try:
                return await self.client.store.claim(self.claim, timing.patience(self.left()))
            except StoreUnavailable as error:
                failure = error
                self._stands = stood or not isinstance(error, Unreached)
            except StoreUnfit:
                self._refused = not stood
                raise

    def _unreachable(self, failure: StoreUnavailable) -> bool:
        """Whether there was time to connect, and it did not suffice: a caller waits for a dead server
        once, not three times.
        """
        return type(failure) is Unreached and self._runtime.now() - self.asked > QUICK_REFUSAL_S

    def _queues(self) -> bool:
        """Whether we have a place in the store's queue, as far as we know."""
        return self._waiter is not None and self._waiter.queues()

    def _wait(self, answer: ClaimAnswer) -> Coroutine[Any, Any, Granted | Lease | None]:
        """Wait until the claim is granted, from the store's first answer on; None if the time was up."""
        self._report_wait()
        self._waiter = waiter = Waiter(self)
        return waiter.until_granted(answer)

    async def after_eviction(self, gone: Gone) -> ClaimAnswer:
        """Raise; but if another attempt's place was evicted, in which we only stood, enter the queue with
        a claim of our own.
        """
        self._stands = False
        member = self.member
        if member is None or not member.inherited_by:
            raise Evicted(self.claim.resource, gone.reason)
        self.claim = replaced(self.claim, id=self._runtime.fresh_id(), who=member.inherited_by)
        member.inherited_by = ""
        if member.shared is not None:
            member.shared.over = True
        return await self.ask()

    # ---- the way back -----------------------------------------------------------------

    async def undo(self) -> None:
        """Leave nothing behind: nobody got hold of the result. May be repeated."""
        lease, client = self.lease, self.client
        if lease is not None:
            lease._never_used()  # first: the keeper may have to do the rest
        if client.inside():  # a signal handler or a garbage collector ended us inside a mutex
            client.keeper.hand_over(self)
            self._ended()
            return
        self._leave_queue()
        try:
            # Even if it was let go: the thread that did so may have been interrupted there.
            if lease is not None:
                lease._withdraw()
            # A lease that another thread released may be an heir's now.
            if lease is None or not lease._passed_on:
                await self._take_back_quietly()
        finally:
            if lease is not None:
                client.cohorts.dissolve(lease)
            if self.claim.block > 1:
                await self._leave_cohort()
            self._ended()
        self.over = True
        if lease is not None:
            lease._settle()

    def _ended(self) -> None:
        """Keep nobody waiting who closes the client."""
        self.client.attempts.pop(self, None)
        if self.client.closed:
            self.client.attempt_ended()

    def _leave_queue(self) -> None:
        """Have the keeper no longer renew our place."""
        if self._waiter is not None:
            self._waiter.leave_queue()

    async def _leave_cohort(self) -> None:
        """Stand in line no longer, and give back a claim that was passed on to us before we heard of it."""
        cohorts, member = self.client.cohorts, self.member
        try:
            if member is not None and (turn := cohorts.decide(member)) is not None:
                await self._decline(member, turn)
        finally:  # interrupted again, too: nobody must stand behind an attempt that is gone
            cohorts.leave(self)

    async def take_back(self, until: float) -> None:
        """Remove the claim from the store, to the end, whatever interrupts; from `until` on, leave it to
        the keeper.
        """
        if self._stands:
            await self._runtime.finish(lambda: self._remove(until))

    async def _take_back_quietly(self) -> None:
        """Take the claim back after an error, whether or not the store has granted it: its id makes that
        safe.

        A store that hangs must not hold up a caller that wants to be gone: then the keeper goes on.
        """
        soon = self._runtime.now() + timing.INTERRUPTED_RELEASE_S
        try:
            await self.take_back(soon if self.until is None else min(soon, self.until))
        except ClientClosed:
            pass  # closing the client has taken it back
        except InterlockError as error:  # never over the first error
            self.client.emit(events.CleanupFailed(self.claim.resource, repr(error)))
        except Exception:
            # The recursion limit, for example: where a session carries the claim, it would stand for ever.
            release_later(self.client, self.claim, 0.0, pause=0.0)

    async def _remove(self, until: float) -> None:
        if self.client.inside():
            self.client.keeper.hand_over(self)
            return
        await remove(self.client, self.claim, until=until, refused=self._refused)
        self._stands = False

    def _abandon(self) -> None:
        """The `with` statement has ended. If it was interrupted before it gave the lease back, the keeper
        does so.

        Never waits: it may be called in the midst of anything.
        """
        if not (self.over if self.lease is None else self.lease._settled):
            self.client.keeper.hand_over(self)

    def _clean_up(self) -> None:
        """For the keeper, if nobody else can: see `Keeper.hand_over`."""
        cohorts, member = self.client.cohorts, self.member
        if self.lease is not None:
            self.lease._clean_up()
        elif not self.over:
            self.over = True
            if member is not None and (turn := cohorts.decide(member)) is not None:
                self._take_over(member, turn, self._runtime.now())
                cohorts.declined(member, turn)
            if self.claim.block > 1:
                cohorts.leave(self)
            self._leave_queue()
            if self._stands:
                self._stands = False
                release_later(self.client, self.claim, 0.0, pause=0.0)
