"""interlock's own leases with their lives written down: when each was given, renewed, let go, lost."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import interlock
from interlock import aio
from interlock._core.attempt import BLANK_GRANT
from interlock._core.client import Client as CoreClient
from interlock._core.states import FINAL, LeaseEvent, State
from interlock._support import clock
from interlock.testing.journal import Journal

BEGAN: ContextVar[float] = ContextVar("BEGAN", default=0.0)
"""When the call under way began: a token may be drawn at any time after that."""

_journals: dict[CoreClient, Journal] = {}
_ended: set[str] = set()  # leases whose end is written


def name_of(lease: Any) -> str:
    """What the history calls a lease: leases of a client may have a claim in turn, each with a token."""
    return f"{lease._claim.id}/{lease.token}"


def _note(lease: Any, call: str, kind: Any, **rest: Any) -> None:
    said = {"attempt": name_of(lease), "resource": lease.resource, "token": lease.token}
    _journals[lease._holding.client].add(call, kind, **said, **{"deadline": lease.deadline, **rest})


class _Witnessed:
    """Mixed into a lease: `grant` is written before its holder sees it, `end` before it is sent."""

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
    if before not in FINAL and after in FINAL and name_of(lease) not in _ended:
        _ended.add(name_of(lease))
        lost = after is State.LOST
        _note(lease, "end", "info" if lost else "ok", at=at, error=cause if lost else "")


class SyncLease(_Witnessed, interlock.Lease):
    __slots__ = ()


class AsyncLease(_Witnessed, aio.Lease):
    __slots__ = ()


def witness(client: Any, journal: Journal, *, asynchronous: bool) -> None:
    """From now on, the lives of all leases of this client are written into the journal."""
    client._core.lease_type = AsyncLease if asynchronous else SyncLease
    _journals[client._core] = journal
