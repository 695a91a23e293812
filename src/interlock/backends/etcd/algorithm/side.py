"""One side of a client: its tasks, its threads or its keeper, each with a transport of its own. They share the sessions."""

from __future__ import annotations

from collections.abc import Callable

from interlock.backends.etcd.algorithm.sessions import Sessions
from interlock.backends.etcd.transport.calltime import CallTime
from interlock.backends.etcd.transport.cluster import ClusterTransport
from interlock.backends.etcd.transport.line import Line
from interlock.backends.etcd.wire.keys import Keys
from interlock.backends.etcd.wire.messages import RANGE, TXN, Method, RangeAnswer, TxnAnswer
from interlock.backends.kit.runtime import WaitRuntime

AGAIN = 0.25  # seconds that a call has at least for connecting again,
AS_BEFORE = 4.0  # and how much longer than the connection before it may take


class Side:
    """What an algorithm needs to ask the cluster."""

    def __init__(
        self, transport: ClusterTransport, runtime: WaitRuntime, keys: Keys, sessions: Sessions
    ) -> None:
        self.transport = transport
        self.runtime = runtime
        self.keys = keys
        self.sessions = sessions
        self.place = transport.address.place

    def key_of(self, resource: str, id: str) -> bytes:
        """The key of a claim of this client."""
        own = self.sessions.own(id, resource)
        return self.keys.claim(resource, id) if own is None else own.key

    async def begin(self, timeout: float, *, patient: bool = True) -> CallTime:
        """The deadline of a call with this timeout. It connects first; that has a time of its own for `patient` calls.

        If there is a connection, and it is lost, connecting again has a few times what it took before: a caller that was connected
        does not expect to wait for `connect_timeout`.
        """
        transport = self.transport
        extra = transport.address.connect_timeout if patient and not transport.hurried else 0.0
        if transport.ready_line() is not None:
            return CallTime(self.runtime.now, timeout, min(extra, max(AGAIN, AS_BEFORE * transport.took)))
        deadline = CallTime(self.runtime.now, timeout, extra)
        _, connecting = await transport.line(timeout + extra)
        deadline.connected(connecting)
        return deadline

    def within(self, timeout: float) -> CallTime:
        """The deadline of a call that has connected, or that has no extra time for that."""
        return CallTime(self.runtime.now, timeout)

    async def line(self, timeout: float) -> Line:
        return (await self.transport.line(timeout))[0]

    async def call(
        self, method: Method, body: bytes, deadline: CallTime, *, again: bool = True, patient: bool = False
    ) -> bytes:
        return await self.transport.call(method, body, deadline, again=again, patient=patient)

    async def range(self, request: bytes, deadline: CallTime) -> RangeAnswer:
        return RangeAnswer.of(await self.call(RANGE, request, deadline))

    async def txn(
        self,
        request: bytes,
        deadline: CallTime,
        *,
        again: bool = True,
        patient: bool = False,
        unsure: Callable[[], object] | None = None,
    ) -> TxnAnswer:
        answer = await self.transport.call(
            TXN, request, deadline, again=again, patient=patient, unsure=unsure
        )
        return TxnAnswer(answer)
