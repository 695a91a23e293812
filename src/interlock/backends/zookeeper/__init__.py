"""Locks on a ZooKeeper ensemble: a claim is an ephemeral, sequential node of its client's session.

`store` implements the port: its calls are in `claims`, `releases`, `waits`, `renewals`, `operators` and
`registers`, and `side` has the state that these share. `paths` says which node a name has, `requests` what is
sent, `requester` how a caller waits for the answers, and `session_client` is the seam to kazoo, the client
library underneath. `deadline_rule` is the most important file: from when the time of a session counts.
"""

from interlock.backends.zookeeper.open import open_client, open_url
from interlock.backends.zookeeper.store import TRAITS, ZooKeeperStore

__all__ = ["TRAITS", "ZooKeeperStore", "open_client", "open_url"]
