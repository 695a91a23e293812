"""The sessions of a client: leases of etcd that carry its claims.

A session is one lease on the server. There is one for each class of ttl that the client uses, kept alive for all claims in it; when
it ends, all of them are lost at once. The ttl of a class is the lowest step of a ladder that is not below the ttl of the
claim: so any number of ttls makes only a few leases.

A session is counted from the *send* of the last keep-alive that was confirmed (see `keeping`). Once its time has passed on our own
clock, it is never used again, whatever the server says later: a leader that was frozen may answer a keep-alive for a lease
that its successor has already given up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection

from interlock import native
from interlock._core import timing
from interlock.backends.etcd.wire.values import Entry
from interlock.backends.etcd.wire.watching import Watched
from interlock.backends.kit.runtime import WaitRuntime
from interlock.model import Granted
from interlock.ports import Signal

LADDER: tuple[int, ...] = (
    *range(1, 10),
    *(10, 12, 15, 20, 25, 30, 40, 50, 60, 80),
    *(100, 120, 150, 200, 250, 300, 400, 500, 600, 800),
    *(1000, 1200, 1500, 1800, 2400, 3000, 3600, 4800, 6000, 7200, 9600),
    *(12000, 14400, 18000, 21600, 28800, 36000, 43200, 57600, 72000, 86400),
)
"""The ttls of leases, whole seconds: exact for the usual ones, and never more than a third above what was asked for."""

KEPT = 3 / 4
"""The least part of a claim's ttl that its session must still live when the claim is sent; otherwise it is kept first."""

UNANSWERED = 4096  # ids that are remembered of claims with a request that may still arrive
FLIGHT = 1.0  # seconds after which others no longer count on the caller who does something for all


def step(ttl: float) -> int:
    """The ttl of the lease for a claim with this ttl."""
    return LADDER[bisect_left(LADDER, ttl)]


class Session:
    """One lease, as this client knows it."""

    __slots__ = ("ids", "kept", "keys", "lease", "listed", "over", "step", "ttl")

    def __init__(self, lease: int, step: int, ttl: float, asked: float) -> None:
        self.lease = lease
        self.step = step
        self.ttl = ttl  # what the server gave: it has a least ttl of its own
        self.kept = asked  # when the last confirmed keep-alive was sent
        self.ids: set[str] = set()  # of claims that may stand in it
        self.over = False
        self.keys: frozenset[bytes] = frozenset()  # the keys under the lease, as last listed,
        self.listed = float("-inf")  # and when that was asked for

    def lapsed(self, now: float) -> bool:
        """Whether its time is up on our clock, with the margin that a holder takes off."""
        return self.over or now >= timing.deadline(self.kept, self.ttl)

    def granted(self, token: int, ttl: float, asked: float) -> Granted:
        """A grant whose ttl counts from an instant at which it ends no later than the session does."""
        ttl = min(ttl, self.ttl)
        return Granted(token, ttl, min(asked, self.kept + self.ttl - ttl))


class Place:
    """Where a claim of ours waits: since which revision, how many are ahead, and what it must watch.

    `next` is its own entry if it waits for one claim alone, and that one can only leave: then it is in once that has left.
    """

    __slots__ = ("ahead", "created", "next", "since", "watched")

    def __init__(
        self, created: int, ahead: int, watched: tuple[Watched, ...], since: float, next: Entry | None = None
    ) -> None:
        self.created = created
        self.next = next
        self.ahead = ahead
        self.watched = watched
        self.since = since


class Sessions:
    """The sessions of one client and what it knows of its claims, shared by all of its sides."""

    def __init__(self) -> None:
        self._on_lost: list[Callable[[Collection[str] | None], None]] = []
        self.after_fork()

    def after_fork(self) -> None:
        """The leases are the parent's: they are neither kept nor revoked here."""
        self.guard = native.guard()
        self._current: dict[int, Session] = {}  # by step of the ladder
        self._by_id: dict[str, Session] = {}
        self._flights: dict[object, list[Signal]] = {}
        self.places: dict[str, Place] = {}
        self.unanswered: dict[str, None] = {}  # ids of claims with a request that may still arrive
        self.floor: tuple[int, int] = (0, 0)  # the revision of the token floor, as last read, and the floor
        self.litter: tuple[int, float] | None = (
            None  # the lease for what is to vanish soon, and when it was asked for
        )

    def on_lost(self, call: Callable[[Collection[str] | None], None]) -> None:
        self._on_lost.append(call)

    # ---- sessions -----------------------------------------------------------------------

    def current(self, ttl: float) -> Session | None:
        return self._current.get(step(ttl))

    def begin(self, session: Session) -> None:
        with self.guard:
            self._current[session.step] = session

    def lose(self, session: Session) -> None:
        """The session has ended: report once that all its claims are lost."""
        with self.guard:
            if session.over:
                return
            session.over = True
            if self._current.get(session.step) is session:
                del self._current[session.step]
            lost = frozenset(session.ids)
            for id in lost:
                self._by_id.pop(id, None)
        for call in self._on_lost:
            call(lost)

    def of_lease(self, lease: int, now: float) -> Session | None:
        """The live session that this lease carries, if it is one of ours."""
        for session in list(self._current.values()):
            if session.lease == lease and not session.lapsed(now):
                return session
        return None

    def of_claim(self, id: str) -> Session | None:
        return self._by_id.get(id)

    def end(self) -> list[Session]:
        """Take out all sessions, for a client that closes."""
        with self.guard:
            sessions, self._current = list(self._current.values()), {}
            for session in sessions:
                session.over = True
            return sessions

    # ---- claims -------------------------------------------------------------------------

    def enter(self, session: Session, id: str) -> None:
        with self.guard:
            session.ids.add(id)
            self._by_id[id] = session

    def leave(self, id: str) -> None:
        """Forget a claim that was removed."""
        with self.guard:
            session = self._by_id.pop(id, None)
            if session is not None:
                session.ids.discard(id)
            self.places.pop(id, None)
            self.unanswered.pop(id, None)

    def leave_unanswered(self, id: str) -> None:
        """Remember a claim whose request may still arrive: after its release it must not enter any more."""
        self.unanswered[id] = None
        if len(self.unanswered) > UNANSWERED:
            try:
                self.unanswered.pop(next(iter(self.unanswered)), None)
            except (RuntimeError, StopIteration):
                pass  # another thread has changed it meanwhile

    # ---- one caller for all ---------------------------------------------------------------

    async def take_lead(self, what: object, runtime: WaitRuntime, timeout: float) -> bool:
        """True: the caller does it now and calls `landed` in the end. False: another did, or should have by now."""
        with self.guard:
            waiting = self._flights.get(what)
            if waiting is None:
                self._flights[what] = []
                return True
            signal = runtime.signal()
            waiting.append(signal)
        if not await runtime.wait(signal, max(0.0, min(timeout, FLIGHT))):
            self.landed(what)  # its caller may be gone without a word
        return False

    def landed(self, what: object) -> None:
        with self.guard:
            waiting = self._flights.pop(what, [])
        for signal in waiting:
            signal.set()
