"""The state that all synchronizers of one client share: its store, runtime, keeper, leases and listener."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakMethod, finalize

from interlock import events
from interlock._core import timing
from interlock._core.cohort import Cohorts
from interlock._core.keeper import Keeper
from interlock._core.place import QueuePlace
from interlock._core.runtime import Owner, Runtime, Signal
from interlock._core.session import Session
from interlock._core.settings import DEFAULT_SETTINGS
from interlock._core.states import FINAL
from interlock._core.terms import Terms
from interlock.errors import ClientClosed, InterlockError, NotHeld, StoreUnavailable, WouldDeadlock
from interlock.model import Claim, Gone, NoAnswer, Renewal, Renewed
from interlock.store import Store

if TYPE_CHECKING:
    from interlock._core.attempt import Attempt
    from interlock._core.lease import Lease
    from interlock._core.reentry import Entry

CLOSE_TIMEOUT_S = 5.0  # seconds that closing may take
# Seconds in which a closed client takes back the claims of attempts that got no answer.
TAKE_BACK_TIMEOUT_S = 0.5
DRAIN_S = 1.0  # seconds for which waiters ask for nothing because their process is about to end


class Client:
    """The core of `interlock.Client` and `interlock.aio.Client`."""

    _closer: Owner | None = None
    # Set once there are no attempts, and no releases, but the closer's own.
    _none_under_way: Signal | None = None
    _none_releasing: Signal | None = None

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        keeper_runtime: Runtime,
        *,
        ttl: float | None,
        listener: Callable[[events.Event], object] | None,
        lease_type: type[Lease],
    ) -> None:
        self.store, self.decides_here = store, store.decides_here
        self.runtime = runtime
        self._keeper_runtime = keeper_runtime
        usual = min(timing.DEFAULT_TTL_S, store.traits.max_ttl)
        self.ttl = timing.checked_ttl(usual if ttl is None else ttl, store.traits)
        store.expect_ttl(self.ttl, at_most=ttl is None)
        self.usual_terms = Terms(store.traits, self.ttl, DEFAULT_SETTINGS, permits=1, capacity=1, passes=True)
        self.lease_type = lease_type
        self.session = Session(self) if store.traits.lapses == "session" else None
        self.mutex = runtime.mutex()
        self.leases: dict[Lease, None] = {}
        self.attempts: dict[Attempt, None] = {}  # those on their way to a lease
        self.releasing: dict[Lease, None] = {}  # leases that the store is being asked to release
        self.entries: WeakKeyDictionary[Owner, dict[str, Entry]] = WeakKeyDictionary()
        self.cohorts = Cohorts()
        self._listener = listener
        # Most programs listen to warnings only: they should not pay for making other events.
        self.wants_all_events: Callable[[], bool] = getattr(listener, "wants_all_events", _always)
        self.closed = self._ended = False  # ended: nothing of it is left to close
        self._draining_until = 0.0
        self.keeper = self._made_keeper(store if keeper_runtime is runtime else store.blocking())
        self._listen(store)
        finalize(self, self.keeper.stop_soon).atexit = False

    def _made_keeper(self, store: Store) -> Keeper:
        # Weakly: a client that nobody refers to any more, and that holds nothing, must be collectable.
        emit = WeakMethod(self.emit)
        return Keeper(
            store.for_keeper(),
            self._keeper_runtime,
            self.mutex,
            lambda event: _called(emit(), event),
            self.runtime.stalled,
            self.session,
        )

    def _listen(self, store: Store) -> None:
        """Have the store tell of doubts, and of the session if there is one; weakly, as `emit`."""
        doubt = WeakMethod(self.keeper.doubt)
        store.on_doubt(lambda: _called(doubt()))
        if self.session is not None:
            store.on_session_lost(self.session.lose)
            store.on_session_shortened(self.session.shorten)

    def emit(self, event: events.Event) -> None:
        """Call the listener on the caller's thread; never on the keeper's, which a slow listener would
        hold up.
        """
        if self._listener is not None:
            if self.keeper.here():
                self._keeper_runtime.later(self._notify, event)
            else:
                self._notify(event)

    def _notify(self, event: events.Event) -> None:
        assert self._listener is not None
        try:
            self._listener(event)
        except (Exception, SystemExit):  # a listener must not decide whether locks work
            pass

    def inside(self) -> bool:
        """Whether the calling thread stands inside a mutex of ours: see `Keeper.hand_over`."""
        return self.mutex._is_owned() or self.store.inside()

    async def renew_one(self, renewal: Renewal, timeout: float) -> Renewed | Gone:
        """Renew a single claim; `StoreUnavailable` when nobody knows."""
        (answer,) = await self.store.renew([renewal], timeout)
        if isinstance(answer, NoAnswer):
            raise StoreUnavailable(answer.why)
        return answer

    def move_entry(self, lease: Lease, former: Owner, owner: Owner) -> None:
        """Let the new owner of a lease enter its lock again, and not the former one; `WouldDeadlock` if it is
        inside already by a lease of its own.

        Under the mutex. Without an entry, the lock is of a kind that is not entered again.
        """
        found = [(key, entry) for key, entry in self.entries.get(former, {}).items() if entry.lease is lease]
        if former is owner or not found:
            return
        ((key, entry),) = found
        theirs = self.entries.setdefault(owner, {})
        own = theirs.get(key)
        if own is not None and not own.over and own.lease._state not in FINAL:
            raise WouldDeadlock(
                f"{lease.resource}: {owner} is inside by another lease already, with token "
                f"{own.lease.token}; "
                "release that one before you adopt this one"
            )
        theirs[key] = entry
        del self.entries[former][key]
        if not self.entries[former]:
            del self.entries[former]

    def check_open(self) -> None:
        """Raise unless the client may be used."""
        if self.closed:
            raise ClientClosed("this client was closed")

    @contextmanager
    def while_open(self) -> Iterator[None]:
        """Around a call that may be under way when the client is closed: the caller is told that, and not
        that the store failed.
        """
        try:
            yield
        except StoreUnavailable:
            self.check_open()
            raise

    def drain(self) -> None:
        """Have the waiters pause before they ask again: the process is about to end.

        A place that is given back now would otherwise be taken anew by the waiter that this wakes.
        """
        self._draining_until = self.runtime.now() + DRAIN_S

    def draining(self) -> float:
        """Seconds for which no waiter should ask for a place again; 0.0 or less if the client is not
        draining.
        """
        return self._draining_until - self.runtime.now() if self._draining_until else 0.0

    async def release_all(self, by: Owner, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Give back everything that is held, within a bound; a lease that cannot be given back lapses by
        itself.
        """
        until = self.runtime.now() + timeout
        unexpected: Exception | None = None
        for lease in list(self.leases):
            try:
                left = until - self.runtime.now()
                if left > 0:
                    await lease._give_back(left=left, by=by)
                else:  # nobody looks after it from here on, so nobody may believe that it is held
                    lease._withdraw(by)
            except NotHeld:
                pass  # lost, or given back by its holder meanwhile
            except InterlockError as error:
                self.emit(events.CleanupFailed(lease.resource, repr(error)))
            except Exception as error:
                unexpected = error
        if unexpected is not None:
            raise unexpected  # a time limit, perhaps: the client is closed before it is obeyed

    def attempt_ended(self) -> None:
        """Note that an attempt has ended after the client was closed."""
        if (signal := self._none_under_way) is not None and not self._others_under_way():
            signal.set()

    def _others_under_way(self) -> list[Attempt]:
        """Attempts of other threads and tasks; one of our own cannot end while we wait for it."""
        return [attempt for attempt in list(self.attempts) if attempt.runner is not self._closer]

    async def _see_attempts_end(self, timeout: float = 1.0, taking_back: float = TAKE_BACK_TIMEOUT_S) -> None:
        """Wait for the attempts that are asking the store now: if one gets a lease, it needs the store to
        give it back.

        An attempt that has had no answer by then is not waited for: its claim is taken back for it, by its
        id.
        """
        self._closer = self.runtime.runner()
        self._none_under_way = self.runtime.signal()
        if timeout and self._others_under_way():
            await self.runtime.wait(self._none_under_way, timeout)
        until = self.runtime.now() + taking_back
        for attempt in list(self.attempts):
            if (left := until - self.runtime.now()) > 0:
                with suppress(Exception):  # what cannot be taken back lapses by itself
                    await self.store.release(
                        attempt.claim.resource, attempt.claim.id, 0.0, timing.patience(left)
                    )

    def release_ended(self) -> None:
        """Note that a release has ended after the client was closed."""
        if (signal := self._none_releasing) is not None and not self._others_releasing():
            signal.set()

    def _others_releasing(self) -> list[Lease]:
        """Leases that others are releasing right now; a release of our own, which we interrupt, cannot end
        while we wait.
        """
        return [lease for lease in list(self.releasing) if lease._owner is not self._closer]

    async def _see_releases_end(self, timeout: float = 1.0) -> None:
        """Wait for releases that the store has been asked for: we are about to cut off their requests."""
        self._closer = self.runtime.runner()
        self._none_releasing = self.runtime.signal()
        if self._others_releasing():
            await self.runtime.wait(self._none_releasing, timeout)

    async def _dismiss(self, timeout: float = 1.0) -> None:
        """Take back the claims of all waiters: that wakes them, and they learn that the client was closed."""
        until = self.runtime.now() + timeout
        standing: list[Claim | QueuePlace] = [*self.cohorts.underway(self)]
        standing += [kept for kept in self.keeper.kept() if isinstance(kept, QueuePlace)]
        for claim in standing:
            if (left := until - self.runtime.now()) > 0:
                with suppress(Exception):  # what cannot be taken back lapses by itself
                    await self.store.release(claim.resource, claim.id, 0.0, timing.patience(left))

    async def close(self, error: BaseException | None = None, by: Owner | None = None) -> None:
        """Give back what is held, end the keeper, give up connections. Closing twice is harmless.

        Bodies hear of it if their leases are not those of `by`, who closes it; None stands for the caller. A
        store that hangs holds up a caller for several seconds at most. A caller that is cancelled here, or
        that closes because of such an `error`, is not held up: what the store has not taken back soon lapses
        by itself.
        """
        if self.closed:
            return
        if self.inside():  # called by a signal handler or a garbage collector: see Keeper.hand_over
            self.keeper.hand_over(Closing(self, by or self.runtime.owner()))
            return
        closer = by or self.runtime.owner()
        try:
            self.closed = True
            if timing.time_for(error) < CLOSE_TIMEOUT_S:
                await self.runtime.finish(lambda: self._end_soon(closer))
            else:
                await self._end(closer)
        except BaseException:  # cancelled, or by a time limit, or before it had begun
            if not self._ended:
                # First: nobody could end the renewals any more if we were interrupted again.
                self.keeper.stop_soon()
                # Interrupted half way, it could never be closed again.
                await self.runtime.finish(lambda: self._end_soon(closer))
            raise

    async def _end(self, closer: Owner) -> None:
        self.cohorts.disband(self)
        await self._dismiss()
        await self._see_attempts_end()
        await self.release_all(closer)
        await self._see_releases_end()
        await self.keeper.stop(1.0)
        await self.store.close()
        self._ended = True

    async def _end_soon(self, closer: Owner) -> None:
        """Close for a caller that must be gone; see `timing.INTERRUPTED_RELEASE_S`."""
        self.cohorts.disband(self)
        await self._dismiss(timing.INTERRUPTED_RELEASE_S / 2)
        await self._see_attempts_end(0.0, timing.INTERRUPTED_RELEASE_S / 2)
        await self.release_all(closer, timing.INTERRUPTED_RELEASE_S)
        await self._see_releases_end(timing.INTERRUPTED_RELEASE_S / 2)
        await self.keeper.stop(timing.INTERRUPTED_RELEASE_S)
        await self.store.close()
        self._ended = True

    def after_fork(self) -> None:
        """In a forked child: hold nothing, touch nothing of the parent's."""
        self.mutex = self.runtime.mutex()
        for lease in self.leases:
            lease._forget()
        self.leases.clear()
        self.releasing.clear()
        self.attempts.clear()
        self.entries.clear()
        self.cohorts.after_fork()
        self.keeper.after_fork(self.mutex)
        self.store.after_fork()
        self.store.blocking().after_fork()


def _always() -> bool:
    return True


class Closing:
    """A client that was closed from inside one of its mutexes: the keeper begins to close it."""

    def __init__(self, client: Client, by: Owner) -> None:
        self._client, self._by = client, by

    def _clean_up(self) -> None:
        client = self._client
        client.runtime.spawn("interlock-closing", lambda: client.close(by=self._by))


def _called(call: Callable[..., None] | None, *arguments: object) -> None:
    if call is not None:
        call(*arguments)
