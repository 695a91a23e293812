"""For tests of your own programs, and of interlock itself.

`Faulty` puts a link that fails between a client and any store; `World` and `SimulatedRuntime` run the shipped
algorithms under virtual time and a seed; `judge` reads a `History` and says what must never happen and did;
`interlock.testing.simulation` runs scenarios by the thousand; `interlock.testing.conformance` holds any store
to its port.

Names are loaded when they are asked for: a test session that only wants one of them pays for that one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlock.testing.checkers import Terms, Violation, judge
    from interlock.testing.faults import Breakdown, Faults, Faulty, Link
    from interlock.testing.history import History, Record
    from interlock.testing.simulated_cluster import ClientProcess, SimulatedCluster
    from interlock.testing.simulated_runtime import SimulatedRuntime
    from interlock.testing.simulated_server import SimulatedServer
    from interlock.testing.world import Cancelled, Livelock, World

__all__ = [
    "Faults",
    "Faulty",
    "Link",
    "Breakdown",
    "World",
    "SimulatedRuntime",
    "Cancelled",
    "Livelock",
    "SimulatedServer",
    "SimulatedCluster",
    "ClientProcess",
    "History",
    "Record",
    "Terms",
    "Violation",
    "judge",
]

_WHERE = {
    "faults": ("Faults", "Faulty", "Link", "Breakdown"),
    "world": ("World", "Cancelled", "Livelock"),
    "simulated_runtime": ("SimulatedRuntime",),
    "simulated_server": ("SimulatedServer",),
    "simulated_cluster": ("SimulatedCluster", "ClientProcess"),
    "history": ("History", "Record"),
    "checkers": ("Terms", "Violation", "judge"),
}


def __getattr__(name: str) -> Any:
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
