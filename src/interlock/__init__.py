"""interlock: distributed locks for Python that can be trusted.

    import interlock

    client = interlock.connect()                  # a SQLite file of this user; or a URL, as "redis://localhost"
    with client.lock("report:daily") as lease:    # waits, renews the lease while the body runs, releases it
        lease.check()                             # raises LeaseLost if the lease was lost
        save(report, token=lease.token)           # a resource that checks the token refuses late writes

`interlock.aio` has the same names, to be awaited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import interlock.aio as aio
    import interlock.guards as guards
    from interlock._api.shutdown import release_on_signal
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
    "guards",
    "release_on_signal",
]


# The modules in which the public names live, light ones first. Each is imported when one of its names is
# first asked for: the command line answers `--help` without loading a client, and a program without an event
# loop does not load asyncio.
_HOMES = ("errors", "model", "who", "blocking", "_api.shutdown", "_core.election", "_core.states")
_MODULES = ("aio", "blocking", "errors", "events", "guards", "model", "store", "who")

if not TYPE_CHECKING:  # a type checker would accept every misspelt name

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name in _MODULES:  # `interlock.errors`, though nobody has imported it yet
            return import_module(f"interlock.{name}")
        if name in __all__:
            for home in _HOMES:
                found = vars(import_module(f"interlock.{home}")).get(name)
                if found is not None:
                    globals()[name] = found
                    return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
