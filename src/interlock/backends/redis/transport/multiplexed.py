"""The asyncio transport: one connection for all tasks, with replies matched in order.

All requests of one turn of the loop leave in one send. One timer serves all deadlines, because a timer for
each request would cost more than the request. A connection on which a request timed out takes no new
requests.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from interlock.backends.kit.connect_pace import left_after
from interlock.backends.kit.tasks import retrieve
from interlock.backends.redis.address import Route, round_trip
from interlock.backends.redis.errors import timeout_error, unreachable
from interlock.backends.redis.transport.keeper_connection import KeeperConnection
from interlock.backends.redis.transport.pipelined import PipelinedConnection
from interlock.backends.redis.transport.pool import MAX_ADDED_ROUND_TRIP_S
from interlock.errors import ClientClosed, InterlockError, StoreUnavailable, Unreached

Pending = tuple["asyncio.Future[Any]", float, float]  # the reply, its deadline, and the timeout behind it


class MultiplexedConnection(PipelinedConnection):
    """A connection that many tasks share; each request has a deadline of its own."""

    def __init__(self, label: str, loop: asyncio.AbstractEventLoop, connection: Any) -> None:
        super().__init__(label, loop, connection)
        self._pending: deque[Pending] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._sweeps_at = 0.0
        # The shortest timeout of a request in seconds: a distant server cannot answer sooner.
        self._least = min(MAX_ADDED_ROUND_TRIP_S, 2 * round_trip(connection))

    def ask(self, request: bytes, timeout: float) -> asyncio.Future[Any]:
        loop, pending = self.loop, self._pending
        if timeout < self._least:
            timeout = self._least
        self._send(request, not pending and not self.inline_resume.ready)
        reply: asyncio.Future[Any] = Future(
            loop=loop
        )  # not loop.create_future(): with 64 tasks its frame is felt
        until = monotonic() + timeout
        pending.append((reply, until, timeout))
        if self._timer is None or until < self._sweeps_at:
            self._sweep_at(until)
        return reply

    async def ask_many(self, request: bytes, timeout: float, replies: int) -> list[Any]:
        """The replies to a request that holds several commands."""
        waiting = [self.ask(request if n == 0 else b"", timeout) for n in range(replies)]
        return list(await asyncio.gather(*waiting))

    def _on_replies(self, reply: Any, gets: Callable[[], Any]) -> None:
        popleft, give = self._pending.popleft, self.inline_resume.add
        while reply is not False:
            waiting = popleft()[0]
            if not waiting.done():  # otherwise it was cancelled or timed out, and nobody wants the reply
                give(waiting, reply)
            reply = gets()

    # ---- deadlines ------------------------------------------------------------

    def _sweep_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._sweeps_at = when
        self._timer = self.loop.call_later(when - monotonic(), self._sweep)

    def _sweep(self) -> None:
        now, first = monotonic(), float("inf")
        for reply, until, timeout in self._pending:
            if reply.done():
                continue
            if until <= now:
                self.usable = False  # replies come in order: a new request would wait behind this one
                reply.set_exception(timeout_error(self.label, timeout))
            else:
                first = min(first, until)
        self._timer = None
        if first < float("inf"):
            self._sweep_at(first)
        elif not self.usable:
            self.end(timeout_error(self.label, 0.0))

    def _fail_all(self, error: InterlockError) -> bool:
        asked = bool(self._pending)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            reply = self._pending.popleft()[0]
            if not reply.done():
                reply.set_exception(error)
        return asked


class MultiplexedTransport:
    """The connection to one server; made when first needed, and again when it was lost.

    With a `keeper_connection`, the keeper's own connection is made together with the first one, and no
    request is sent before both exist. A transport `for_keeper` is that connection: there, connecting counts
    against the request's own timeout.
    """

    def __init__(
        self, address: Route, *, keeper_connection: KeeperConnection | None = None, for_keeper: bool = False
    ) -> None:
        self.address = address
        self._keeper_connection = keeper_connection
        self._accompanied = False
        self._for_keeper = for_keeper
        self._connection: MultiplexedConnection | None = None
        # Connections that did not answer in time; some callers may still be waiting on them.
        self._replaced: list[MultiplexedConnection] = []
        self._connecting: asyncio.Task[MultiplexedConnection] | None = None
        self._closed = False

    def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Awaitable[Any]:
        """The reply, to be awaited.

        It is a bare future if there is a connection: with 64 tasks a coroutine is felt.
        """
        connection = self._connection
        if (
            connection is not None
            and connection.usable
            and replies == 1
            and connection.loop is get_running_loop()
        ):
            return connection.ask(request, timeout)
        return self._ask_slowly(request, timeout, replies, again and not self._for_keeper)

    async def _ask_slowly(
        self, request: bytes, timeout: float, replies: int, connecting_is_extra: bool
    ) -> Any:
        """The same after connecting, which has a time of its own if `connecting_is_extra`."""
        loop = asyncio.get_running_loop()
        connection = self._connection
        if connection is None or not connection.usable or connection.loop is not loop:
            began, pace = loop.time(), self.address.pace
            counts = pace.counts(timeout)
            connection = await self._connected(loop, pace.within(timeout) if connecting_is_extra else timeout)
            if not connecting_is_extra:
                timeout = max(0.001, timeout - (loop.time() - began))
            elif counts:
                timeout = left_after(timeout, loop.time() - began)
        if replies == 1:
            return await connection.ask(request, timeout)
        return await connection.ask_many(request, timeout, replies)

    async def _connected(self, loop: asyncio.AbstractEventLoop, timeout: float) -> MultiplexedConnection:
        """Connect once for all callers; a caller that stops waiting does not end the attempt for the
        others.
        """
        if self._closed:
            raise ClientClosed("this client was closed")
        task = self._connecting
        if task is None or task.done() or task.get_loop() is not loop:
            task = self._connecting = loop.create_task(self._connect(loop))
            task.add_done_callback(retrieve)
        done, _ = await asyncio.wait([task], timeout=timeout)
        if not done:
            raise Unreached(str(timeout_error(self.address.label, timeout)))
        if task.cancelled():  # by `close`, which does not cancel the caller
            raise ClientClosed("this client was closed")
        try:
            return task.result()
        except StoreUnavailable as error:
            raise Unreached(str(error)) from None

    async def warm(self, route: Route, timeout: float) -> None:
        connection, loop = self._connection, asyncio.get_running_loop()
        if connection is None or not connection.usable or connection.loop is not loop:
            await self._connected(loop, timeout)

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> MultiplexedConnection:
        timeout, began = self.address.connect_timeout, loop.time()
        if self._keeper_connection is None or self._accompanied or not self._keeper_connection.wanted:
            opened = await self.address.connect_async(timeout)
        else:
            opened = await self._connect_both(self._keeper_connection, timeout)
            self._accompanied = True
        if not self._for_keeper:
            self.address.pace.reached(loop.time() - began)
        connection = MultiplexedConnection(self.address.label, loop, opened)
        if self._closed:
            connection.end(unreachable(self.address.label, "this client was closed"))
        if self._connection is not None:
            self._replaced = [
                replaced for replaced in (*self._replaced, self._connection) if not replaced.ended
            ]
        self._connection = connection
        return connection

    async def _connect_both(self, keeper_connection: KeeperConnection, timeout: float) -> Any:
        """A connection, returned once the keeper has its own."""
        companion = asyncio.ensure_future(keeper_connection.warm_async(self.address, timeout))
        companion.add_done_callback(retrieve)
        opened = None
        try:
            opened = await self.address.connect_async(timeout)
            await companion
        except BaseException:
            companion.cancel()
            if opened is not None:
                opened._writer.transport.abort()
                opened._writer = opened._reader = None
            raise
        return opened

    # False, from a function without a frame, since every release asks: all changes happen on the loop's own
    # thread.
    inside = staticmethod(bool)

    def after_fork(self) -> None:
        """Keep the parent's loop and sockets unused, so that nothing says goodbye to the server on its
        behalf.
        """
        self._accompanied = False
        _parents.append((self._connection, self._connecting))
        self._connection = self._connecting = None
        _parents.extend(self._replaced)
        self._replaced = []

    async def close(self) -> None:
        self._closed = True
        connections, self._connection, self._replaced = (*self._replaced, self._connection), None, []
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
        for connection in connections:
            if connection is not None and not connection.ended and not connection.loop.is_closed():
                connection.end(unreachable(self.address.label, "this client was closed"))
                await asyncio.sleep(0)  # let the transport close its socket


_parents: list[object] = []
