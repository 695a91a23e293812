"""interlock: distributed locks for Python that can be trusted.

    import interlock

    client = interlock.connect()                  # the embedded store; or a URL
    with client.lock("report:daily") as lease:    # waits, renews while held, releases
        lease.check()                             # raises LeaseLost
        save(report, token=lease.token)           # and let the resource check the token

`interlock.aio` has the same names, awaited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interlock._core.election import Leader
from interlock._core.states import State
from interlock.blocking import (
    Barrier,
    BoundedSemaphore,
    Client,
    Condition,
    Election,
    Event,
    Guard,
    Latch,
    Lease,
    Lock,
    MultiLease,
    MultiLock,
    ReadLock,
    Register,
    RLock,
    RWLock,
    Semaphore,
    Value,
    WriteLock,
    connect,
)
from interlock.errors import (
    AcquireTimeout,
    BrokenBarrier,
    ClientClosed,
    Evicted,
    InterlockError,
    InvalidName,
    InvalidSetting,
    InvalidURL,
    LeaseLost,
    NotHeld,
    SettingsMismatch,
    StaleToken,
    StoreUnavailable,
    StoreUnfit,
    Unsupported,
    WouldDeadlock,
)
from interlock.model import EVERYTHING, Queue, Standing, Traits
from interlock.shutdown import release_on_signal
from interlock.who import Who

if TYPE_CHECKING:
    import interlock.aio as aio

__version__ = "0.1.0"

__all__ = [
    "EVERYTHING",
    "AcquireTimeout",
    "Barrier",
    "BoundedSemaphore",
    "BrokenBarrier",
    "Client",
    "ClientClosed",
    "Condition",
    "Election",
    "Event",
    "Evicted",
    "Guard",
    "InterlockError",
    "InvalidName",
    "InvalidSetting",
    "InvalidURL",
    "Latch",
    "Leader",
    "Lease",
    "LeaseLost",
    "Lock",
    "MultiLease",
    "MultiLock",
    "NotHeld",
    "Queue",
    "RLock",
    "RWLock",
    "ReadLock",
    "Register",
    "Semaphore",
    "SettingsMismatch",
    "StaleToken",
    "Standing",
    "State",
    "StoreUnavailable",
    "StoreUnfit",
    "Traits",
    "Unsupported",
    "Value",
    "Who",
    "WouldDeadlock",
    "WriteLock",
    "aio",
    "connect",
    "release_on_signal",
]


def __getattr__(name: str) -> Any:
    if name == "aio":  # imported when first asked for: it needs asyncio, which most programs do not
        from importlib import import_module

        return import_module("interlock.aio")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
