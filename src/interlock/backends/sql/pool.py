"""A bounded pool of our own connections, for threads and for tasks alike.

A slot in the pool is a link object held by weak reference, which exists before it is connected. However a
thread or task ends that uses one, even by an exception thrown into it between two lines, the slot is free
once nobody holds the object. A link of asyncio belongs to the event loop that made it.

This is not one of `kit.slots`, whose waiters are threads that block on a lock. Here tasks wait as well, so a
waiter waits by its runtime; an idle link serves only its own loop; and urgent callers come first.
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
from interlock.backends.sql.dialect import Link
from interlock.backends.sql.user_connections import NewLogin
from interlock.errors import ClientClosed, StoreUnfit, Unreached
from interlock.store import IO_TIMEOUT

AGAIN = 0.05  # seconds after which a caller that waits for a slot looks for one that became free unannounced
IDLE = 30.0  # seconds after which a connection that nobody needed is closed, unless it is the last one


class _Idle(NamedTuple):
    link: Link
    loop: Any
    since: float


class _Turn:
    """Whose turn it is to take a connection.

    Held by its waiter alone: one that is gone without a word is passed over.
    """

    __slots__ = ("__weakref__", "signal")

    def __init__(self, signal: Signal) -> None:
        self.signal = signal


class LinkPool:
    """Lends connections, the last used first, and makes at most `most` of them. See `dialect.Source`.

    `loop` returns the event loop that a link belongs to, and None for threads.
    """

    def __init__(
        self,
        make: Callable[[], Link],
        runtime: WaitRuntime,
        *,
        place: str,
        most: int,
        connect_timeout: float,
        loop: Callable[[], Any] = lambda: None,
        new_login: NewLogin | None = None,
    ) -> None:
        self._make = make
        self._runtime = runtime
        self._place = place
        self._most = most
        self.pace = ConnectPace(connect_timeout)
        self._loop = loop
        self._new_login = new_login
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._idle: list[_Idle] = []
        self._links: WeakSet[Link] = WeakSet()  # including those in use
        self._urgent: deque[ref[_Turn]] = deque()  # releases, mostly: what everybody else waits for
        self._ordinary: deque[ref[_Turn]] = deque()
        self._mutex = native.mutex()
        self._returned_at = 0.0  # when a link was last given back after an answer

    def inside(self) -> bool:
        return self._mutex._is_owned()

    def after_fork(self) -> None:
        for link in list(self._links):
            link.abandon()
        self._start()

    # ---- borrowing -------------------------------------------------------------------

    async def borrow(self, until: float, connecting_is_extra: bool) -> tuple[Link, bool]:
        asked = self._runtime.now()
        counts, connecting = self.pace.counts(until - asked), self.pace.within(until - asked)
        link: Link | None = None
        new = False
        # Those who came earlier come first, or a few threads could keep all links to themselves.
        if not (connecting_is_extra and self._ordinary):
            link, new = self._next()
        if link is None:
            link, new = await self._wait_for_slot(until, connecting_is_extra)
        if not new:
            return link, False
        began = self._runtime.now()
        timeout = until - began
        if connecting_is_extra:
            timeout = left_after(connecting, began - asked) if counts else connecting
        try:
            await self._open(link, began + max(0.001, timeout))
        except BaseException:
            await self.give_back(link, False)
            raise
        self.pace.reached(self._runtime.now() - began)
        return link, True

    async def _open(self, link: Link, until: float) -> None:
        """Connect; once more if we were refused, and the user's pool shows how it is let in."""
        try:
            await link.open(until - self._runtime.now())
        except StoreUnfit:
            left = until - self._runtime.now()
            if self._new_login is None or not await self._new_login.look(self._runtime, left):
                raise
            await link.open(max(0.001, until - self._runtime.now()))

    def _next(self) -> tuple[Link | None, bool]:
        """An idle link, or an unconnected one if there may be more, and whether it is unconnected; None if
        all are in use.
        """
        loop = self._loop()
        with self._mutex:
            if self._closed:
                raise ClientClosed(f"{self._place} was closed")
            for at in range(len(self._idle) - 1, -1, -1):
                if self._idle[at].loop is loop:
                    link = self._idle.pop(at).link
                    if not link.stale():
                        return link, False
                    self._forget(link)
            if len(self._links) >= self._most:
                self._drop_foreign(loop)
            if len(self._links) >= self._most:
                return None, False
            link = self._make()
            self._links.add(link)
            return link, True

    def _drop_foreign(self, loop: Any) -> None:
        """Close an idle link of another event loop, to make room. Called under the mutex."""
        for at, idle in enumerate(self._idle):
            if idle.loop is not loop:
                del self._idle[at]
                self._forget(idle.link)
                return

    def _forget(self, link: Link) -> None:
        self._links.discard(link)
        link.discard()

    async def _wait_for_slot(self, until: float, connecting_is_extra: bool) -> tuple[Link, bool]:
        """Wait for a free slot, first come, first served; but urgent callers come before all ordinary ones.

        Urgent callers are the keeper and releases. An ordinary caller that gives its step the usual time
        waits for as long as the queue moves: hundreds of tasks that come at once are not told that the server
        cannot be reached.
        """
        now = self._runtime.now()
        moving = self.pace.longest if connecting_is_extra and until - now > 0.9 * IO_TIMEOUT else 0.0
        if connecting_is_extra:
            until = max(until, now + self.pace.within(until - now))
        turn, line = _Turn(self._runtime.signal()), self._ordinary if connecting_is_extra else self._urgent
        line.append(ref(turn))
        try:
            while True:
                if turn.signal.is_set() or not connecting_is_extra or self._is_first(turn):
                    link, new = self._next()  # once more: it may have become free in between
                    if link is not None:
                        return link, new
                left = max(until, self._returned_at + moving) - self._runtime.now()
                if left <= 0:
                    raise Unreached(
                        f"{self._place}: all {self._most} connections of this client are in use; give it "
                        "more with ?connections="
                    )
                if turn.signal.is_set():
                    turn = _Turn(self._runtime.signal())
                    line.appendleft(ref(turn))
                await self._runtime.wait(turn.signal, min(left, AGAIN * (1 + len(line))))
        finally:
            if turn.signal.is_set():
                self._wake_next()  # in case that a link is free which woke this one, which has not taken it

    def _is_first(self, turn: _Turn) -> bool:
        """Whether no ordinary caller came earlier, as far as can be told while others come and go."""
        try:
            first = self._ordinary[0]()
        except IndexError:
            return True
        return first is turn or first is None

    def _wake_next(self) -> None:
        while (line := self._urgent or self._ordinary) and self._idle_or_room():
            try:
                turn = line.popleft()()
            except IndexError:
                return
            if turn is not None:
                turn.signal.set()
                return

    def _idle_or_room(self) -> bool:
        return bool(self._idle) or len(self._links) < self._most

    # ---- giving back -------------------------------------------------------------------

    async def give_back(self, link: Link, sound: bool) -> None:
        now = self._runtime.now()
        with self._mutex:
            if sound and not self._closed:
                self._returned_at = now
                self._idle.append(_Idle(link, self._loop(), now))
                if len(self._idle) > 1:
                    self._close_old(now)
            else:
                self._forget(link)
        if self._urgent or self._ordinary:
            self._wake_next()

    def _close_old(self, now: float) -> None:
        """Close links that nobody has needed for a while, and those of closed event loops.

        Called under the mutex.
        """
        if self._idle[0].since < now - IDLE:
            self._forget(self._idle.pop(0).link)
        for idle in [idle for idle in self._idle if idle.loop is not None and idle.loop.is_closed()]:
            self._idle.remove(idle)
            self._forget(idle.link)

    async def warm(self, timeout: float) -> None:
        if not self._links:
            link, _ = await self.borrow(self._runtime.now() + timeout, False)
            await self.give_back(link, True)

    def drain(self) -> None:
        with self._mutex:
            idle, self._idle = self._idle, []
            for one in idle:
                self._forget(one.link)

    async def close(self) -> None:
        self._closed = True
        self.drain()
        for reference in [*self._urgent, *self._ordinary]:
            if (turn := reference()) is not None:
                turn.signal.set()
