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

if TYPE_CHECKING:
    import interlock.aio as aio
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
        Once,
        ReadLock,
        Register,
        RLock,
        RWLock,
        Semaphore,
        WriteLock,
        connect,
    )
    from interlock.errors import (
        AcquireTimeout,
        BrokenBarrier,
        ClientClosed,
        Evicted,
        ForeignKey,
        InterlockError,
        InvalidName,
        InvalidSetting,
        InvalidURL,
        LeaseLost,
        NotHeld,
        SettingsMismatch,
        Skipped,
        StaleToken,
        StoreUnavailable,
        StoreUnfit,
        Unsupported,
        WouldDeadlock,
    )
    from interlock.model import EVERYTHING, Queue, Standing, Traits, Value
    from interlock.shutdown import release_on_signal
    from interlock.who import Who

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
    "ForeignKey",
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
    "Once",
    "Queue",
    "RLock",
    "RWLock",
    "ReadLock",
    "Register",
    "Semaphore",
    "SettingsMismatch",
    "Skipped",
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


# Where the names live, light rooms first. Each is opened when a name of it is first asked for: the command line
# answers `--help` without the clients, and nobody loads asyncio who does not wait on a loop.
_ROOMS = ("errors", "model", "who", "blocking", "shutdown", "_core.election", "_core.states")
_MODULES = ("aio", "blocking", "errors", "events", "model", "ports", "shutdown", "who")

if not TYPE_CHECKING:  # which would take every misspelt name for one that is found here

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in _MODULES:  # `interlock.errors`, though nobody has imported it yet
            return import_module(f"interlock.{name}")
        if name in __all__:
            for room in _ROOMS:
                found = vars(import_module(f"interlock.{room}")).get(name)
                if found is not None:
                    globals()[name] = found
                    return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
