"""The asyncio panel: one connection to each node for all tasks, replies matched in order.

All requests of one turn of the loop leave in one send, and one timer looks after all rounds: as in the leaf for one
server. A round ends when it has heard enough; what comes later for it is dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from interlock.backends.redis.address import Address
from interlock.backends.redis.errors import refusal, silent, unreachable, unsent
from interlock.backends.redis.transport.pipelined import Stream
from interlock.backends.redis.wire.resp import Failure
from interlock.backends.redlock.transport.interface import nothing
from interlock.backends.redlock.transport.patience import Limits, Patience, Speed
from interlock.backends.redlock.wire.packing import INTRODUCTION, INTRODUCTIONS, Packed, Packing, introduced
from interlock.backends.redlock.wire.requests import Hear, Request, Unread
from interlock.errors import ClientClosed, InterlockError

OWED = 5000  # replies a silent node may owe before its connection is given up


class Asking(Protocol):
    def answered(self, line: Line, reply: Any) -> None: ...


class Line(Stream):
    """One connection to one node."""

    def __init__(self, node: int, address: Address, panel: LinkPanel, connection: Any) -> None:
        super().__init__(address.place, asyncio.get_running_loop(), connection)
        self.node = node
        self._lines = panel._lines  # where it is looked up while it can be used
        self.words: tuple[bytes, bytes, bytes] = (b"", b"", b"")
        self._pending: deque[Asking] = deque()

    def ask(self, asking: Asking, request: bytes) -> None:
        pending = self._pending
        self._send(request, not pending)
        pending.append(asking)
        if len(pending) > OWED:
            self.end(silent(self.place, 0.0))

    def introduce(self, introduction: Introduction) -> None:
        self._send(INTRODUCTION, True)
        self._pending.extend([introduction] * INTRODUCTIONS)

    def _take(self, reply: Any) -> None:
        self._pending.popleft().answered(self, reply)

    def _tell_all(self, error: InterlockError) -> None:
        if self._lines[self.node] is self:
            self._lines[self.node] = None
        while self._pending:
            self._pending.popleft().answered(self, error)


class Introduction:
    """The first words on a connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.replies: list[Any] = []

    def answered(self, line: Line, reply: Any) -> None:
        if self.done.done():
            return
        if isinstance(reply, InterlockError):
            self.done.set_exception(reply)
            return
        self.replies.append(reply)
        if len(self.replies) == INTRODUCTIONS:
            self.done.set_result(None)


class Round:
    """One request to several nodes."""

    __slots__ = (
        *("_hear", "_limits", "_packed", "_panel", "_sent", "until"),
        *("broken", "done", "enough", "heard", "over", "waiting"),
    )

    def __init__(
        self, panel: LinkPanel, packed: Packed, hear: Hear, awaited: Collection[int], limits: Limits
    ) -> None:
        self._panel = panel
        self._packed = packed
        self._hear = hear
        self._sent = sent = panel.now()
        self._limits = limits
        self.until = sent + (limits.longest if limits.least else limits.timeout)
        self.waiting = set(awaited)
        self.heard = 0
        self.broken: list[int] = []
        self.enough = False
        self.over = False  # nobody waits any more
        self.done: asyncio.Future[None] | None = None

    def answered(self, line: Line, reply: Any) -> None:
        kind, node = reply.__class__, line.node
        if kind is not int and kind is not list:
            reply = self._not_done(line, reply)
        if self.over or node not in self.waiting or reply is None:
            return
        self.waiting.discard(node)
        now, answers = self._panel.now(), not isinstance(reply, InterlockError)
        self.heard += answers
        if self._hear(node, reply, self._sent, now):
            self.enough = True
            self.end()
        elif not self.waiting or now >= self.until:
            self.end()
        elif answers and self.heard == self._limits.least:
            self.until = self._sent + self._limits.patience(now - self._sent)
            self._panel.look_at(self.until)

    def _not_done(self, line: Line, reply: Any) -> Any:
        """The refusal or the fault; None if the script was asked for once more."""
        wanted = line.node in self.waiting and not self.over
        packed = self._packed
        if isinstance(reply, Failure):
            if reply.code == "NOSCRIPT" and (wanted or packed.lasting):
                line.ask(self, packed.whole(line.words))
                return None
            return refusal(line.place, reply)
        if wanted:
            self.broken.append(line.node)
        if packed.request is not None:
            self._panel.unread(line.node, packed.request)
        return reply

    def end(self) -> None:
        self.over = True
        if self.done is not None and not self.done.done():
            self.done.set_result(None)


class LinkPanel:
    """The connections to all nodes, on the loop of whoever asks."""

    def __init__(self, addresses: Sequence[Address], packing: Packing, now: Callable[[], float]) -> None:
        self.places = [address.place for address in addresses]
        self.now = now
        self._addresses = addresses
        self._packing = packing
        self.standing = packing.standing
        self.unread: Unread = nothing
        self._speed = Speed(len(addresses))
        self.round_trip = self._speed.round_trip
        self._closed = False
        self._forget(None)

    def _forget(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._lines: list[Line | None] = [None] * len(self._addresses)
        self._connecting: dict[int, asyncio.Task[Line]] = {}
        self._rounds: set[Round] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at = 0.0

    def _on_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._forget(loop)
        return loop

    async def ask(
        self, request: Request, to: Collection[int], awaited: Collection[int], hear: Hear, limits: Limits
    ) -> list[int]:
        loop = self._on_loop()
        packed = self._packing.pack(request)
        hear = self._packing.translated(request, hear)
        lines = self._lines
        lost: list[int] = []
        if None in lines and (missing := [node for node in awaited if lines[node] is None]):
            began = self.now()
            lost = await self._connect(loop, missing, awaited, hear, limits)
            had = len(awaited) - len(missing)
            limits = limits.after(self.now() - began, had, self.round_trip(limits.least))
        elif limits.hurried:
            limits = limits.after(0.0, len(awaited), self.round_trip(limits.least))
        asked = Round(self, packed, hear, awaited, limits)
        for node in to:
            line = lines[node]
            if line is None:
                asked.waiting.discard(node)
                if packed.request is not None:
                    self.unread(node, packed.request)
            else:
                line.ask(asked, packed.head + line.words[packed.told] + packed.tail)
        if asked.waiting and not asked.over:
            asked.done = loop.create_future()
            self._rounds.add(asked)
            self.look_at(asked.until)
            try:
                await asked.done
            finally:
                self._rounds.discard(asked)
                asked.over = True  # interrupted, too: what comes now is nobody's
        lost += asked.broken
        return lost if asked.enough else [*lost, *asked.waiting]

    def look_at(self, when: float) -> None:
        """Look no later than then whose time is up."""
        if self._timer is not None:
            if when >= self._looks_at:
                return
            self._timer.cancel()
        assert self._loop is not None
        self._looks_at = when
        self._timer = self._loop.call_later(max(0.0, when - self.now()), self._look)

    def _look(self) -> None:
        """End the rounds whose time is up; the timer is set for the next."""
        self._timer = None
        now, first = self.now(), float("inf")
        for asked in list(self._rounds):
            if asked.until <= now:
                asked.end()
            else:
                first = min(first, asked.until)
        if first < float("inf"):
            self.look_at(first)

    def prepare(self) -> None:
        loop = self._on_loop()
        for node, line in enumerate(self._lines):
            if line is None:
                self._attempt(loop, node)

    def connected(self) -> dict[int, InterlockError | None]:
        found: dict[int, InterlockError | None] = {}
        for node, line in enumerate(self._lines):
            task = self._connecting.get(node)
            if line is not None:
                found[node] = None
            elif task is not None and task.done():
                found[node] = self._fault(node, task, 0.0)
        return found

    def inside(self) -> bool:
        return False  # there is no lock here: all is done on the loop's own thread

    async def _connect(
        self,
        loop: asyncio.AbstractEventLoop,
        missing: list[int],
        awaited: Collection[int],
        hear: Hear,
        limits: Limits,
    ) -> list[int]:
        """Connect to all of these at once; answers which were not reached while they were waited for.

        There is one attempt at a time at each node, for all tasks that need it; it goes on when they have left.
        """
        if self._closed:
            raise ClientClosed("this client was closed")
        began = self.now()
        tasks = {node: self._attempt(loop, node) for node in missing}
        patience = Patience(limits, missing, len(awaited), self._speed, began)
        while waiting := [task for task in tasks.values() if not task.done()]:
            connected = sum(self._lines[node] is not None for node in awaited)
            left = patience.until(connected, self.now()) - self.now()
            if left <= 0:
                break
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        lost: list[int] = []
        for node, task in tasks.items():
            error = self._fault(node, task, self.now() - began)
            if error is not None:
                lost.append(node)
                hear(node, unsent(error), began, self.now())
        return lost

    def _attempt(self, loop: asyncio.AbstractEventLoop, node: int) -> asyncio.Task[Line]:
        task = self._connecting.get(node)
        if task is None or task.done():
            self._speed.wanted(node, self.now())
            task = self._connecting[node] = loop.create_task(self._connected(loop, node))
            task.add_done_callback(_seen)
        return task

    def _fault(self, node: int, task: asyncio.Task[Line], waited: float) -> InterlockError | None:
        """Why there is no connection; None if there is one."""
        if not task.done():
            return self._addresses[node].silent(waited)
        if task.cancelled():
            raise ClientClosed("this client was closed")
        error = task.exception()
        if error is not None and not isinstance(error, InterlockError):
            raise error
        return error

    async def _connected(self, loop: asyncio.AbstractEventLoop, node: int) -> Line:
        began = self.now()
        address = self._addresses[node]
        connection = await address.connect_async(address.connect_timeout)
        line = Line(node, address, self, connection)
        introduced_at = self.now()
        timeout = max(0.001, address.connect_timeout - (introduced_at - began))
        introduction = Introduction(loop)
        line.introduce(introduction)
        try:
            await asyncio.wait_for(introduction.done, timeout)
            line.words = introduced(address.place, introduction.replies)
            self._packing.met(address.place, line.words)
        except BaseException as error:
            line.end(unreachable(address.place, "its first words were not answered"))
            if isinstance(error, TimeoutError):
                raise silent(address.place, timeout) from None
            raise
        self._speed.connected(node, self.now() - began, self.now() - introduced_at)
        self._lines[node] = line
        return line

    def after_fork(self) -> None:
        """The parent's loop and sockets are not ours: kept, unused, so that nothing closes them politely."""
        _parents.append((self._lines, self._connecting, self._rounds))
        self._forget(None)

    async def close(self) -> None:
        self._closed = True
        if self._loop is None or self._loop.is_closed():
            return
        for task in self._connecting.values():
            task.cancel()
        for line in self._lines:
            if line is not None:
                line.end(unreachable(line.place, "this client was closed"))
        await asyncio.sleep(0)  # let the transports close their sockets


_parents: list[object] = []


def _seen(task: asyncio.Task[Any]) -> None:
    """Everybody who waited was told; the loop need not complain that nobody was left."""
    if not task.cancelled():
        task.exception()
