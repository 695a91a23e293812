"""Locks on a Redis server: one script for each call, and grants pushed to the waiter.

Follow one request from top to bottom: `store` implements the port, `wire` turns claims into bytes,
`transport` carries them to the server, and the `.lua` files run there. `pubsub` tells waiters of grants.
`address` opens connections, with `connection_attempt` for host names and `tls` for certificates; `errors`
turns an error reply into one sentence that says what to do; `scan` lists resources; `replicated` waits for
replicas. `open` and `assembly` put a store together.

`sentinel` and `cluster` hold what only those deployments need. Opening `redis://` loads neither.
"""

from interlock.backends.redis.open import open_address, open_client, open_url
from interlock.backends.redis.store import TRAITS, RedisStore

__all__ = ["TRAITS", "RedisStore", "open_address", "open_client", "open_url"]
