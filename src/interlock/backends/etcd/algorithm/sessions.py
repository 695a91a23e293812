"""The sessions of a client: leases of etcd that carry its claims.

A session is one lease on the server. There is one for each class of ttl that the client uses, kept alive for
all claims in it; when it ends, all of them are lost at once. The ttl of a class is the lowest step of a
ladder that is not below the ttl of the claim: so any number of ttls makes only a few leases.

A session is counted from the *send* of the last keep-alive that was confirmed (see `keeping`). Once its time
has passed on our own clock, it is never used again, whatever the server says later: a leader that was frozen
may answer a keep-alive for a lease that its successor has already given up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection

from interlock._core import timing
from interlock._core.runtime import Signal
from interlock._support import native
from interlock.backends.etcd.algorithm.key_names import KeyName, KeyNames
from interlock.backends.etcd.wire.keys import Keys
from interlock.backends.etcd.wire.values import ClaimKey
from interlock.backends.etcd.wire.watching import Watched
from interlock.backends.kit.crowds import Crowd
from interlock.backends.kit.own_claims import Remembered
from interlock.backends.kit.runtime import WaitRuntime
from interlock.model import Granted, Standing

LADDER: tuple[int, ...] = (
    *range(1, 10),
    *(10, 12, 15, 20, 25, 30, 40, 50, 60, 80),
    *(100, 120, 150, 200, 250, 300, 400, 500, 600, 800),
    *(1000, 1200, 1500, 1800, 2400, 3000, 3600, 4800, 6000, 7200, 9600),
    *(12000, 14400, 18000, 21600, 28800, 36000, 43200, 57600, 72000, 86400),
)
"""The ttls of leases, whole seconds: exact for the usual ones, and never more than a third above what was
asked for.
"""

KEPT_PART = 3 / 4
"""The least part of a claim's ttl that its session must still live when the claim is sent; otherwise it is
kept first.
"""

IN_FLIGHT_S = 1.0  # seconds after which others no longer count on the caller who does something for all


def step(ttl: float) -> int:
    """The ttl of the lease for a claim with this ttl."""
    return LADDER[bisect_left(LADDER, ttl)]


class OwnClaim:
    """A claim of this client: its key, its session, and the answers so far."""

    __slots__ = ("admitted", "answered", "asking", "created", "entered", "name", "session")

    def __init__(self, session: Session, name: KeyName) -> None:
        self.session = session
        self.name = name
        self.created: int = 0  # the revision of its creation; 0 while that is not known
        self.entered = float("inf")  # when it was known to stand
        self.admitted = False  # its caller was told that it holds
        self.asking = True  # a request for it is under way
        self.answered = True  # every request for it before: none can arrive later

    @property
    def key(self) -> bytes:
        return self.name.key

    def stands(self, created: int, now: float) -> None:
        """It was seen standing."""
        if created != self.created:
            self.created, self.entered, self.admitted = created, now, False


class Session:
    """One lease, as this client knows it."""

    __slots__ = ("_validity", "claims", "kept", "keys", "lease", "listed", "listing", "over", "step", "ttl")

    def __init__(self, lease: int, step: int, ttl: float, asked: float) -> None:
        self.lease = lease
        self.step = step
        self.ttl = ttl  # what the server gave: it has a least ttl of its own
        self._validity = timing.validity(ttl)
        self.kept = asked  # when the last confirmed keep-alive was sent
        self.claims: dict[str, OwnClaim] = {}  # those that may stand in it, by id
        self.over = False
        self.keys: frozenset[bytes] = frozenset()  # the keys under the lease, as last listed,
        self.listed = float("-inf")  # and when that was asked for,
        self.listing = 0.0  # and how long it took, with all that is done with it, seconds

    def lapsed(self, now: float) -> bool:
        """Whether its time is up on our clock, with the margin that a holder takes off."""
        return self.over or now >= self.kept + self._validity

    def granted(self, token: int, ttl: float, asked: float) -> Granted:
        """A grant whose ttl counts from an instant at which it ends no later than the session does."""
        ttl = min(ttl, self.ttl)
        return Granted(token, ttl, min(asked, self.kept + self.ttl - ttl))


class Place:
    """The place of a claim of ours that waits: its revision, how many are ahead, and the keys to watch.

    `next` is its own key if it waits for one claim alone, and that one can only leave: then it is in once
    that has left. It waits in a `crowd` if it entered a long queue, of which it has not read who is ahead:
    then it has nothing to watch yet.
    """

    __slots__ = ("ahead", "created", "crowd", "next", "since", "watched")

    def __init__(
        self,
        created: int,
        ahead: int,
        watched: tuple[Watched, ...],
        since: float,
        next: ClaimKey | None = None,
        *,
        crowd: bool = False,
    ) -> None:
        self.crowd = crowd
        self.created = created
        self.next = next
        self.ahead = ahead
        self.watched = watched
        self.since = since


class Sessions:
    """The sessions of one client and what it knows of its claims, shared by all of its sides."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._on_lost: list[Callable[[Collection[str] | None], None]] = []
        self.after_fork()

    def after_fork(self) -> None:
        """The leases and the keys are the parent's: they are neither kept nor revoked nor used here."""
        self.mutex = native.mutex()
        self._names = KeyNames(self._keys)
        self._current: dict[int, Session] = {}  # by step of the ladder
        self._by_id: dict[str, OwnClaim] = {}
        # Claims of lost sessions, whose keys a release needs before the server has removed them.
        self._former: Remembered[str, OwnClaim] = Remembered()
        self._in_flight: dict[object, list[Signal]] = {}
        self.places: dict[str, Place] = {}
        # By resource; its front by the revision of the creation.
        self._crowds: dict[str, Crowd[int, bytes]] = {}
        # Claims, by id, that were let in and have to say so to those behind them; until the server has
        # confirmed that they did.
        self.let_in: dict[str, ClaimKey] = {}
        self.watched: set[int] = set()  # leases of sessions whose end is watched for
        self.unanswered: Remembered[str, None] = (
            Remembered()
        )  # ids of claims with a request that may still arrive
        self.floor: tuple[int, int] = (0, 0)  # the revision of the token floor, as last read, and the floor
        self.tombstone_lease: tuple[int, float] | None = (
            None  # the lease for what is to vanish soon, and when it was asked for
        )

    def on_lost(self, call: Callable[[Collection[str] | None], None]) -> None:
        self._on_lost.append(call)

    # ---- sessions -----------------------------------------------------------------------

    def current(self, ttl: float) -> Session | None:
        return self._current.get(LADDER[bisect_left(LADDER, ttl)])

    def begin(self, session: Session) -> None:
        with self.mutex:
            self._current[session.step] = session

    def lose(self, session: Session) -> None:
        """The session has ended: report once that all its claims are lost."""
        with self.mutex:
            if session.over:
                return
            session.over = True
            if self._current.get(session.step) is session:
                del self._current[session.step]
            lost = frozenset(session.claims)
            for id in lost:
                self._retire(id)
        for call in self._on_lost:
            call(lost)

    def of_lease(self, lease: int, now: float) -> Session | None:
        """The live session that this lease carries, if it is one of ours."""
        for session in list(self._current.values()):
            if session.lease == lease and not session.lapsed(now):
                return session
        return None

    def of_claim(self, id: str) -> Session | None:
        own = self._by_id.get(id)
        return None if own is None else own.session

    def claims_of(self, session: Session) -> list[tuple[str, OwnClaim]]:
        """The claims in a session.

        To copy a dict takes a mutex: the collector may run meanwhile, and other threads with it.
        """
        with self.mutex:
            return list(session.claims.items())

    def end(self) -> list[Session]:
        """Take out all sessions, for a client that closes."""
        with self.mutex:
            sessions, self._current = list(self._current.values()), {}
            for session in sessions:
                session.over = True
            return sessions

    # ---- claims -------------------------------------------------------------------------

    def own(self, id: str, resource: str | None = None) -> OwnClaim | None:
        """A claim of this client (on this resource), also if its session was lost."""
        own = self._by_id.get(id) or self._former.get(id)
        return own if own is None or resource in (None, own.name.resource) else None

    def enter(self, session: Session, resource: str, id: str, *, reader: bool = False) -> OwnClaim:
        """Note that a claim is in this session. A claim keeps its key, and a new one is given one."""
        with self.mutex:
            own = self._by_id.get(id) or self._former.pop(id, None)
            if own is None:
                own = OwnClaim(session, self._names.take(resource, reader=reader))
            elif own.session is not session:
                own.session.claims.pop(id, None)
                own.session = session
            own.asking = True
            self._by_id[id] = session.claims[id] = own
            return own

    def move(self, own: OwnClaim, id: str) -> None:
        """Give a claim another key: something is in the way at the one that it has."""
        with self.mutex:
            self._names.free(own.name, again=False)
            own.name, own.created = self._names.take(own.name.resource, reader=own.name.reader), 0
            self._leave_crowd(own, id)

    def leave(self, id: str, *, again: bool = False) -> None:
        """Forget a claim that was removed.

        Its key is used `again` only if every request for it was answered.
        """
        with self.mutex:
            own = self._by_id.pop(id, None)
            if own is not None:
                own.session.claims.pop(id, None)
                self._names.free(own.name, again=again and own.answered)
                self._leave_crowd(own, id)
            self._former.pop(id, None)
            self.places.pop(id, None)
            self.unanswered.pop(id, None)
            self.let_in.pop(id, None)

    def leave_removed(self, id: str, listed: float) -> None:
        """Forget a claim that somebody else has removed: it was looked for after this instant, and is
        gone.
        """
        with self.mutex:
            own = self._by_id.get(id)
            # A claim that is asked for again may stand by now; one without an answer needs a tombstone in the
            # end.
            if own is not None and own.answered and not own.asking and own.entered <= listed:
                self.leave(id, again=True)

    def _retire(self, id: str) -> None:
        """Remember only the key of a claim whose session was lost: it may stand there until the server
        knows.
        """
        own = self._by_id.pop(id, None)
        if own is None:
            return
        own.answered = False
        self.let_in.pop(id, None)
        self._names.free(own.name, again=False)
        self._leave_crowd(own, id)
        self._former.remember(id, own)

    def leave_unanswered(self, id: str) -> None:
        """Remember a claim whose request may still arrive: after its release it must not enter any more."""
        own = self.own(id)
        if own is not None:
            own.answered, own.created = False, 0  # it may stand there anew
            with self.mutex:
                self._leave_crowd(own, id)
        self.unanswered.remember(id, None)

    # ---- crowds ---------------------------------------------------------------------------

    def join_crowd(self, own: OwnClaim, id: str, place: Place) -> Standing | None:
        """Wait behind those of our own claims that came before; returns the holder that one of them was
        told of.
        """
        with self.mutex:
            self.places[id] = place
            crowd = self._crowds.setdefault(own.name.resource, Crowd())
            crowd.join(id, place.created)
            return crowd.holder(place.since)[1]

    def behind_ours(self, resource: str, id: str, signal: Callable[[], Signal]) -> Signal | None:
        """None if no claim of ours is known to be before this one; otherwise what is set when that may
        have changed.
        """
        with self.mutex:
            crowd = self._crowds.get(resource)
            while crowd is not None and (first := crowd.first()) is not None:
                own = self._by_id.get(first[1])
                if own is not None and own.created == first[0]:
                    return crowd.behind(id, signal)
                crowd.leave(first[1])  # it stands elsewhere by now
            return None

    def crowd(self, resource: str) -> Crowd[int, bytes]:
        with self.mutex:
            return self._crowds.get(resource) or Crowd()

    def _leave_crowd(self, own: OwnClaim, id: str) -> None:
        crowd = self._crowds.get(own.name.resource) if self._crowds else None
        if crowd is not None:
            crowd.leave(id)
            if not crowd:
                del self._crowds[own.name.resource]

    # ---- one caller for all ---------------------------------------------------------------

    async def take_lead(self, what: object, runtime: WaitRuntime, timeout: float) -> bool:
        """True: the caller does it now and calls `finished` in the end.

        False: another did, or should have by now.
        """
        with self.mutex:
            waiting = self._in_flight.get(what)
            if waiting is None:
                self._in_flight[what] = []
                return True
            signal = runtime.signal()
            waiting.append(signal)
        if not await runtime.wait(signal, max(0.0, min(timeout, IN_FLIGHT_S))):
            self.finished(what)  # its caller may be gone without a word
        return False

    def finished(self, what: object) -> None:
        with self.mutex:
            waiting = self._in_flight.pop(what, [])
        for signal in waiting:
            signal.set()
