"""A bounded pool of our own connections, for threads and for tasks alike.

Each slot of the pool is a connection object, which exists before it is connected, and which the pool holds by
a weak reference. So a slot becomes free when its thread or task drops the object, however that thread or task
ends, even by an exception thrown into it between two lines. A connection of asyncio belongs to the event loop
that made it.

This is not one of `kit.slots`, whose waiters are threads that block on a lock. Here tasks wait as well, so a
waiter waits on its runtime; an idle connection serves only its own loop; and urgent callers come first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakSet, ref

from interlock._core.runtime import Signal
from interlock._support import native
from interlock.backends.kit.connect_pace import ConnectPace, left_after
from interlock.backends.kit.runtime import WaitRuntime
from interlock.backends.sql.dialect import Connection
from interlock.backends.sql.user_connections import NewLogin
from interlock.errors import ClientClosed, StoreUnfit, Unreached
from interlock.store import IO_TIMEOUT

# Seconds after which a caller that waits for a slot looks for one that became free unannounced.
SLOT_RECHECK_S = 0.05
# Seconds after which a connection that nobody needed is closed, unless it is the last one.
IDLE_CLOSE_S = 30.0


class _Idle(NamedTuple):
    connection: Connection
    loop: Any
    since: float


class _Waiter:
    """A caller that waits for a free slot.

    Only the caller holds it strongly, so a caller that is gone without a word is passed over.
    """

    __slots__ = ("__weakref__", "signal")

    def __init__(self, signal: Signal) -> None:
        self.signal = signal


class ConnectionPool:
    """Lends connections, the last used first, and makes at most `most` of them. See `dialect.Source`.

    `loop` returns the event loop that a connection belongs to, and None for threads.
    """

    def __init__(
        self,
        make: Callable[[], Connection],
        runtime: WaitRuntime,
        *,
        label: str,
        most: int,
        connect_timeout: float,
        loop: Callable[[], Any] = lambda: None,
        new_login: NewLogin | None = None,
    ) -> None:
        self._make = make
        self._runtime = runtime
        self._label = label
        self._most = most
        self.pace = ConnectPace(connect_timeout)
        self._loop = loop
        self._new_login = new_login
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._idle: list[_Idle] = []
        self._connections: WeakSet[Connection] = WeakSet()  # including those in use
        self._urgent: deque[ref[_Waiter]] = deque()  # releases, mostly: what everybody else waits for
        self._ordinary: deque[ref[_Waiter]] = deque()
        self._mutex = native.mutex()
        self._returned_at = 0.0  # when a connection was last given back after an answer

    def inside(self) -> bool:
        return self._mutex._is_owned()

    def after_fork(self) -> None:
        for connection in list(self._connections):
            connection.abandon()
        self._start()

    # ---- borrowing -------------------------------------------------------------------

    async def borrow(self, until: float, connecting_is_extra: bool) -> tuple[Connection, bool]:
        asked = self._runtime.now()
        counts, connecting = self.pace.counts(until - asked), self.pace.within(until - asked)
        connection: Connection | None = None
        new = False
        # Those who came earlier come first, or a few threads could keep all connections to themselves.
        if not (connecting_is_extra and self._ordinary):
            connection, new = self._next()
        if connection is None:
            connection, new = await self._wait_for_slot(until, connecting_is_extra)
        if not new:
            return connection, False
        began = self._runtime.now()
        timeout = until - began
        if connecting_is_extra:
            timeout = left_after(connecting, began - asked) if counts else connecting
        try:
            await self._open(connection, began + max(0.001, timeout))
        except BaseException:
            await self.give_back(connection, False)
            raise
        self.pace.reached(self._runtime.now() - began)
        return connection, True

    async def _open(self, connection: Connection, until: float) -> None:
        """Connect; once more if we were refused, and the user's pool shows how it is let in."""
        try:
            await connection.open(until - self._runtime.now())
        except StoreUnfit:
            left = until - self._runtime.now()
            if self._new_login is None or not await self._new_login.look(self._runtime, left):
                raise
            await connection.open(max(0.001, until - self._runtime.now()))

    def _next(self) -> tuple[Connection | None, bool]:
        """An idle connection, or a new one that is not connected yet, and whether it is new; None if all are
        in use.
        """
        loop = self._loop()
        with self._mutex:
            if self._closed:
                raise ClientClosed(f"{self._label} was closed")
            for at in range(len(self._idle) - 1, -1, -1):
                if self._idle[at].loop is loop:
                    connection = self._idle.pop(at).connection
                    if not connection.stale():
                        return connection, False
                    self._forget(connection)
            if len(self._connections) >= self._most:
                self._drop_foreign(loop)
            if len(self._connections) >= self._most:
                return None, False
            connection = self._make()
            self._connections.add(connection)
            return connection, True

    def _drop_foreign(self, loop: Any) -> None:
        """Close an idle connection of another event loop, to make room. Called under the mutex."""
        for at, idle in enumerate(self._idle):
            if idle.loop is not loop:
                del self._idle[at]
                self._forget(idle.connection)
                return

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        connection.discard()

    async def _wait_for_slot(self, until: float, connecting_is_extra: bool) -> tuple[Connection, bool]:
        """Wait for a free slot, first come, first served; but urgent callers come before all ordinary ones.

        Urgent callers are the keeper and releases. An ordinary caller that gives its step the usual time
        waits for as long as the queue moves: hundreds of tasks that come at once are not told that the server
        cannot be reached.
        """
        now = self._runtime.now()
        moving = self.pace.longest if connecting_is_extra and until - now > 0.9 * IO_TIMEOUT else 0.0
        if connecting_is_extra:
            until = max(until, now + self.pace.within(until - now))
        queue = self._ordinary if connecting_is_extra else self._urgent
        waiter = _Waiter(self._runtime.signal())
        queue.append(ref(waiter))
        try:
            while True:
                if waiter.signal.is_set() or not connecting_is_extra or self._is_first(waiter):
                    connection, new = self._next()  # once more: it may have become free in between
                    if connection is not None:
                        return connection, new
                left = max(until, self._returned_at + moving) - self._runtime.now()
                if left <= 0:
                    raise Unreached(
                        f"{self._label}: all {self._most} connections of this client are in use; give it "
                        "more with ?connections="
                    )
                if waiter.signal.is_set():
                    waiter = _Waiter(self._runtime.signal())
                    queue.appendleft(ref(waiter))
                await self._runtime.wait(waiter.signal, min(left, SLOT_RECHECK_S * (1 + len(queue))))
        finally:
            if waiter.signal.is_set():
                self._wake_next()  # this waiter was woken for a free connection that it may not have taken

    def _is_first(self, waiter: _Waiter) -> bool:
        """Whether no ordinary caller came earlier, as far as can be told while others come and go."""
        try:
            first = self._ordinary[0]()
        except IndexError:
            return True
        return first is waiter or first is None

    def _wake_next(self) -> None:
        while (queue := self._urgent or self._ordinary) and self._idle_or_room():
            try:
                waiter = queue.popleft()()
            except IndexError:
                return
            if waiter is not None:
                waiter.signal.set()
                return

    def _idle_or_room(self) -> bool:
        return bool(self._idle) or len(self._connections) < self._most

    # ---- giving back -------------------------------------------------------------------

    async def give_back(self, connection: Connection, sound: bool) -> None:
        now = self._runtime.now()
        with self._mutex:
            if sound and not self._closed:
                self._returned_at = now
                self._idle.append(_Idle(connection, self._loop(), now))
                if len(self._idle) > 1:
                    self._close_old(now)
            else:
                self._forget(connection)
        if self._urgent or self._ordinary:
            self._wake_next()

    def _close_old(self, now: float) -> None:
        """Close connections that nobody has needed for a while, and those of closed event loops.

        Called under the mutex.
        """
        if self._idle[0].since < now - IDLE_CLOSE_S:
            self._forget(self._idle.pop(0).connection)
        for idle in [idle for idle in self._idle if idle.loop is not None and idle.loop.is_closed()]:
            self._idle.remove(idle)
            self._forget(idle.connection)

    async def warm(self, timeout: float) -> None:
        if not self._connections:
            connection, _ = await self.borrow(self._runtime.now() + timeout, False)
            await self.give_back(connection, True)

    def drain(self) -> None:
        with self._mutex:
            idle, self._idle = self._idle, []
            for one in idle:
                self._forget(one.connection)

    async def close(self) -> None:
        self._closed = True
        self.drain()
        for reference in [*self._urgent, *self._ordinary]:
            if (waiter := reference()) is not None:
                waiter.signal.set()
