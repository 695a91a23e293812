"""One side of a client: its tasks, its threads or its keeper, each with a transport of its own.

They share the sessions.
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.backends.etcd.algorithm.sessions import Sessions
from interlock.backends.etcd.transport.cluster import ClusterTransport
from interlock.backends.etcd.transport.connection import MemberConnection
from interlock.backends.etcd.wire.keys import Keys
from interlock.backends.etcd.wire.messages import RANGE, TXN, Method, RangeAnswer, TxnAnswer
from interlock.backends.kit.connect_pace import SPARE_S, does_not_wait
from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.runtime import StoreRuntime

RECONNECT_S = 0.25  # seconds by which connecting again may make a call late,
MAX_SLOWDOWN = 2.0  # or so many times what the connection before it took, if that is more


class Side:
    """Sends the requests of the algorithms to the cluster."""

    def __init__(
        self, transport: ClusterTransport, runtime: StoreRuntime, keys: Keys, sessions: Sessions
    ) -> None:
        self.transport = transport
        self.runtime = runtime
        self.keys = keys
        self.sessions = sessions
        self.label = transport.address.label

    def key_of(self, resource: str, id: str) -> bytes:
        """The key of a claim of this client."""
        own = self.sessions.own(id, resource)
        return self.keys.claim(resource, id) if own is None else own.key

    async def begin(self, timeout: float, *, connecting_is_extra: bool = True) -> Deadline:
        """The deadline of a call with this timeout.

        It connects first. If `connecting_is_extra`, the call may take as much longer as that takes, within
        bounds.
        """
        extra = self._to_connect(timeout) if connecting_is_extra and not self.transport.for_keeper else 0.0
        deadline = Deadline(self.runtime.now, timeout, extra)
        if self.transport.ready_connection() is None:
            _, connecting = await self.transport.connection(timeout + extra)
            deadline.connected(connecting)
        return deadline

    def _to_connect(self, timeout: float) -> float:
        """Seconds that connecting may take beyond the timeout of a call.

        The first connection of a client has all of `connect_timeout`: nobody knows yet how far the server is.
        From then on, a server that hangs must not keep each caller for so long. A caller that does not wait
        for the lock still waits for the network.
        """
        longest, took = self.transport.address.connect_timeout, self.transport.took
        if not took:
            return longest
        return min(
            longest, took + SPARE_S if does_not_wait(timeout) else max(RECONNECT_S, MAX_SLOWDOWN * took)
        )

    def give_time_at_once(self, deadline: Deadline, began: float, timeout: float) -> None:
        """Let the first request of a caller that does not wait for the lock wait for the network.

        A server that stalls for a moment has what connecting took, and a second, all in all since `began`.
        """
        if does_not_wait(timeout):
            longest = self.transport.address.connect_timeout
            deadline.at = max(deadline.at, began + min(longest, self.transport.took + SPARE_S))
            deadline.connecting = 0.0  # connecting again is a part of it

    def within(self, timeout: float) -> Deadline:
        """The deadline of a call that has connected, or that has no extra time for that."""
        return Deadline(self.runtime.now, timeout)

    async def connection(self, timeout: float) -> MemberConnection:
        return (await self.transport.connection(timeout))[0]

    async def call(
        self,
        method: Method,
        body: bytes,
        deadline: Deadline,
        *,
        again: bool = True,
        low_priority: bool = False,
    ) -> bytes:
        return await self.transport.call(method, body, deadline, again=again, low_priority=low_priority)

    async def range(self, request: bytes, deadline: Deadline) -> RangeAnswer:
        return RangeAnswer.of(await self.call(RANGE, request, deadline))

    async def txn(
        self,
        request: bytes,
        deadline: Deadline,
        *,
        again: bool = True,
        low_priority: bool = False,
        unsure: Callable[[], object] | None = None,
    ) -> TxnAnswer:
        answer = await self.transport.call(
            TXN, request, deadline, again=again, low_priority=low_priority, unsure=unsure
        )
        return TxnAnswer(answer)
