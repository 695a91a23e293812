"""One lock object: the settings it asks with, and the leases taken through it.

The lease carries the state, not the lock: any number of threads or tasks may use one object. `release`
gives back the lease the calling owner took; only if it took none, the one the object holds now.
"""

from __future__ import annotations

from collections.abc import Coroutine
from copy import copy
from typing import Any, ClassVar, Self

from interlock import events
from interlock._core import timing
from interlock._core.attempt import Attempt
from interlock._core.client import Client
from interlock._core.lease import Lease
from interlock._core.names import checked_name
from interlock._core.removal import release_later
from interlock._core.runtime import Owner
from interlock._core.settings import DEFAULT_SETTINGS, Settings
from interlock._core.states import FINAL, State
from interlock._core.terms import Terms
from interlock.errors import NotHeld, Unreached
from interlock.model import Claim


class Holding:
    """A resource, the settings it is asked for with, and the leases that were taken through this object."""

    attempt_type: ClassVar[type[Attempt]] = Attempt

    def __init__(
        self,
        client: Client,
        resource: str,
        settings: Settings,
        *,
        permits: int = 1,
        capacity: int = 1,
        passes: bool = False,
    ) -> None:
        if client.closed:
            client.check_open()
        self.client = client
        self.resource = checked_name(resource)
        if passes and settings is DEFAULT_SETTINGS:
            self.terms = client.usual_terms
        else:
            traits = client.store.traits
            self.terms = Terms(
                traits, client.ttl, settings, permits=permits, capacity=capacity, passes=passes
            )
        self.leases: dict[Lease, None] = {}  # in the order they were granted
        self.older: dict[Lease, int] = {}  # how much one owner lost in a row before this lost one: see `lost`
        self._losses = 0  # leases that were lost since `_forget_losses` last looked at all
        self.entered: dict[Attempt, None] = {}  # the attempts whose leases a `with` body runs under

    template = ""  # of the name, if a decorator fills it in for each call
    word = ""  # the kind, where only the object built on it knows: an election is a lock to its store

    @property
    def kind(self) -> str:
        """The kind of lock, for listeners that count."""
        return self.word or self.terms.kind

    def renamed(self, resource: str) -> Self:
        """One more object with the same settings, over another resource; nothing was taken through it yet."""
        other = copy(self)
        other.template = self.resource
        other.resource = checked_name(resource)
        other.leases, other.older, other.entered = {}, {}, {}
        other._losses = 0
        return other

    # ---- taking ---------------------------------------------------------------

    def attempt(
        self,
        blocking: bool = True,
        timeout: float | None = None,
        *,
        permits: int | None = None,
        note: str = "",
        owner: Owner | None = None,
    ) -> Attempt:
        """One attempt to take a lease, for the caller unless another owner is given; to be run by a face."""
        client = self.client
        if client.closed:
            client.check_open()
        if client.mutex._is_owned():  # whoever waited here would keep the keeper and all threads waiting
            raise Unreached(
                f"{self.resource}: called from a finalizer or a signal handler that runs in the middle of "
                "another call to the same client; nothing was done"
            )
        terms = self.terms
        wait = timing.checked_wait(blocking, timeout, terms.timeout)
        runtime = client.runtime
        runner = None if owner is None else runtime.runner()
        owner = owner or runtime.owner()
        claim = Claim(
            self.resource,
            runtime.fresh_id(),
            terms.ttl,
            terms.permits if permits is None else permits,
            terms.capacity,
            # A single try must not enter the queue: it would only leave again.
            terms.fair and wait != 0.0,
            terms.place_ttl,
            note or terms.note,
            runtime.who(owner),
            1 if wait == 0.0 else terms.block,
        )
        return self.attempt_type(client, self, claim, wait, owner, runner)

    def register_lease(self, attempt: Attempt, lease: Lease) -> None:
        """Look after a lease that was granted or inherited just now."""
        client, terms, member, next_head = self.client, self.terms, attempt.member, None
        turn = None if member is None else member.turn
        due = lease._last_try + terms.ttl / timing.RENEWALS_PER_TTL if terms.max_hold is None else None
        # In a place that another attempt has made?
        if turn is None and member is not None and member.inherited_by:
            due = lease._sign_soon(member.inherited_by)
        if turn is None and attempt.claim.block == 1:
            # Before the look at `closed`: a thread that closes the client looks the other way round.
            self.leases[lease] = client.leases[lease] = None
            if client.closed:  # since it was asked for: nobody would look after the lease
                client.check_open()
        else:
            with client.mutex:
                if client.closed:
                    client.check_open()
                if member is None or turn is None:
                    next_head = client.cohorts.begin_turn(attempt, lease)
                else:
                    due = lease._inherit(turn, member.inherited_by, attempt.asked)
                    next_head = client.cohorts.arrived(member)
                self.leases[lease] = client.leases[lease] = None
        client.keeper.keep(lease, due)
        if client.session is not None and turn is None:
            client.session.adapt(lease)
        if next_head is not None:
            next_head.call()
        if client.wants_all_events():
            waited = client.runtime.now() - attempt.began
            client.emit(
                events.Acquired(self.resource, lease.token, waited, attempt.queued, self.kind, self.template)
            )

    def unregister_lease(self, lease: Lease) -> None:
        client = self.client
        if (
            client.keeper.newly_kept.pop(lease, self) is not None
        ):  # most are gone before the keeper has looked
            client.keeper.drop(lease)
        self.leases.pop(lease, None)  # each a single step, which needs no mutex
        client.leases.pop(lease, None)
        if (
            lease._turn is None
            and self.terms.block > 1
            and client.cohorts.passable.get(self.resource) is lease
        ):
            client.cohorts.passable.pop(self.resource, None)
        if self.older:
            self.older.pop(lease, None)

    # ---- asking ------------------------------------------------------------------

    def of(self, owner: Owner) -> Lease | None:
        """The lease this owner took last through this object."""
        for lease in reversed(list(self.leases)):
            if lease._owner is owner:
                return lease
        return None

    def owned(self, owner: Owner | None = None) -> bool:
        lease = self.of(owner or self.client.runtime.owner())
        return lease is not None and lease.state not in FINAL

    def held(self) -> bool:
        """Whether some lease taken through this object is held, without asking the store."""
        return any(lease.state not in FINAL for lease in list(self.leases))

    async def locked(self) -> bool:
        return bool((await self.client.store.inspect(self.resource)).holders)

    # ---- giving back -----------------------------------------------------------------

    def current(self, owner: Owner | None = None) -> Lease:
        """The lease a plain `release()` means; `NotHeld` if there is none."""
        lease = self.of(owner or self.client.runtime.owner())
        if lease is None:
            leases = list(self.leases)
            lease = next((lease for lease in leases if lease.state not in FINAL), next(iter(leases), None))
        if lease is None:
            raise NotHeld(f"{self.resource}: release of an unlocked lock")
        return lease

    def release(self) -> Coroutine[Any, Any, None]:
        """Give back the lease that a plain `release()` of the caller means, whoever awaits it."""
        leases = list(self.leases)
        if len(leases) == 1 and not self.older:  # the only one, whosever it is: most objects have no other
            return leases[0]._give_back(strict=True, by=self.client.runtime.owner())
        return self._release_of(self.client.runtime.owner())

    async def _release_of(self, owner: Owner) -> None:
        lease = self.current(owner)
        if self.older:
            self._release_older(lease)
        await lease._give_back(strict=True, by=owner)

    def _release_older(self, lease: Lease) -> None:
        """Raise the loss that an earlier, forgotten lease would, if this lost one stands for others as
        well.
        """
        with self.client.mutex:
            older = self.older.pop(lease, 0)
            if older > 1:
                self.older[lease] = older - 1
        if older:
            raise lease.loss()

    def enter(self, attempt: Attempt) -> None:
        """A `with` body begins under the lease of this attempt."""
        self.entered[attempt] = None

    def exit(self) -> Attempt | None:
        """The attempt whose `with` body the caller ends by hand: its own last, or the last of all.

        The latter is for an `async with` that another task ends (test fixtures do that): left
        unreleased, it would be in everybody's way until it lapses.
        """
        owner = self.client.runtime.owner()
        entered = list(self.entered)
        mine = [attempt for attempt in entered if attempt.lease is not None and attempt.lease._owner is owner]
        found = mine or entered
        return found[-1] if found else None

    def leave(self, attempt: Attempt | Lease, error: BaseException | None) -> Coroutine[Any, Any, None]:
        """The end of a `with`, over an attempt or a lease: release, and never mask the body's own
        exception.
        """
        if isinstance(attempt, Lease):
            lease: Lease | None = attempt
        else:
            self.entered.pop(attempt, None)
            lease = attempt.lease
        if error is None and lease is not None:
            return lease._give_back(again=True)
        return self._leave_after(lease, error)

    async def _leave_after(self, lease: Lease | None, error: BaseException | None) -> None:
        """The end of a `with` whose body has failed."""
        if lease is None:
            return
        try:
            await lease._give_back(again=True, left=timing.time_for(error))
        except Exception as failure:  # a loss; or a store that became unfit
            if error is None:
                raise
            error.add_note(f"and meanwhile: {failure}")

    # ---- losing ------------------------------------------------------------------------

    def lost(self, lease: Lease) -> None:
        """Called once, when a lease is lost, on whatever thread found out."""
        self.client.keeper.drop(lease)
        with self.client.mutex:
            self.client.leases.pop(lease, None)
            self._losses += 1
            if 2 * self._losses >= len(self.leases):
                self._forget_losses()
        if not lease._owner.alive():  # it enters nothing again
            self.client.entries.pop(lease._owner, None)
        self.client.cohorts.dissolve(lease)
        session = self.client.session
        # Refused: the claim may still wait, and would be let in, for nobody.
        if lease._cause == "refused" or (session is not None and session.carries_on(lease)):
            release_later(self.client, lease._claim, 0.0, pause=0.0)
        loss = lease.loss()
        held = self.client.runtime.now() - lease._granted_at
        self.client.emit(
            events.Lost(self.resource, lease.token, loss.cause, loss.reason, held, self.kind, self.template)
        )
        if self.terms.on_lost is not None:
            self.client.runtime.call(self.terms.on_lost, lease)

    def _forget_losses(self) -> None:
        """Keep no more lost leases than somebody may still ask for. Under the mutex; all are looked at, so
        not each time.

        The last that an owner has lost must stay, and tell how many there were: its release must hear of the
        loss, or it would give back another's lease. Of those whose owner has ended, the last one tells
        whoever releases instead.
        """
        last: dict[Owner, Lease] = {}
        orphan: Lease | None = None
        for lease in list(self.leases):
            if lease._state is State.LOST and not lease._owner.alive():
                if orphan is not None:
                    self.forget(orphan)
                orphan = lease
                continue
            before = last.get(lease._owner)
            if before is not None and lease._state is before._state is State.LOST:
                self.older[lease] = self.older.pop(before, 0) + self.weight(before)
                self.forget(before)
            last[lease._owner] = lease
        self._losses = 0

    def weight(self, lease: Lease) -> int:
        """How many releases a lease is worth."""
        return 1

    def forget(self, lease: Lease) -> None:
        """Drop a lost lease, because another one stands for it from now on. Under the mutex."""
        del self.leases[lease]

    def orphaned(self, lease: Lease) -> None:
        """Report that the owner of a lease has ended. Called again if it was adopted, and that owner ends."""
        left = max(0.0, lease.deadline - self.client.runtime.now())
        self.client.emit(events.OwnerEnded(self.resource, lease.token, str(lease._owner), left))

    def doubtful(self, lease: Lease, why: str = "") -> None:
        left = lease.deadline - self.client.runtime.now()
        self.client.emit(events.Doubtful(self.resource, lease.token, max(0.0, left), why))
