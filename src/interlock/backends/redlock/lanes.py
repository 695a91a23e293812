"""The blocking panel: send to all sockets, then read from all, on the caller's own thread.

A lane is one connection to each node, used by one thread at a time. Replies come in order, so a reply nobody waits for
any more is counted, and dropped when it comes.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

from interlock.backends.redis.address import Address
from interlock.backends.redis.refusal import refusal, unsent
from interlock.backends.redis.resp import Failure
from interlock.backends.redlock.line import Line
from interlock.backends.redlock.packing import Packed, Packing
from interlock.backends.redlock.requests import Hear, Limits, Release, Request, Unread, Vote, nothing
from interlock.errors import ClientClosed, InterlockError, StoreUnavailable

MOST = 16  # lanes at once: more threads than these take turns
IDLE = 1.0  # seconds after which a lane that others do without is closed
FRESH = 0.5  # seconds of idleness after which connections are looked at before they are used
CONNECTING = 0.2  # seconds a connection may take at least, whatever a request may
BEHIND = 8  # replies that may wait to be dropped together
REMEMBERED = 10000  # claims whose lanes are known
OWED = 64  # replies a silent node may owe before it is sent nothing new


class Lane:
    """A connection to each node that can be reached. Used by one thread at a time."""

    def __init__(self, panel: LanePanel) -> None:
        self._panel = panel
        self._lines: list[Line | None] = [None] * len(panel.places)
        self._at: dict[int, Line] = {}  # by file descriptor
        self._poll: Any = None
        self._late = False  # some node owes too many replies
        self._turn = 0
        self.broke = False  # a connection did
        self.used = 0.0

    def ask(
        self, packed: Packed, to: Collection[int], awaited: Collection[int], hear: Hear, limits: Limits
    ) -> list[int]:
        """The awaited nodes that did not answer. Long because it is one conversation, and the hot path."""
        now, lines = self._panel.now, self._lines
        enough = False
        lost: list[int] = []
        if now() - self.used > FRESH:
            self.look_at_all()
        began = now()
        missing = [node for node in awaited if lines[node] is None]
        for place, node in enumerate(missing):
            # Each gets its share of the time that is left: one that hangs must not use up the others'.
            share = (began + limits.connecting(missing, awaited) - now()) / (len(missing) - place)
            if not self._connect(node, hear, limits, share):
                lost.append(node)
        sent, waiting, heard = now(), set(awaited), 0
        for node in to:
            line = lines[node]
            if line is None or (len(line.due) > OWED and not packed.lasting):
                waiting.discard(node)
                if packed.request is not None:
                    self._panel.unread(node, packed.request)
                continue
            try:
                line.send(packed, packed.quick(line.words))
                if len(line.due) > OWED:
                    self._late = True
            except InterlockError as error:
                self._drop(line)
                if packed.request is not None:
                    self._panel.unread(node, packed.request)
                if node in waiting:
                    waiting.discard(node)
                    lost.append(node)
                    hear(node, error, sent, now())
        far = began + limits.longest
        until = min(far, sent + limits.timeout)
        while waiting and not enough:
            time = now()
            left = (until if heard >= limits.least else far) - time
            if left <= 0:
                break
            for fd, event in self._turned(self._poll.poll(left * 1000 + 1)):
                line = self._at[fd]
                if enough and event == select.POLLIN and len(line.due) < BEHIND:
                    continue  # its reply is dropped with a later one: that is one read for both
                node = line.node
                reply: Any = False
                try:
                    reply = line.receive(packed)
                except InterlockError as error:
                    self._drop(line)
                    lost.append(node)
                    reply = error
                if reply is False or node not in waiting:
                    continue
                waiting.discard(node)
                heard += 1
                if reply.__class__ is Failure:
                    reply = refusal(line.place, reply)
                if hear(node, reply, sent, now()):
                    enough = True
        self.used = now()
        if enough:
            return [*lost, *self._overdue()] if self._late else lost
        return [*lost, *waiting]

    def _turned(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Those that have something to read, each time another one first: every node's clock is to be heard."""
        self._turn += 1
        first = self._turn % (len(ready) or 1)
        return ready[first:] + ready[:first] if first else ready

    def look_at_all(self) -> None:
        """Drop what the servers have closed while nobody used it: that is no reason to call them away."""
        for line in self._lines:
            if line is not None and not line.alive():
                self._drop(line)

    def _connect(self, node: int, hear: Hear, limits: Limits, share: float) -> bool:
        began = self._panel.now()
        try:
            line = self._panel.line(node, limits, share)
        except InterlockError as error:
            hear(node, unsent(error), began, self._panel.now())
            return False
        if self._poll is None:
            self._poll = select.poll()
        self._lines[node] = self._at[line.fd] = line
        self._poll.register(line.fd, select.POLLIN)
        return True

    def _overdue(self) -> list[int]:
        """The nodes that owe too many replies: they are sent no more than releases, and in the end nothing.

        Not dropped at once: a node that goes on reads what it was sent in order, and must find the release of every claim.
        """
        late = [line for line in self._lines if line is not None and len(line.due) > OWED]
        self._late = bool(late)
        for line in late:
            if len(line.due) > 4 * OWED:
                self._drop(line)
        return [line.node for line in late]

    def _drop(self, line: Line) -> None:
        if self._lines[line.node] is line:
            self._poll.unregister(line.fd)
            self._lines[line.node] = None
            del self._at[line.fd]
            self.broke = True
        unread = line.unread() if line.due else ()
        line.close()
        for request in unread:
            self._panel.unread(line.node, request)

    def close(self) -> None:
        for line in self._lines:
            if line is not None:
                self._drop(line)


class LanePanel:
    """Lanes, the last used first; bounded."""

    def __init__(self, addresses: Sequence[Address], packing: Packing, now: Callable[[], float]) -> None:
        self.places = [address.place for address in addresses]
        self.now = now
        self._addresses = addresses
        self._packing = packing
        self.unread: Unread = nothing
        self._slowest = 0.0  # seconds a connection took: the next may take that long, too
        self._closed = False
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's sockets: they are closed here without a word to the servers."""
        self._idle: list[Lane] = []
        self._voted: dict[str, Lane] = {}  # by the claim's id
        self._open = 0
        self._change = threading.Condition(threading.Lock())

    def line(self, node: int, limits: Limits, share: float) -> Line:
        began = self.now()
        timeout = max(0.001, min(share, max(limits.timeout, CONNECTING, 2 * self._slowest)))
        line = Line(node, self._addresses[node], timeout)
        try:
            self._packing.met(line.place, line.words)
        except InterlockError:
            line.close()
            raise
        self._slowest = min(2.0, max(self._slowest, self.now() - began))
        return line

    async def ask(
        self,
        request: Request,
        to: Collection[int],
        awaited: Collection[int],
        hear: Hear,
        limits: Limits,
    ) -> list[int]:
        packed = self._packing.pack(request)
        lane = self._lane(request, limits.longest)
        hear = self._packing.translated(request, hear)
        try:
            quiet = lane.ask(packed, to, awaited, hear, limits)
        except BaseException:  # interrupted, too: nobody knows which replies will come
            lane.close()
            self._gone()
            raise
        if self._closed:
            lane.close()
            return quiet
        broke, lane.broke = lane.broke, False
        idle = self._idle
        idle.append(lane)
        if broke:
            self._look_at_idle()
        if self._open >= MOST:
            with self._change:
                self._change.notify()
        elif len(idle) > 1:
            self._shrink(lane.used)
        return quiet

    def _lane(self, request: Request, timeout: float) -> Lane:
        """An idle lane, the last used first; for a release that of its vote: on another a node that hangs might read it first."""
        if type(request) is Release and (lane := self._voted.pop(request.id, None)) is not None:
            try:
                self._idle.remove(lane)
                return lane
            except ValueError:
                pass  # another thread has it, or it is closed
        try:
            lane = self._idle.pop()
        except IndexError:
            lane = self._next(timeout)
        if type(request) is Vote:
            self._voted[request.claim.id] = lane
            if len(self._voted) > REMEMBERED:
                self._voted.clear()
        return lane

    def _look_at_idle(self) -> None:
        """What broke in one may have broken in another, with a release that its node has not read."""
        for _ in range(len(self._idle)):
            try:
                other = self._idle.pop(0)
            except IndexError:
                return  # other threads have taken all
            try:
                other.look_at_all()
            except BaseException:  # interrupted: nobody knows which replies will come
                other.close()
                self._gone()
                raise
            self._idle.append(other)

    def _shrink(self, now: float) -> None:
        try:
            if now - self._idle[0].used > IDLE:
                self._idle.pop(0).close()
                self._gone()
        except IndexError:
            pass  # other threads have taken all: nothing is idle

    def _next(self, timeout: float) -> Lane:
        with self._change:
            while not self._idle and self._open >= MOST and not self._closed:
                if not self._change.wait(timeout):
                    raise StoreUnavailable(
                        f"all {MOST} connections to {self.places[0]} and its like are in use"
                    )
            if self._closed:
                raise ClientClosed("this client was closed")
            if self._idle:
                return self._idle.pop()
            self._open += 1
        return Lane(self)

    def _gone(self) -> None:
        with self._change:
            self._open -= 1
            self._change.notify()

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        with self._change:
            self._change.notify_all()
