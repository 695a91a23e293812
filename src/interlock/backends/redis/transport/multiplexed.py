"""The asyncio leaf: one connection for all tasks, replies matched in order.

All requests of one turn of the loop leave in one send. One timer looks after all deadlines: a timer for each
request would cost more than the request. A connection that kept anybody waiting too long takes no new requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Any

from interlock.backends.redis.address import Route, round_trip
from interlock.backends.redis.errors import silent, unreachable
from interlock.backends.redis.transport.keeper_connection import Reserve
from interlock.backends.redis.transport.pipelined import Stream
from interlock.backends.redis.transport.pool import FARTHEST
from interlock.errors import ClientClosed, InterlockError, StoreUnavailable, Unreached

Waiting = tuple["asyncio.Future[Any]", float, float]  # the reply, until when, how long that is


class Link(Stream):
    """A stream of requests, each with a deadline of its own."""

    def __init__(self, place: str, loop: asyncio.AbstractEventLoop, connection: Any) -> None:
        super().__init__(place, loop, connection)
        self._pending: deque[Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = 0.0
        # Seconds that a request must be given: a server that is far away answers no sooner.
        self._least = min(FARTHEST, 2 * round_trip(connection))

    def ask(self, request: bytes, timeout: float) -> asyncio.Future[Any]:
        loop = self.loop
        if timeout < self._least:
            timeout = self._least
        self._send(request, not self._pending)
        reply: asyncio.Future[Any] = loop.create_future()
        until = loop.time() + timeout
        self._pending.append((reply, until, timeout))
        if self._timer is None or until < self._looks_at:
            self._look_at(until)
        return reply

    async def ask_many(self, request: bytes, timeout: float, replies: int) -> list[Any]:
        """The replies to a request that holds several commands."""
        waiting = [self.ask(request if n == 0 else b"", timeout) for n in range(replies)]
        return list(await asyncio.gather(*waiting))

    def _take(self, reply: Any) -> None:
        waiting = self._pending.popleft()[0]
        if not waiting.done():  # cancelled or late: its reply is nobody's
            waiting.set_result(reply)

    # ---- deadlines ------------------------------------------------------------

    def _look_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = when
        self._timer = self.loop.call_at(when, self._look)

    def _look(self) -> None:
        now, first = self.loop.time(), float("inf")
        for reply, until, timeout in self._pending:
            if reply.done():
                continue
            if until <= now:
                self.usable = False  # it answers in order: whoever comes now would wait behind this
                reply.set_exception(silent(self.place, timeout))
            else:
                first = min(first, until)
        self._timer = None
        if first < float("inf"):
            self._look_at(first)
        elif not self.usable:
            self.end(silent(self.place, 0.0))

    def _tell_all(self, error: InterlockError) -> bool:
        asked = bool(self._pending)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            reply = self._pending.popleft()[0]
            if not reply.done():
                reply.set_exception(error)
        return asked


class Links:
    """The connection to one server; made when first needed, and again when it was lost.

    With a `reserve` the keeper's own connection is made beside the first one, and without it nothing is asked.
    `hurried` is for the keeper itself: there, connecting is a part of the time that a request has.
    """

    def __init__(self, address: Route, *, reserve: Reserve | None = None, hurried: bool = False) -> None:
        self.address = address
        self._reserve = reserve
        self._accompanied = False
        self._hurried = hurried
        self._link: Link | None = None
        self._former: list[Link] = []  # those that did not answer in time, and on which others may still wait
        self._connecting: asyncio.Task[Link] | None = None
        self._closed = False

    def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Awaitable[Any]:
        """The reply, to be awaited. No coroutine where the connection stands: at 64 tasks those are felt."""
        link = self._link
        if link is not None and link.usable and replies == 1 and link.loop is asyncio.get_running_loop():
            return link.ask(request, timeout)
        return self._ask_slowly(request, timeout, replies, again and not self._hurried)

    async def _ask_slowly(self, request: bytes, timeout: float, replies: int, patient: bool) -> Any:
        """After connecting: if it is `patient`, in the time that has for itself."""
        loop = asyncio.get_running_loop()
        link = self._link
        if link is None or not link.usable or link.loop is not loop:
            began = loop.time()
            link = await self._connected(loop, self.address.connect_timeout if patient else timeout)
            if not patient:
                timeout = max(0.001, timeout - (loop.time() - began))
        if replies == 1:
            return await link.ask(request, timeout)
        return await link.ask_many(request, timeout, replies)

    async def _connected(self, loop: asyncio.AbstractEventLoop, timeout: float) -> Link:
        """One attempt at a time, for everybody; whoever stops waiting does not end it for the others."""
        if self._closed:
            raise ClientClosed("this client was closed")
        task = self._connecting
        if task is None or task.done() or task.get_loop() is not loop:
            task = self._connecting = loop.create_task(self._connect(loop))
            task.add_done_callback(_seen)
        done, _ = await asyncio.wait([task], timeout=timeout)
        if not done:
            raise Unreached(str(silent(self.address.place, timeout)))
        if task.cancelled():  # by `close`: that is no cancellation of whoever waits here
            raise ClientClosed("this client was closed")
        try:
            return task.result()
        except StoreUnavailable as error:
            raise Unreached(str(error)) from None

    async def warm(self, route: Route, timeout: float) -> None:
        link, loop = self._link, asyncio.get_running_loop()
        if link is None or not link.usable or link.loop is not loop:
            await self._connected(loop, timeout)

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> Link:
        timeout = self.address.connect_timeout
        if self._reserve is None or self._accompanied or not self._reserve.wanted:
            connection = await self.address.connect_async(timeout)
        else:
            connection = await self._connect_both(self._reserve, timeout)
            self._accompanied = True
        link = Link(self.address.place, loop, connection)
        if self._closed:
            link.end(unreachable(self.address.place, "this client was closed"))
        if self._link is not None:
            self._former = [former for former in (*self._former, self._link) if not former.ended]
        self._link = link
        return link

    async def _connect_both(self, reserve: Reserve, timeout: float) -> Any:
        """A connection, once the keeper has its own."""
        companion = asyncio.ensure_future(reserve.warm_async(self.address, timeout))
        companion.add_done_callback(_seen)
        connection = None
        try:
            connection = await self.address.connect_async(timeout)
            await companion
        except BaseException:
            companion.cancel()
            if connection is not None:
                connection._writer.transport.abort()
                connection._writer = connection._reader = None
            raise
        return connection

    def inside(self) -> bool:
        return False  # a loop does one thing at a time

    def after_fork(self) -> None:
        """The parent's loop and sockets are not ours: kept, unused, so that nothing closes them politely."""
        self._accompanied = False
        _parents.append((self._link, self._connecting))
        self._link = self._connecting = None
        _parents.extend(self._former)
        self._former = []

    async def close(self) -> None:
        self._closed = True
        links, self._link, self._former = (*self._former, self._link), None, []
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
        for link in links:
            if link is not None and not link.ended and not link.loop.is_closed():
                link.end(unreachable(self.address.place, "this client was closed"))
                await asyncio.sleep(0)  # let the transport close its socket


_parents: list[object] = []


def _seen(task: asyncio.Task[Any]) -> None:
    """Everybody who waited was told; the loop need not complain that nobody was left."""
    if not task.cancelled():
        task.exception()
