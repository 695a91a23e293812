"""Locks on a Redis server: one script a call, grants pushed to whoever waits.

One request, from top to bottom: `store` (the port) -> `packing` (nouns to bytes) over `keys` and `scripts` ->
`pool` (blocking) or `link` (asyncio), the leaves -> the `.lua` files, on the server. Beside it: `listener` hears of
grants for the `ears` of those who wait, `names` lists resources, `address` opens connections (`apart` while a name is looked up, with what TLS needs from
`trust`), `refusal` says what is wrong in one sentence. With Sentinel the way to the server is `sentinel`'s, and `following` stands before the leaves;
`replicated` waits for replicas. With a Cluster `cluster` knows who has which of the `slots`, `shards` stands before
one leaf for each node, and the store is `clustered`; grants come by a `branch` to each master where the nodes can, see `sharded`.
"""

from interlock.backends.redis.open import (
    open_address,
    open_client,
    open_cluster_url,
    open_sentinel_url,
    open_url,
)
from interlock.backends.redis.store import TRAITS, RedisStore

__all__ = [
    "TRAITS",
    "RedisStore",
    "open_address",
    "open_client",
    "open_cluster_url",
    "open_sentinel_url",
    "open_url",
]
