"""Locks on a majority of independent Redis servers: Redlock, with fencing tokens.

One request, from top to bottom: `store` (the port) -> `claiming`, `renewing`, `looking` (the algorithm, once) over
`quorum` and `membership` (whom to wait for) -> a panel, the leaf: `lanes` (blocking), `links` (asyncio), or a simulated
one -> the `.lua` files, on each node. `requests` is the seam between the algorithm and the panels
(`interlock.testing.redlock_node` says in Python what the scripts do), `clock` watches the nodes' clocks, `mending` brings nodes back that were away or lost their memory.
"""

from interlock.backends.redlock.open import open_nodes, open_url
from interlock.backends.redlock.store import TRAITS, RedlockStore

__all__ = ["TRAITS", "RedlockStore", "open_nodes", "open_url"]
