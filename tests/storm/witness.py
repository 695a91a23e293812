"""interlock's own locks with their lives written down: when a lease was given, renewed, let go, lost."""

from __future__ import annotations

import os
import threading
from contextvars import ContextVar
from itertools import count
from typing import Any

import interlock
from interlock import aio
from interlock._core.attempt import BLANK_GRANT
from interlock._core.client import Client as CoreClient
from interlock._core.states import FINAL, LeaseEvent, State
from interlock._support import clock
from interlock.errors import LeaseLost, NotHeld
from tests.storm.journal import Journal

BEGAN: ContextVar[float] = ContextVar("BEGAN", default=0.0)
"""When the call under way began: a token may be drawn at any time after that."""

SHARED = "rw:"  # how resources begin that read-write locks are for

_journals: dict[CoreClient, Journal] = {}
_ended: set[str] = set()  # leases whose end is written


def name(lease: Any) -> str:
    """What the history calls a lease: those of one client may have a claim in turn, each with a token of its own."""
    return f"{lease._claim.id}/{lease.token}"


def _note(lease: Any, call: str, kind: Any, **rest: Any) -> None:
    said = {"attempt": name(lease), "resource": lease.resource, "token": lease.token}
    _journals[lease._holding.client].add(call, kind, **said, **{"deadline": lease.deadline, **rest})


class _Witnessed:
    """Mixed into a lease of either face; `grant` stands before its holder sees it, `end` before it is sent."""

    __slots__ = ()

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if args[2] is not BLANK_GRANT:
            self._note_grant()

    def _note_grant(self: Any) -> None:
        claim = self._claim
        _note(self, "grant", "ok", began=BEGAN.get(), permits=claim.permits, capacity=claim.capacity)

    def _inherit(self: Any, turn: Any, who: str, now: float) -> float:
        due: float = super()._inherit(turn, who, now)  # type: ignore[misc]
        self._note_grant()
        return due

    def _extend(self: Any, asked: float, ttl: float) -> None:
        at, before = clock.now(), self._deadline  # the time first: we may be stopped before it is written
        super()._extend(asked, ttl)  # type: ignore[misc]
        if self._deadline != before:
            _note(self, "renew", "ok", at=at)

    def _move(self: Any, event: LeaseEvent, cause: str = "", reason: str = "") -> None:
        at, before = clock.now(), self._state
        super()._move(event, cause, reason)  # type: ignore[misc]
        _end(self, at, before, cause)

    def _let_go(self: Any, *, pass_on: bool = False) -> State:
        at, before = clock.now(), self._state
        found: State = super()._let_go(pass_on=pass_on)  # type: ignore[misc]
        _end(self, at, before)
        return found


def _end(lease: Any, at: float, before: State, cause: str = "") -> None:
    """Write down the end, once: a way out may lead over another."""
    after = lease._state
    if before not in FINAL and after in FINAL and name(lease) not in _ended:
        _ended.add(name(lease))
        lost = after is State.LOST
        _note(lease, "end", "info" if lost else "ok", at=at, error=cause if lost else "")


class SyncLease(_Witnessed, interlock.Lease):
    __slots__ = ()


class AsyncLease(_Witnessed, aio.Lease):
    __slots__ = ()


class Interlock:
    """interlock over any URL, in one of its two faces."""

    def __init__(self, url: str, ttl: float, journal: Journal, *, asynchronous: bool) -> None:
        self._before = len(connections())  # an event loop has some of its own
        connect: Any = aio.connect if asynchronous else interlock.connect
        self._client: Any = connect(url, ttl=ttl, listener=lambda event: None)
        self._client._core.lease_type = AsyncLease if asynchronous else SyncLease
        self._turns = count(1)
        _journals[self._client._core] = journal

    def take(self, resource: str, timeout: float) -> Any:
        """A lease, or None; to be awaited under the async face. Of a read-write lock every third is a reader's."""
        if not resource.startswith(SHARED):
            return self._client.lock(resource).acquire(timeout=timeout)
        lock = self._client.rwlock(resource)
        return (lock.read() if next(self._turns) % 3 == 0 else lock.write()).acquire(timeout=timeout)

    def close(self) -> Any:
        return self._client.close()

    def left(self) -> list[str]:
        """What is still there though the client was closed."""
        core = self._client._core
        found = [f"{lease!r} is in the client" for lease in core.leases]
        found += [f"the keeper keeps {kept!r}" for kept in core.keeper.kept()]
        found += [f"thread {t.name} runs" for t in threading.enumerate() if t.name.startswith("interlock")]
        return found + [f"connection {name} is open" for name in connections()[self._before :]]


def connections() -> list[str]:
    """Sockets of this process; a client that was closed has none."""
    found: list[str] = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.append(f"{number} ({target})")
    return found


LOST = (LeaseLost, NotHeld)
