"""Locks on a majority of independent Redis servers: Redlock, with fencing tokens.

A request passes from top to bottom:

    open, store     from a URL to the store port
    algorithm/      claims, renewals, operators, recovery, and what they know of the nodes: membership, clock
    quorum          which nodes a request goes to, whose replies it waits for, and for how long
    transport/      the way to the nodes: blocking, asyncio (interlock.testing has a simulated one)
    wire/           the requests as records and as bytes, and the Lua scripts that answer them on each node
"""

from interlock.backends.redlock.open import open_nodes, open_url
from interlock.backends.redlock.store import TRAITS, RedlockStore

__all__ = ["TRAITS", "RedlockStore", "open_nodes", "open_url"]
