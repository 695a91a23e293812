"""What naive locks have in common: they ask until they are granted, and believe in their ttl."""

from __future__ import annotations

import time
from random import Random
from typing import Any
from uuid import uuid4

from interlock._support import clock
from interlock.errors import LeaseLost, NotHeld
from interlock.lab.storm.workers.lease_lives import BEGAN
from interlock.testing.journal import Journal

RETRY_S = 0.02
BELIEVED = 0.98  # of the ttl


class NaiveLease:
    """Believed in until its ttl has passed."""

    def __init__(self, lock: NaiveLock, resource: str, id: str, token: int, deadline: float) -> None:
        self._lock, self.resource, self.id, self.token, self.deadline = lock, resource, id, token, deadline
        self.over = False
        self.permits = 1
        lock.note(self, "grant", "ok", began=BEGAN.get())

    def check(self) -> None:
        if self.over or clock.now() >= self.deadline:
            raise LeaseLost(self.resource, self.token, "lapsed")

    def release(self) -> None:
        lapsed = clock.now() >= self.deadline
        if self.over:
            raise NotHeld(self.resource)
        self.over = True
        self._lock.note(self, "end", "info" if lapsed else "ok")
        self._lock.free(self)


class NaiveLock:
    """Asks again and again; without tokens, every write says 0. Subclasses ask servers."""

    def __init__(self, place: Any, ttl: float, journal: Journal) -> None:
        self.place, self.ttl, self.journal = place, ttl, journal

    def note(self, lease: NaiveLease, call: str, kind: Any, **rest: Any) -> None:
        said: dict[str, Any] = {"attempt": lease.id, "resource": lease.resource, "token": lease.token}
        self.journal.add(call, kind, **said, **{"deadline": lease.deadline, **rest})

    def touched(self, lease: NaiveLease, other: str) -> None:
        """Write down that a release has hit another's lock."""
        what = f"released the lock of {other}"
        self.journal.add("touch", "fail", attempt=lease.id, resource=lease.resource, error=what)

    def take(self, resource: str, timeout: float, chance: Random) -> NaiveLease | None:
        until = clock.now() + timeout
        while True:
            asked, id = clock.now(), uuid4().hex
            token = self.ask(resource, id)
            if token is not None and clock.now() < asked + self.ttl:
                return NaiveLease(self, resource, id, token, asked + self.ttl * BELIEVED)
            self.take_back(resource, id)
            if clock.now() + RETRY_S >= until:
                return None
            time.sleep(RETRY_S)

    def ask(self, resource: str, id: str) -> int | None:
        """Try once; a token, or None."""
        raise NotImplementedError

    def take_back(self, resource: str, id: str) -> None:
        """Remove what a try may have left; of its own alone."""

    def free(self, lease: NaiveLease) -> None:
        self.take_back(lease.resource, lease.id)

    def close(self) -> None:
        """Nothing to close, where each step has a connection of its own."""

    def left(self) -> list[str]:
        return []


class NoLock(NaiveLock):
    """Lets everybody in at once: what a check that is followed by a decrement is without a lock."""

    def ask(self, resource: str, id: str) -> int | None:
        return 0
