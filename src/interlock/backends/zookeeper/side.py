"""The state that the parts of a store share.

An asyncio store and its blocking one are two sides of one client: each has a runtime of its own, and they
share the session and what is known of the claims.
"""

from __future__ import annotations

from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.zookeeper.own_claims import Ledger
from interlock.backends.zookeeper.queue_reads import QueueReads
from interlock.backends.zookeeper.requester import Requester
from interlock.backends.zookeeper.send_slots import SendSlots
from interlock.backends.zookeeper.session_client import SessionClient
from interlock.backends.zookeeper.tombstones import Tombstones
from interlock.model import Gone


class Side:
    """The state of one side of a client."""

    def __init__(
        self, session_client: SessionClient, runtime: WaitRuntime, ledger: Ledger | None, other: Side | None
    ) -> None:
        self._session_client = session_client
        self._paths = session_client.paths
        self._runtime = runtime
        self._requester = Requester(session_client, runtime)
        self._tombstones = Tombstones(self._requester)
        self._ledger: Ledger = other._ledger if other is not None else ledger or Ledger()
        self._queue_reads: QueueReads = (
            other._queue_reads if other is not None else QueueReads(session_client)
        )
        self._send_slots: SendSlots = other._send_slots if other is not None else SendSlots()
        self._usual = 0.0  # a ttl that nobody has chosen: it is cut to what the session has

    def _evicted(self, id: str, gone: tuple[str, float]) -> Gone:
        reason, life = gone
        self._ledger.evict(id, reason, self._runtime.now(), life)
        return Gone(True, reason)
