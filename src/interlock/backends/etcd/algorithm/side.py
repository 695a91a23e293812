"""One side of a client: its tasks, its threads or its keeper, each with a transport of its own. They share the sessions."""

from __future__ import annotations

import time
from collections.abc import Callable

from interlock.backends.etcd.algorithm.sessions import Sessions
from interlock.backends.etcd.transport.cluster import ClusterTransport
from interlock.backends.etcd.transport.line import Line
from interlock.backends.etcd.wire.keys import Keys
from interlock.backends.etcd.wire.messages import RANGE, TXN, Method, RangeAnswer, TxnAnswer
from interlock.backends.kit.deadline import Deadline
from interlock.backends.kit.runtime import WaitRuntime


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

    async def begin(self, timeout: float, *, patient: bool = True) -> Deadline:
        """The deadline of a call with this timeout. It connects first, which has a time of its own for `patient` calls."""
        _, connecting = await self.line(timeout, patient=patient)
        return Deadline(self.runtime.now, timeout if patient else max(0.001, timeout - connecting))

    async def line(self, timeout: float, *, patient: bool = True) -> tuple[Line, float]:
        patient = patient and not self.transport.hurried
        return await self.transport.line(time.monotonic() + timeout, patient)

    async def call(self, method: Method, body: bytes, deadline: Deadline, *, again: bool = True) -> bytes:
        return await self.transport.call(method, body, deadline.for_request(), again=again)

    async def range(self, request: bytes, deadline: Deadline) -> RangeAnswer:
        return RangeAnswer.of(await self.call(RANGE, request, deadline))

    async def txn(
        self,
        request: bytes,
        deadline: Deadline,
        *,
        again: bool = True,
        unsure: Callable[[], object] | None = None,
    ) -> TxnAnswer:
        timeout = deadline.for_request()
        return TxnAnswer(await self.transport.call(TXN, request, timeout, again=again, unsure=unsure))
