"""Waiting for facts in tests: `interlock.testing.patience`, and what only our own tests need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock import Lease
from interlock._core import timing
from interlock._support import clock
from interlock.backends.kit.deadline import Deadline
from interlock.store import IO_TIMEOUT
from interlock.testing.lag import stretched
from interlock.testing.patience import PATIENCE, until

if TYPE_CHECKING:
    import pytest

__all__ = ["PATIENCE", "give_requests_time", "give_servers_time", "until", "until_renewed"]


def until_renewed(*leases: Lease) -> None:
    """Wait until each of these leases was renewed: until the instant at which it ends has moved.

    `remaining()` alone is above an earlier answer only in the first moments after a renewal, and not for several leases at once.
    """
    ends = [lease.remaining() + clock.now() for lease in leases]  # too late by the time between the two calls
    for lease, end in zip(leases, ends, strict=True):
        until(lambda lease=lease, end=end: clock.now() + lease.remaining() > end)  # type: ignore[misc]  # too early by it


def give_servers_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretch what a try without waiting gives its store, 0.15 s, on a busy machine.

    Three servers of Java, or a database that plans a function for the first time, may need longer there; that is not what is tested.
    """
    monkeypatch.setattr(timing, "GRACE_S", stretched(timing.GRACE_S))


def give_requests_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretch what any request may take, 5 s, on a busy machine: for tests of what is answered, not of when."""
    longest = stretched(IO_TIMEOUT)
    monkeypatch.setattr(timing, "IO_TIMEOUT", longest)
    monkeypatch.setattr(Deadline.for_request, "__defaults__", (longest,))
