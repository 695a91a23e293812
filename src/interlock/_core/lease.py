"""The lease in its holder's hand, from the grant until it is given back or lost.

Nothing outside this file assigns an attribute of a lease; a test reads the source for that. Names without an
underscore are the user's. Names with one are the core's own: its other modules call and read them.

The state is never behind the clock: whoever asks for it compares the deadline with now first, so no hung
reply, paused process or late timer can make a lease look alive. The keeper's timer only makes sure that
somebody asks.

Leases are from Gray and Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache
Consistency" (SOSP 1989). A lease alone cannot stop a holder that was paused past its end; the resource itself
must check the token. Chubby called it a sequencer (Burrows, OSDI 2006), Kleppmann a fencing token ("How to do
distributed locking", 2016).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from interlock import events
from interlock._core import timing
from interlock._core.cohort import Member, Turn
from interlock._core.removal import DONE, FOR_EVER, GONE, PENDING, Removal, release_later, remove
from interlock._core.runtime import Owner, Runtime, Signal
from interlock._core.signature import is_signable, signature
from interlock._core.states import (
    DOUBTFUL,
    FINAL,
    HELD,
    LOST,
    RELEASE,
    RELEASED,
    TRANSITIONS,
    LeaseEvent,
    State,
)
from interlock._support.record import replaced
from interlock._support.wording import duration
from interlock.errors import InterlockError, LeaseLost, NotHeld, StoreUnavailable, StoreUnfit
from interlock.model import Claim, Gone, Granted, NoAnswer, Renewal, RenewAnswer, Renewed
from interlock.store import IO_TIMEOUT

if TYPE_CHECKING:
    from collections import deque

    from interlock._core.holding import Holding


REMOVAL_WAIT_S = 10.0  # seconds that one wait for a removal of the claim lasts
LINGERING_WAIT_S = 1.0  # the same with a `min_hold`: some stores do not wake for a release that leaves one
REMOVAL_PAUSE_S = 0.2  # seconds between two questions, whatever ends the waits
SIGN_AFTER_S = 1.0  # seconds after which an heir that still holds tells the store who it is


class Lease:
    """The base of the sync and the async lease. Deadlines are on the runtime's monotonic clock."""

    __slots__ = (
        "__weakref__",
        "_bodies",
        "_body",
        "_cause",
        "_claim",
        "_counts_from",
        "_deadline",
        "_deferred",
        "_free_from",
        "_granted_at",
        "_holding",
        "_interrupted",
        "_last_try",
        "_loss_raised",
        "_lost",
        "_orphaned",
        "_owner",
        "_pinned",
        "_reason",
        "_reduced",
        "_settled",
        "_short",
        "_state",
        "_taker",
        "_token",
        "_turn",
        "_unsigned",
    )

    def __init__(self, holding: Holding, claim: Claim, granted: Granted, asked: float, owner: Owner) -> None:
        self._holding, self._claim, self._owner, self._token = holding, claim, owner, granted.token
        # Two instants. The lease was granted when the store was asked for it. Its ttl may count from before
        # that: from the last keep-alive of its session, or from the last renewal of the place in which it
        # waited.
        self._granted_at = asked  # before the question: a slow reply must shorten the lease, not lengthen it
        self._counts_from = self._last_try = counts_from = asked if granted.sent is None else granted.sent
        self._short = granted.ttl < claim.ttl  # told with a wake-up: it is stretched soon, renewed or not
        if self._short:
            self._last_try = counts_from - (claim.ttl - granted.ttl) / timing.RENEWALS_PER_TTL
        terms = holding.terms
        self._deadline = counts_from + (
            terms.validity if granted.ttl == terms.ttl else timing.validity(granted.ttl)
        )
        if terms.max_hold is not None:
            self._deadline = min(self._deadline, asked + terms.max_hold)
        # The end of `min_hold`. It counts from the answer: others must be kept out for at least so long.
        self._free_from = holding.client.runtime.now() + terms.min_hold if terms.min_hold else 0.0
        self._state = HELD
        self._cause = self._reason = ""
        self._reduced = self._interrupted = False
        self._pinned = False  # a guard has locked its claim in a transaction: it does not shrink any more
        self._deferred = False  # a part was given back, and stays taken until `min_hold` is over
        self._settled = False  # nothing is left to do for it: it was given back, passed on, or lost
        self._lost: Signal | None = None
        self._orphaned = False  # no longer renewed, as its owner has ended
        self._taker: Owner | None = None  # the one that released it, if that was not its owner
        self._loss_raised = False  # its holder has met the loss: `check` has raised it
        self._bodies = 0  # `async with` bodies, one in another, under this lease: a loss cancels them
        self._body = owner  # the task they run in
        self._turn: Turn | None = None  # for those of the same client that inherit it: see cohort.py
        self._unsigned: str | None = None  # the heir's `who`, until the store knows it
        if granted.unconfirmed:
            # Due at once: the message may be a stranger's, and the store's answer decides.
            self._short = True
            self._last_try = holding.client.runtime.now() - claim.ttl / timing.RENEWALS_PER_TTL

    def _inherit(self, turn: Turn, who: str, now: float) -> float:
        """Hold the claim that was another lease's just now: it lives as long as it did there. `who` inherits
        it.

        Returns when the keeper must look at it.
        """
        lender = turn.lender
        self._claim, self._token = lender._claim, lender._token + 1
        self._granted_at, self._unsigned = now, who or None
        self._deadline, self._last_try, self._short = lender._deadline, lender._last_try, lender._short
        if self._holding.client.keeper.doubted > turn.began:  # perhaps when nobody had it: verified at once
            self._last_try = now - timing.renew_every(self._claim.ttl)
        turn.holder = self  # first: a lease that has a turn and is not its holder counts as passed on
        self._turn = turn
        return min(
            self._deadline, self._last_try + self._claim.ttl / timing.RENEWALS_PER_TTL, now + SIGN_AFTER_S
        )

    def _sign_soon(self, who: str) -> float:
        """The store knows the claim by another attempt: tell it who holds, unless that is over in a moment.

        Returns when the keeper must look at it.
        """
        self._unsigned = who
        return self._due

    def _begin_turn(self, heirs: deque[Member]) -> Turn:
        """Let these attempts of the same client inherit the claim, one after the other."""
        self._turn = turn = Turn(self, heirs)
        return turn

    @property
    def _stands_as(self) -> int:
        """The token by which the store knows the claim: the first of its block."""
        return self._token if self._turn is None else self._turn.token

    @property
    def _passed_on(self) -> bool:
        """Whether the claim is another attempt's or lease's of the same client by now."""
        return self._turn is not None and self._turn.holder is not self

    # ---- what the holder asks ----------------------------------------------

    @property
    def resource(self) -> str:
        """The name being locked."""
        return self._claim.resource

    @property
    def id(self) -> str:
        """The claim's id, as `inspect` shows it."""
        return self._claim.id

    @property
    def token(self) -> int:
        """The fencing number of this lease: greater than that of every earlier grant of the resource."""
        return self._token

    @property
    def permits(self) -> int:
        """How much of the capacity this lease takes."""
        return self._claim.permits

    @property
    def ttl(self) -> float:
        """How many seconds the lease lives unless it is renewed."""
        return self._claim.ttl

    @property
    def deadline(self) -> float:
        """When the lease ends unless it is renewed, on the monotonic clock of this process."""
        return self._deadline

    @property
    def state(self) -> State:
        """Whether the lease is held, doubtful, lost or released, as of now."""
        if self._state not in FINAL and self._holding.client.runtime.now() >= self._deadline:
            self._lapse()
        return self._state

    @property
    def cause(self) -> str:
        """Why the lease was lost, as in `LeaseLost`; "" as long as it was not lost."""
        _ = self.state  # the clock may say so only now
        return self._cause

    def remaining(self) -> float:
        """Return the seconds until the lease ends unless it is renewed; 0.0 once it is lost or released."""
        if self.state in FINAL:
            return 0.0
        return max(0.0, self._deadline - self._runtime.now())

    def check(self) -> None:
        """Return if the lease is held; raise `LeaseLost` if it was lost, `NotHeld` if it was released.

        Sends no request. Call it before each step that must not happen twice, and still pass the
        token to the resource: a process can be paused between this check and the step.
        """
        state = self.state
        if state is LOST:
            self._loss_raised = True
            raise self.loss()
        if state is RELEASED:
            raise self._not_held_error()

    def _begin(self) -> None:
        """Hand the lease to its holder, unless it has ended by then: no body may begin without it.

        A listener that hears of the grant may take longer than the lease lives, release it, or close the
        client; and a multilock may lose one lease while it waits for the next.
        """
        if self.state in FINAL:
            self._holding.client.check_open()
            self.check()

    def loss(self) -> LeaseLost:
        """Return the `LeaseLost` error that `check` raises, or would raise if the lease were lost now."""
        return LeaseLost(self.resource, self._token, self._cause or "lapsed", self._reason)

    def _not_held_error(self) -> NotHeld:
        """The error for a holder that goes on after the release."""
        if self._taker is None:
            return NotHeld(f"{self.resource}: lease with token {self._token} was released")
        return NotHeld(
            f"{self.resource}: {self._taker} released the lease with token {self._token} while its holder "
            "worked under it; look whether another has changed the resource since"
        )

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        # Code written for threading compares what acquire returned with True.
        return other is True or self is other

    __hash__ = object.__hash__

    def __lt__(self, other: object) -> bool:
        if isinstance(other, Lease):
            return self._token < other._token
        if isinstance(other, bool):
            return False  # a lease counts as True, and nothing that is True is below a bool
        return NotImplemented

    def __gt__(self, other: object) -> bool:
        if isinstance(other, Lease):
            return self._token > other._token
        if isinstance(other, bool):
            return not other
        return NotImplemented

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.resource!r} token={self._token} {self._state.value}>"

    # ---- the loss, as the holder meets it ------------------------------------

    @property
    def _runtime(self) -> Runtime:
        return self._holding.client.runtime

    def _lost_signal(self) -> Signal:
        """The signal that is set once the lease is lost; made when first asked for."""
        with self._holding.client.mutex:
            if self._lost is None:
                self._lost = self._runtime.signal()
            signal = self._lost
        if self.state is LOST:
            signal.set()
        return signal

    def _enter_body(self, task: Owner) -> None:
        """An async body begins: from now on a loss cancels this task, which runs the outermost body."""
        self._body = task
        self._bodies += 1
        if self._state is LOST or self._taker is not None:  # or whoever finds out from here on sees the body
            self._runtime.interrupt(self._body, self._wants_interrupt)

    def _leave_body(self) -> bool:
        """A body has ended; True if it was the outermost, and its task was cancelled for the loss of this
        lease.
        """
        self._bodies -= 1
        return self._interrupted and not self._bodies

    def _wants_interrupt(self) -> bool:
        if not self._bodies or self._interrupted:
            return False
        self._interrupted = True
        return True

    def _shorten(self, until: float) -> None:
        """Let the lease end sooner: its holder has asked the store for that."""
        with self._holding.client.mutex:
            self._deadline = until
        self._holding.client.keeper.keep(self)  # it must look sooner than it meant to

    def _set_owner(self, owner: Owner) -> None:
        """Make another the owner: renewal goes on as long as it lives, and it alone enters the lock again."""
        client = self._holding.client
        if not client.entries:
            self._owner = owner
        else:
            with client.mutex:
                client.move_entry(self, self._owner, owner)
                self._owner = owner
        if self._orphaned:  # not renewed for a while: the keeper must not wait for the next turn
            self._last_try = min(self._last_try, self._counts_from)
            client.keeper.keep(self)

    # ---- what the keeper asks (see keeper.Renewable) --------------------------------

    _leeway = 0.0

    @property
    def _due(self) -> float:
        """The next instant somebody must look at this lease."""
        return min(self._free_from, self._renewal_due) if self._deferred else self._renewal_due

    @property
    def _renewal_due(self) -> float:
        pause = self._claim.ttl / timing.RENEWALS_PER_TTL
        if self._state is not HELD:
            pause = min(1.0, pause / 4)
        elif not self._holding.terms.renew and not self._short and self._unsigned is None:
            return self._deadline
        due = min(self._deadline, self._last_try + pause)
        if self._unsigned is not None:
            sign_at = self._granted_at + SIGN_AFTER_S
            if self._last_try < sign_at:  # if not, it was tried in vain: the next renewal tries again
                due = min(due, sign_at)
        return due

    @property
    def _ended(self) -> bool:
        return self._state in FINAL

    def _renewal(self, now: float) -> Renewal | None:
        """The renewal to ask the store for; None if this lease is not to be renewed any more."""
        self._last_try = now
        renewed = self._holding.terms.renew or self._short
        note = None if self._unsigned is None else signature(self._token, self._unsigned)
        shrinks = self._deferred and now >= self._free_from
        if shrinks:
            self._deferred = False
        if not (renewed or shrinks or self._state is DOUBTFUL) or self._state in FINAL:
            return None
        if not self._owner.alive():
            if renewed and not self._orphaned:
                self._orphaned = True
                self._holding.orphaned(self)
            return None
        self._orphaned = False  # or somebody has adopted it
        # A lease that is not renewed is only verified: asking for the time it has left does not make it
        # longer.
        ttl = self._claim.ttl if renewed else max(0.001, self._deadline - now)
        if self._holding.terms.max_hold is not None:
            ttl = min(ttl, self._granted_at + self._holding.terms.max_hold - now)
            if ttl <= 0:
                return None
        # A part that was given back without an answer is given back again: others wait for it.
        permits = self._claim.permits if self._reduced and not self._deferred else None
        return Renewal(self.resource, self._claim.id, ttl, note, permits)

    def _on_reply(self, asked: float, answer: RenewAnswer) -> None:
        if isinstance(answer, Renewed):
            self._report_renewal("renewed")
            self._extend(asked if answer.sent is None else answer.sent, answer.ttl)
        elif isinstance(answer, NoAnswer):
            self._on_no_reply()
        else:
            self._report_renewal("refused")
            self._refuse(answer)

    def _on_no_reply(self, why: str = "") -> None:
        self._report_renewal("unanswered")
        self._move(LeaseEvent.NO_ANSWER, reason=why)

    def _report_renewal(self, answer: str) -> None:
        """Tell listeners how much of the ttl was left when the store was asked, and how long it took."""
        client, holding = self._holding.client, self._holding
        if client.wants_all_events():
            asked = self._last_try
            took, margin = client.runtime.now() - asked, max(0.0, self._deadline - asked) / self._claim.ttl
            client.emit(
                events.Renewed(
                    self.resource, self._token, took, margin, answer, holding.kind, holding.template
                )
            )

    def _poll(self, now: float) -> None:
        if now >= self._deadline:
            self._lapse()

    def _on_session_lost(self) -> None:
        """The session that carried the claim has ended."""
        self._move(LeaseEvent.REFUSED, "session")

    def _on_session_shortened(self, since: float, seconds: float) -> None:
        """The session that carries the claim lives only for so many seconds from `since` on: so does the
        lease, and it is renewed as often as that asks for.
        """
        with self._holding.client.mutex:
            if seconds < self._claim.ttl:
                self._claim = replaced(self._claim, ttl=seconds)
            self._deadline = min(self._deadline, timing.deadline(since, seconds))

    def _left_behind(self) -> bool:
        return False  # a lost lease's claim is released by `Holding.lost`

    # ---- transitions -------------------------------------------------------------

    def _extend(self, asked: float, ttl: float) -> None:
        until = timing.deadline(asked, ttl)
        if self._holding.terms.max_hold is not None:
            until = min(until, self._granted_at + self._holding.terms.max_hold)
        with self._holding.client.mutex:
            if self._state in FINAL or self._runtime.now() >= self._deadline:
                return  # too late: another may have been told already that this lease is lost
            self._short = False
            if self._unsigned is not None:
                self._claim, self._unsigned = replaced(self._claim, who=self._unsigned), None
            if self._turn is not None:
                self._turn.answered = max(self._turn.answered, asked)
            if (session := self._holding.client.session) is not None:
                until = session.bound(asked, until)
            self._deadline = max(self._deadline, until)
            self._state = TRANSITIONS[self._state][LeaseEvent.RENEWED]

    def _refuse(self, gone: Gone) -> None:
        """The store has answered that the claim is gone."""
        self._move(LeaseEvent.REFUSED, "evicted" if gone.evicted else "refused", gone.reason)

    def _lapse(self) -> None:
        max_hold = self._holding.terms.max_hold
        # The last renewal asks for no more than max_hold leaves, and the margin comes off that.
        latest = self._deadline + timing.margin(self._claim.ttl) + 1e-6
        if max_hold is not None and latest >= self._granted_at + max_hold:
            self._move(LeaseEvent.LAPSED, "max_hold")
        elif self._orphaned and not self._owner.alive():
            self._move(LeaseEvent.LAPSED, "owner_ended", str(self._owner))
        else:
            self._move(LeaseEvent.LAPSED, "lapsed")

    def _pin(self) -> None:
        """Let nobody inherit the lease from here on, and let it not shrink: only its removal waits for the
        transaction that locks its claim.
        """
        with self._holding.client.mutex:
            self._pinned = True
        self._holding.client.cohorts.withhold(self)

    def _shrunk(self, permits: int) -> None:
        """Part of it was given back: a later renewal must not ask for more, nor for less while `min_hold`
        lasts.
        """
        self._deferred = self._linger() > 0
        self._claim = replaced(self._claim, permits=permits)
        self._reduced = True

    def _blocks(self, claim: Claim, owner: Owner) -> bool:
        """Whether this owner holds so much by this lease that it could never be granted `claim` beside it."""
        held = self._owner is owner and self._state not in FINAL
        return held and self.permits + claim.permits > claim.capacity

    def _forget(self) -> None:
        """In a forked child: the parent holds this, we do not. Nobody is called."""
        self._state, self._cause, self._settled = LOST, "forked", True

    def _let_go(self, *, pass_on: bool = False) -> State:
        """The holder releases: no renewal from here on. Returns the state before.

        With `pass_on`, the next attempt of the same client that waits for the claim has it from here on.
        """
        client = self._holding.client
        with client.mutex:
            before, now = self._state, client.runtime.now()
            if before not in FINAL and now < self._deadline:
                self._state = TRANSITIONS[before][RELEASE]
                if pass_on and before is HELD and self._turn is not None:
                    client.cohorts.pass_on(self, self._turn, now)
                return before
        return self.state  # released or lost before; or just now, by our own clock

    def _move(self, event: LeaseEvent, cause: str = "", reason: str = "") -> None:
        with self._holding.client.mutex:
            before = self._state
            # Kept by this thread: another may move on from here, and would then be reported by both.
            after = TRANSITIONS[before][event]
            if after is before:
                return
            if after is LOST:  # the cause first: a thread that sees the loss may ask for it at once
                self._cause, self._reason = cause, reason
            self._state = after
            signal = self._lost
        if after is LOST:
            if signal is not None:
                signal.set()
            self._runtime.interrupt(self._body, self._wants_interrupt)
            self._holding.lost(self)
        elif after is DOUBTFUL:
            self._holding.doubtful(self, reason)

    # ---- asking for more, or for less ----------------------------------------------------

    async def _renew_now(self) -> None:
        """Ask for a whole ttl from now; raise unless the lease is held afterwards."""
        client = self._holding.client
        self._last_try = asked = client.runtime.now()  # first: nobody inherits it from here on
        self.check()
        note: str | None = None
        if client.store.traits.blocks and is_signable(self._claim):
            # From now on the token is this one: a guard that knows only the number can rely on it.
            note = signature(self._token, self._unsigned or self._claim.who)
        answer = await client.renew_one(Renewal(self.resource, self.id, self.ttl, note), IO_TIMEOUT)
        self._on_reply(asked, answer)
        self.check()

    async def _wait_for_loss(self, timeout: float | None) -> bool:
        """Watch the store; the keeper learns of an eviction only when it renews the lease. See the faces.

        A store only tells that the claim is gone. What our own clock ends, nobody tells, so each wait ends
        with the lease.
        """
        client, runtime = self._holding.client, self._runtime
        seconds = timing.checked_timeout(timeout)
        until = FOR_EVER if seconds is None else runtime.now() + seconds
        while self.state not in FINAL:
            client.check_open()
            asked = runtime.now()
            if asked >= until:
                return False
            longest = LINGERING_WAIT_S if self._free_from else REMOVAL_WAIT_S
            limit = max(0.0, min(longest, until - asked, self._deadline - asked))
            try:
                await client.store.wait(self._claim, None, limit)
                if runtime.now() - asked < limit:  # something has happened to the claim
                    await self._verify()
            except StoreUnavailable:
                pass  # the keeper deals with it
            await runtime.sleep(max(0.0, min(REMOVAL_PAUSE_S, min(until, self._deadline) - runtime.now())))
        return True

    async def _verify(self) -> None:
        """Ask the store whether the claim stands; only a lease that would be renewed anyway lives longer."""
        if self.state in FINAL:
            return
        terms = self._holding.terms
        renewed = terms.renew and terms.max_hold is None and self._owner.alive()
        self._last_try = asked = self._runtime.now()
        ttl = self.ttl if renewed else max(0.001, self._deadline - asked)
        answer = await self._holding.client.renew_one(Renewal(self.resource, self.id, ttl), IO_TIMEOUT)
        self._on_reply(asked, answer)

    async def _shrink(self, permits: int, timeout: float = IO_TIMEOUT) -> None:
        """Give back a part of the lease: keep only `permits` of it."""
        client = self._holding.client
        self.check()
        with client.mutex:
            if permits < self.permits:  # or another has made it smaller meanwhile
                self._shrunk(permits)  # before the question: if it gets no answer, the keeper asks again
            claim = self._claim
        if self._deferred:
            client.keeper.keep(self)  # it gives the part back when `min_hold` is over
            return
        asked = client.runtime.now()
        ask = Renewal(self.resource, claim.id, claim.ttl, permits=claim.permits)
        answer = await client.renew_one(ask, timeout)
        self._on_reply(asked, answer)
        if not isinstance(answer, Renewed):
            raise self.loss()

    # ---- giving back ---------------------------------------------------------------------

    async def _give_back(
        self, *, strict: bool = False, again: bool = False, left: float = FOR_EVER, by: Owner | None = None
    ) -> None:
        """Release the lease; `NotHeld` if that was done before, unless it may be done `again`; `LeaseLost` if
        it was lost.

        `by` is the caller of a release; None if a `with` statement ends. If it is not the owner, a body under
        the lease is told. Never touches another's: the store removes by claim id. With `strict` an
        unreachable store is an error; otherwise it is reported, and the claim lapses by itself. Nobody waits
        for the store for longer than the lease could live, nor for longer than about `left` seconds.

        Long because whatever interrupts it, on any line, is dealt with in one place.
        """
        holding, client = self._holding, self._holding.client
        if client.mutex._is_owned() or (self._turn is None and client.store.inside()):
            # Called by a garbage collector or a signal handler in the midst of a line of ours.
            if by is not None:
                self._note_taker(by, self._state)
            client.keeper.hand_over(self)
            return
        try:
            before = self._let_go(pass_on=True)
            if by is not None:
                self._note_taker(by, before)
            if self._turn is not None and self._hand_over(self._turn, before):
                return
            if before is RELEASED:
                if again:
                    self._check_taker()
                    return
                raise NotHeld(f"{self.resource}: lease with token {self._token} was released before")
            holding.unregister_lease(self)
            client.releasing[self] = None  # whoever closes the client sees to it
            if before is LOST:
                await self._give_back_lost()
            now, claim = client.runtime.now(), self._claim
            until = self._deadline if left == FOR_EVER else min(self._deadline, now + left)
            if self._turn is not None or holding.terms.min_hold:
                removal = await self._release_turn(until)
            elif client.decides_here and client.store.release_alone(claim.resource, claim.id):
                removal = DONE
            else:
                patience = IO_TIMEOUT if until - now >= IO_TIMEOUT else timing.patience(until - now)
                try:
                    stood = await client.store.release(claim.resource, claim.id, 0.0, patience)
                    removal = DONE if stood else GONE
                except (StoreUnavailable, StoreUnfit) as error:
                    removal = await remove(client, claim, 0.0, until, error)
            self._settled = True
        except InterlockError:
            raise
        except BaseException:  # interrupted, by a time limit perhaps: other waiters must not pay for it
            try:
                await self._give_back_anyway()
            finally:  # that may meet the same error, near the recursion limit for example
                if not self._settled:
                    client.keeper.hand_over(self)
            raise
        finally:
            client.releasing.pop(self, None)
            if client.closed:
                client.release_ended()
        if removal is GONE:  # the store had forgotten it, and we had not noticed yet
            await self._ask_for_cause(until)
            raise self.loss()
        if removal is PENDING and strict:
            raise StoreUnavailable(
                f"{self.resource}: the store did not answer the release; it is asked again in the "
                f"background, and the claim lapses by itself within {duration(self.ttl)}"
            )
        if client.wants_all_events():
            self._report_release()

    def _note_taker(self, by: Owner, before: State) -> None:
        """Remember a stranger that releases the lease, and interrupt an async body under it, as a loss does.

        The claim still stands here: a body that ends before this was noted has ended in time.
        """
        if before in FINAL or by is self._owner or (self._bodies and by is self._body):
            return
        self._taker = by
        self._runtime.interrupt(self._body, self._wants_interrupt)

    def _check_taker(self) -> None:
        """At the end of a body whose lease is released: raise unless the body has released it by itself."""
        if self._taker is not None and self._taker is not self._runtime.owner():
            raise self._not_held_error()

    def _hand_over(self, turn: Turn, before: State) -> bool:
        """Let another go on with the claim, if there is one: the heir that has it by now; or the keeper,
        if we stand inside the store.
        """
        client, heir = self._holding.client, turn.heir
        if before is not HELD or turn.holder is self:
            if before is RELEASED or not client.store.inside():
                return False
            client.keeper.hand_over(self)
            return True
        if heir is not None and (called := heir.called) is not None:
            called.set()  # first: the heir does not need what is left to do here
        client.cohorts.call_head(turn)
        self._holding.unregister_lease(self)
        self._settled = True
        if client.wants_all_events() and not client.store.inside():
            self._report_release()
        return True

    def _report_release(self) -> None:
        client = self._holding.client
        held, holding = client.runtime.now() - self._granted_at, self._holding
        client.emit(events.Released(self.resource, self._token, held, holding.kind, holding.template))

    async def _ask_for_cause(self, until: float) -> None:
        """Learn from the store why the claim was gone before it was released: an operator may have had a
        reason.
        """
        client, now, gone = self._holding.client, self._runtime.now(), Gone()
        ask = Renewal(
            self.resource, self.id, max(0.001, self._deadline - now)
        )  # it would not live any longer
        with suppress(InterlockError):  # that it is lost is certain; why is only good to know
            answer = await client.renew_one(ask, timing.patience(until - now))
            if isinstance(answer, Gone):
                gone = answer
        self._cause, self._reason = "evicted" if gone.evicted else "refused", gone.reason
        held, holding = client.runtime.now() - self._granted_at, self._holding
        client.emit(
            events.Lost(
                self.resource, self._token, self._cause, self._reason, held, holding.kind, holding.template
            )
        )

    async def _release_turn(self, until: float) -> Removal:
        """Release the claim, for other clients, with the place behind it; our own waiters ask again."""
        client, claim = self._holding.client, self._claim
        try:
            if (place := client.cohorts.take_place(self)) is not None:
                await remove(client, place, 0.0, until)  # first, or the store would let it in
                client.cohorts.place_removed(self)
            linger, sent = self._linger(), client.runtime.now()
            if linger:
                return await remove(client, claim, linger, until)
            try:
                stood = await client.store.release(
                    claim.resource, claim.id, 0.0, timing.patience(until - sent)
                )
            except (StoreUnavailable, StoreUnfit) as error:
                return await remove(client, claim, 0.0, until, error)
            if stood:
                client.cohorts.stood(claim, sent)
            return DONE if stood else GONE
        finally:
            client.cohorts.dissolve(self)

    async def _give_back_lost(self) -> None:
        """Raise the loss.

        A claim that may still stand is taken back, but the holder hears of the loss at once.
        """
        if self._cause != "forked":
            with suppress(StoreUnfit):  # the loss is the worse news
                await remove(self._holding.client, self._claim, self._linger(), 0.0)
        self._settled = True
        raise self.loss()

    async def _give_back_anyway(self) -> None:
        """Finish a release that was interrupted."""
        client = self._holding.client
        self._withdraw()
        if self._passed_on:
            client.cohorts.call_heir(self)
        elif self._cause != "forked":
            linger, until = self._linger(), client.runtime.now() + timing.INTERRUPTED_RELEASE_S
            try:
                await client.runtime.finish(lambda: remove(client, self._claim, linger, until))
            finally:
                client.cohorts.dissolve(self)
        self._settled = True

    def _withdraw(self, by: Owner | None = None) -> State:
        """Let go of the lease without asking the store, and let nobody inherit it.

        Returns the state before.
        """
        before = self._let_go()
        if by is not None:
            self._note_taker(by, before)
        self._holding.unregister_lease(self)
        self._holding.client.cohorts.withhold(self)
        return before

    def _settle(self) -> None:
        """Note that nothing is left to do for this lease."""
        self._settled = True

    def _never_used(self) -> None:
        """Nothing was done under this lease: `min_hold` need keep nobody out."""
        self._free_from = 0.0

    def _linger(self) -> float:
        """How long the claim must stand on after its release, for `min_hold`."""
        return max(0.0, self._free_from - self._runtime.now()) if self._free_from else 0.0

    def _abandon(self) -> None:
        """A `with` statement over this lease has ended; see `Attempt._abandon`."""
        if not self._settled:
            self._holding.client.keeper.hand_over(self)

    def _clean_up(self) -> None:
        """Let go of the lease for a holder that cannot; for the keeper.

        Its claim becomes a pending release.
        """
        client = self._holding.client
        self._withdraw()
        if self._settled:
            return
        self._settled = True
        if self._passed_on:
            client.cohorts.call_heir(self)
        else:
            release_later(client, self._claim, self._linger(), pause=0.0)
            client.cohorts.dissolve(self)
