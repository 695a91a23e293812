"""The conformance suite: what a store must do, as tests that its author runs.

Every sentence of `interlock.store` is a test here, and so is what users may rely on, of every synchronizer
through both faces. A test module of three lines runs all of it on your store:

    from interlock.testing.conformance import StoreFactory, suites

    globals().update(suites(StoreFactory(lambda: "mystore://localhost/" + uuid4().hex, open=open_my_store)))

`fresh`, the first argument, names a place where nothing stands yet; it is called once a test. `open(place,
runtime, asynchronous)` opens a store there: blocking, or for asyncio. What `suites` returns are plain classes
with methods named `test_...`, for pytest or any runner that collects such; nothing beyond the standard
library is imported. For readable assertions, say in your conftest.py

    pytest.register_assert_rewrite("interlock.testing.conformance")

A store lacks an ability? It says so in its `Traits`, and the tests of it are skipped with that reason. Start
with the suite `Claims` and work downwards: each builds on those before. `Agreement` compares your store with
the reference (`interlock.backends.memory`) over seeded sequences and prints the seed and step at which they
part.
"""

from __future__ import annotations

from interlock.testing.conformance.admission import Shares
from interlock.testing.conformance.agreement import Agreement
from interlock.testing.conformance.barriers import Barriers, Conditions
from interlock.testing.conformance.claims import Claims
from interlock.testing.conformance.closing import Closing
from interlock.testing.conformance.elections import Elections
from interlock.testing.conformance.face import Face, SyncFace, ask, each, first, got, refused, until, within
from interlock.testing.conformance.factory import StoreFactory
from interlock.testing.conformance.inspection import Sight
from interlock.testing.conformance.leases import Leases
from interlock.testing.conformance.multilocks import MultiLocks
from interlock.testing.conformance.mutexes import MUTEXES
from interlock.testing.conformance.once import Once
from interlock.testing.conformance.operators import Operators
from interlock.testing.conformance.reentry import RLocks, RWLocks
from interlock.testing.conformance.register_based import Events, Guards, Latches, OptimisticLocks
from interlock.testing.conformance.registers import Registers
from interlock.testing.conformance.renewals import Renewals
from interlock.testing.conformance.semaphores import Semaphores
from interlock.testing.conformance.store import StoreSuite
from interlock.testing.conformance.suite import Suite, faces
from interlock.testing.conformance.wakeups import Wakeups

__all__ = [
    "Face",
    "StoreFactory",
    "StoreSuite",
    "Suite",
    "SyncFace",
    "ask",
    "each",
    "faces",
    "first",
    "got",
    "refused",
    "suites",
    "until",
    "within",
]

STORE_SUITES: list[type[Suite]] = [Claims, Shares, Renewals, Wakeups, Registers, Operators, Agreement]
CLIENT_SUITES: list[type[Suite]] = [
    *MUTEXES,
    Leases,
    Once,
    RLocks,
    RWLocks,
    Semaphores,
    MultiLocks,
    Elections,
    OptimisticLocks,
    Events,
    Latches,
    Barriers,
    Conditions,
    Guards,
    Closing,
    Sight,
]


def suites(stores: StoreFactory, only: list[type[Suite]] | None = None) -> dict[str, type[Suite]]:
    """Test classes for one kind of store: every suite under both faces, by a name that starts with `Test`."""
    made: dict[str, type[Suite]] = {}
    for suite in [*STORE_SUITES, *CLIENT_SUITES] if only is None else only:
        for face in faces():
            name = f"Test{suite.__name__}{face.name.capitalize()}"
            made[name] = type(name, (suite,), {"stores": stores, "face": face, "__doc__": suite.__doc__})
    return made
