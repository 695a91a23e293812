"""The attacks that a store on a server must survive: its server is frozen and cut off, and its clients are interrupted and closed.

`Repeated`: register writes and evictions whose reply is lost, or whose first copy arrives late.
"""

from __future__ import annotations

from tests.every_store.deployments import DEPLOYMENTS, on

for _each in DEPLOYMENTS:
    globals().update(on(_each, {f"Test{one.__name__}": one for one in _each.attacks}))
