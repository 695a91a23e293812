"""The memory of a client about its own claims, beside what the servers keep."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from interlock._core.runtime import Signal
from interlock._support import native
from interlock.backends.kit.crowds import Crowd
from interlock.backends.kit.own_claims import Remembered
from interlock.backends.zookeeper.paths import ClaimNode
from interlock.backends.zookeeper.queue_view import QueueView
from interlock.backends.zookeeper.session_client import Answer, Session
from interlock.model import EVERYTHING, Claim

# Waiters of a client from which on another one does not list the queue, and so does not know how many are
# ahead.
SHORT_QUEUE_CLAIMS = 6
REMEMBERED_S = 61.0  # seconds for which an eviction is remembered at least


class OwnClaim:
    """One claim of this client, from the moment before it is sent."""

    def __init__(self, claim: Claim, folder: str, session: Session, now: float) -> None:
        self.claim = claim
        self.folder = folder
        self.session = session
        self.node = ""  # the last element of its path; "" until the server has answered
        self.token = 0
        self.permits = claim.permits
        self.markers: tuple[str, ...] = ()
        self.note = claim.note
        # As of the last read; nobody ever comes ahead of it later. Not the queue itself: thousands who wait
        # would each keep thousands.
        self.read_at = now
        self.ahead = 0
        self.first: ClaimNode | None = None
        self.fits = False
        self.watched: list[str] = []  # the paths of the claims that must change before this one can be let in
        self.lingering: frozenset[str] = frozenset()  # nodes ahead that linger: a claim knows until when
        self.waited = False
        self.owes_touch = False  # it was let in after it waited, and those behind it may not know
        self.since_told = False  # its node says since when it holds
        self.came = now
        self.admitted_at: float | None = None

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.node}"

    def stands_in(self, session: Session | None) -> bool:
        """Whether its node is known, and is one of this session."""
        return bool(self.node) and self.session is session

    def data(self) -> bytes:
        """The data of its node, for others: how long it stands unheard of, since when it holds, its note and
        its owner.
        """
        since = (
            None if self.admitted_at is None or not self.waited else round(self.admitted_at - self.came, 3)
        )
        return encode(self.session.timeout, since, self.note, self.claim.who)

    def touched(self, answer: Answer) -> None:
        """Its data were written."""
        if answer.error is None:
            self.owes_touch, self.since_told = False, self.admitted_at is not None

    def see(self, view: QueueView, place: int, now: float) -> None:
        """Note what a read of the queue, in which it has this place, says about this claim."""
        capacity = self.claim.capacity
        self.read_at, self.ahead, self.first = now, place, view.queue[0] if place else None
        self.fits = view.permits_ahead(place, capacity) + self.permits <= capacity
        self.watched = []
        if not self.fits:
            found = view.to_watch(place, self.permits, capacity)
            self.watched = [f"{self.folder}/{view.queue[ahead].node}" for ahead in found]

    def let_in(self, now: float) -> None:
        """Note that nothing stands in its way any more."""
        self.read_at, self.ahead, self.first, self.fits, self.watched = now, 0, None, True, []

    def exclusive(self) -> bool:
        """Whether it can share with nobody: a mutex, or a writer. Then only departures let it in."""
        return self.permits >= self.claim.capacity

    def shares(self) -> bool:
        """Whether claims on this resource can hold together, so that more than a departure can let one in."""
        return self.claim.capacity > 1

    def must_touch(self) -> bool:
        """Whether those behind it may wait for it to be let in: in a count that is full, not among readers
        and writers.
        """
        return self.waited and 1 < self.claim.capacity < EVERYTHING


class FolderCrowd(Crowd[str, ClaimNode]):
    """The waiters of one client on one resource, with what the last read has shown; the front is kept by
    the names of the nodes.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.view = QueueView([], number=-1)
        self._read = -1  # the number of the view that the front is taken from

    def saw(self, view: QueueView) -> None:
        """Keep the latest view."""
        if view.number > self.view.number:
            self.view = view

    def ahead_of(self, key: str) -> list[tuple[str, ClaimNode]] | None:
        view = self.view
        if self._read != view.number:  # only now: of the claims that enter, few ask
            self.front_was((claim_node.node, claim_node) for claim_node in view.queue)
            self._read = view.number
        return super().ahead_of(key)


class Ledger:
    """The claims of one client, by id; its stores for tasks and for plain threads share it."""

    def __init__(self) -> None:
        self._mutex = native.mutex()
        self._crowds: dict[str, FolderCrowd] = {}  # by folder
        self.claims: dict[str, OwnClaim] = {}
        # Claims whose session has ended, or whose request was not answered.
        self._former: Remembered[str, None] = Remembered()
        self._evicted: dict[str, tuple[str, float]] = {}

    def tried(self, id: str) -> bool:
        """Whether a node of this claim may exist that we do not know."""
        return id in self.claims or id in self._former

    def forget(self, id: str) -> None:
        own = self.claims.pop(id, None)
        self._former.pop(id, None)
        if own is not None:
            own.session.leave(id)
            self.leave_crowd(own, gone=True)

    def after_fork(self) -> None:
        self._mutex = native.mutex()
        # First: nobody is left to be woken, and the locks of the parent's signals may be held for ever.
        self._crowds = {}
        self.lose(None)

    # ---- claims that wait ----------------------------------------------------------------

    def join_crowd(self, own: OwnClaim, view: QueueView | None) -> FolderCrowd:
        """Have a claim wait behind those of our own that came before it."""
        with self._mutex:
            crowd = self._crowds.get(own.folder)
            if crowd is None:
                crowd = self._crowds[own.folder] = FolderCrowd(own.claim.capacity)
            crowd.join(own.claim.id, own.token)
            if view is not None:
                crowd.saw(view)
            return crowd

    def leave_crowd(self, own: OwnClaim, *, gone: bool = False) -> None:
        """It waits no longer: wake the next one of ours. With `gone`, its node does not stand any more."""
        crowd = self._crowds.get(own.folder)
        if crowd is not None:
            with self._mutex:
                if gone:
                    crowd.left([own.node])
                crowd.leave(own.claim.id)
                if not crowd and self._crowds.get(own.folder) is crowd:
                    del self._crowds[own.folder]

    def crowd(self, folder: str) -> FolderCrowd | None:
        return self._crowds.get(folder)

    def is_behind_ours(self, claim: Claim, folder: str) -> bool:
        """Whether a claim that enters now has to wait, because many older ones of this client wait there."""
        crowd = self._crowds.get(folder)
        return (
            crowd is not None
            and claim.queued
            and crowd.capacity == claim.capacity
            and len(crowd) >= SHORT_QUEUE_CLAIMS
        )

    def behind_ours(self, own: OwnClaim, signal: Callable[[], Signal]) -> Signal | None:
        """None if no older claim of ours waits there; otherwise what is set when that may have changed."""
        with self._mutex:
            crowd = self._crowds.get(own.folder)
            return None if crowd is None else crowd.behind(own.claim.id, signal)

    def first_of_ours(self, own: OwnClaim) -> OwnClaim | None:
        """The first of our waiters there, if they are many and it is not this one."""
        with self._mutex:
            crowd = self._crowds.get(own.folder)
            first = None if crowd is None else crowd.first()
            if crowd is None or len(crowd) <= SHORT_QUEUE_CLAIMS or first is None or first[1] == own.claim.id:
                return None
            found = self.claims.get(first[1])
            if found is None or found.token != first[0]:
                crowd.leave(first[1])  # it stands elsewhere by now
            return found

    # ---- the end of claims -----------------------------------------------------------------

    def lose(self, ids: Collection[str] | None) -> None:
        """The session of these claims has ended."""
        for id in list(self.claims) if ids is None else ids:
            if (own := self.claims.pop(id, None)) is not None:
                self._former.remember(id, None)
                self.leave_crowd(own)

    def evict(self, id: str, reason: str, now: float, life: float) -> None:
        """Remember that an operator removed a claim, for whoever asks for it again."""
        self.forget(id)
        self._evicted = {id: (why, until) for id, (why, until) in self._evicted.items() if until > now}
        self._evicted[id] = (reason, now + life)

    def evicted(self, id: str) -> str | None:
        found = self._evicted.get(id)
        return None if found is None else found[0]


def encode(timeout: float, since: float | None, note: str, who: str) -> bytes:
    return json.dumps([timeout, since, note, who], ensure_ascii=False).encode()


def decode(data: bytes | None) -> tuple[float, float | None, str, str]:
    """The data of a claim's node; empty if they are not ours."""
    try:
        read: Any = json.loads(data or b"")
        timeout, since, note, who = read
        return float(timeout), None if since is None else float(since), str(note), str(who)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return 0.0, None, "", ""
