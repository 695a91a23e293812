"""What a client remembers of its own claims, beside what the servers keep."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from interlock._core.admission import to_watch
from interlock.backends.zookeeper.link import Answer, Session
from interlock.backends.zookeeper.paths import Place
from interlock.model import EVERYTHING, Claim

REMEMBERED = 61.0  # seconds for which an eviction is remembered at least
FORMER = 4096  # ids kept of claims whose session has ended, or whose request was not answered


class Entry:
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
        # As of the last look; nobody ever comes ahead of it later. Not the queue itself: thousands who wait would each keep thousands.
        self.looked = now
        self.ahead = 0
        self.first: Place | None = None
        self.fits = False
        self.watched: list[str] = []  # the paths of the claims that must change before this one can be let in
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
        """What its node says to others: how long it stands unheard of, since when it holds, its note and its owner."""
        since = (
            None if self.admitted_at is None or not self.waited else round(self.admitted_at - self.came, 3)
        )
        return encode(self.session.timeout, since, self.note, self.claim.who)

    def touched(self, answer: Answer) -> None:
        """Its data were written."""
        if answer.error is None:
            self.owes_touch, self.since_told = False, self.admitted_at is not None

    def see(self, ahead: Sequence[Place], now: float) -> None:
        """Note what a look at the queue says about this claim."""
        capacity = self.claim.capacity
        permits = [place.permits_of(capacity) for place in ahead]
        self.looked, self.ahead, self.first = now, len(ahead), ahead[0] if ahead else None
        self.fits = sum(permits) + self.permits <= capacity
        self.watched = []
        if not self.fits:
            found = to_watch([*permits, self.permits], len(ahead), capacity)
            self.watched = [f"{self.folder}/{ahead[place].node}" for place in found]

    def shares(self) -> bool:
        """Whether claims on this resource can hold together, so that more than a departure can let one in."""
        return self.claim.capacity > 1

    def must_touch(self) -> bool:
        """Whether those behind it may wait for it to be let in: in a count that is full, not among readers and writers."""
        return self.waited and 1 < self.claim.capacity < EVERYTHING


class Ledger:
    """The claims of one client, by id; its stores for tasks and for plain threads share it."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self._former: dict[str, None] = {}
        self._evicted: dict[str, tuple[str, float]] = {}

    def tried(self, id: str) -> bool:
        """Whether a node of this claim may exist that we do not know."""
        return id in self.entries or id in self._former

    def forget(self, id: str) -> None:
        entry = self.entries.pop(id, None)
        self._former.pop(id, None)
        if entry is not None:
            entry.session.ids.pop(id, None)

    def lose(self, ids: Collection[str] | None) -> None:
        """The session of these claims has ended."""
        for id in list(self.entries) if ids is None else ids:
            if self.entries.pop(id, None) is not None:
                self._former[id] = None
        while len(self._former) > FORMER:
            self._former.pop(next(iter(self._former)), None)

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
    """What a claim's node says; nothing of it if the data are not ours."""
    try:
        read: Any = json.loads(data or b"")
        timeout, since, note, who = read
        return float(timeout), None if since is None else float(since), str(note), str(who)
    except (ValueError, TypeError):
        return 0.0, None, "", ""
