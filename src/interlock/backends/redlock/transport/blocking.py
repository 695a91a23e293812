"""The blocking panel: send to all sockets, then read from all, on the caller's own thread.

A lane is one connection to each node, used by one thread at a time. Replies come in order, so a reply nobody waits for
any more is counted, and dropped when it comes.
"""

from __future__ import annotations

import queue
import select
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import count
from typing import Any, TypeAlias
from weakref import WeakSet

from interlock import native
from interlock.backends.redis.address import Address
from interlock.backends.redis.errors import refusal, unsent
from interlock.backends.redis.wire.resp import Failure
from interlock.backends.redlock.transport.connecting import Attempts, Ended, Patience
from interlock.backends.redlock.transport.connection import Line
from interlock.backends.redlock.wire.packing import Packed, Packing
from interlock.backends.redlock.wire.requests import Hear, Limits, Release, Request, Unread, Vote, nothing
from interlock.errors import ClientClosed, InterlockError, StoreUnavailable

MOST = 16  # lanes at once: more threads than these take turns
IDLE = 1.0  # seconds after which a lane that others do without is closed
FRESH = 0.5  # seconds of idleness after which connections are looked at before they are used
NAP = 0.05  # seconds after which a thread that waits for a lane looks whether one may be made
BEHIND = 8  # replies that may wait to be dropped together
REMEMBERED = 10000  # claims whose lanes are known
OWED = 64  # replies a silent node may owe before it is sent nothing new

Turn: TypeAlias = "queue.SimpleQueue[Lane]"


class Lane:
    """A connection to each node that can be reached. Used by one thread at a time."""

    def __init__(self, panel: LanePanel, number: int) -> None:
        self._panel = panel
        self.number = number
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
        if missing := [node for node in awaited if lines[node] is None]:
            began = now()
            lost = self._connect(missing, awaited, hear, limits)
            had = len(awaited) - len(missing)
            limits = limits.after(now() - began, had, self._panel.round_trip(limits.least))
        elif limits.hurried:
            limits = limits.after(0.0, len(awaited), self._panel.round_trip(limits.least))
        sent, waiting, heard = now(), set(awaited), 0
        for node in to:
            line = lines[node]
            if line is None or (self._late and len(line.due) > OWED and not packed.lasting):
                waiting.discard(node)
                if packed.request is not None:
                    self._panel.unread(node, packed.request)
                continue
            try:
                if line.send(packed, packed.quick(line.words)) > OWED:
                    self._late = True
            except InterlockError as error:
                self._drop(line)
                if packed.request is not None:
                    self._panel.unread(node, packed.request)
                if node in waiting:
                    waiting.discard(node)
                    lost.append(node)
                    hear(node, error, sent, now())
        until = sent + (limits.longest if limits.least else limits.timeout)
        while waiting and not enough:
            left = until - now()
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
                if reply.__class__ is Failure:
                    reply = refusal(line.place, reply)
                received, answers = now(), not isinstance(reply, InterlockError)
                heard += answers
                if hear(node, reply, sent, received):
                    enough = True
                elif answers and heard == limits.least:
                    until = sent + limits.patience(received - sent)
        self.used = now()
        if enough:
            return [*lost, *self._overdue()] if self._late else lost
        return [*lost, *waiting]

    def reaches(self, node: int) -> bool:
        return self._lines[node] is not None

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

    def _connect(self, missing: list[int], awaited: Collection[int], hear: Hear, limits: Limits) -> list[int]:
        """Connect to all of these at once; answers which were not reached while they were waited for."""
        attempts, now = self._panel.attempts, self._panel.now
        began = now()
        ended: Ended = queue.SimpleQueue()
        trying = {node: attempts.begin(node, ended) for node in missing}
        patience = Patience(limits, missing, len(awaited), attempts.speed, began)
        lost: list[int] = []
        try:
            while trying:
                connected = len(awaited) - len(trying) - len(lost)
                try:
                    attempt = ended.get(timeout=max(0.0, patience.until(connected, now()) - now()))
                except queue.Empty:
                    break
                if trying.pop(attempt.node, None) is None:
                    continue  # told twice
                try:
                    self._add(attempt.take())
                except InterlockError as error:
                    lost.append(attempt.node)
                    hear(attempt.node, unsent(error), began, now())
        finally:  # interrupted, too
            for attempt in trying.values():
                attempts.leave(attempt)
        for node in trying:
            hear(node, unsent(self._panel.silent(node, now() - began)), began, now())
        return [*lost, *trying]

    def _add(self, line: Line) -> None:
        if self._poll is None:
            self._poll = select.poll()
        self._lines[line.node] = self._at[line.fd] = line
        self._poll.register(line.fd, select.POLLIN)

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
        self.attempts = Attempts(addresses, packing, now)
        self.round_trip = self.attempts.speed.round_trip
        self._addresses = addresses
        self._packing = packing
        self.standing = packing.standing
        self.unread: Unread = nothing
        self._closed = False
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's sockets: they are closed here without a word to the servers."""
        self._idle: list[Lane] = []
        # All lanes there are. Weakly: one that was taken by a thread which was interrupted there counts no more.
        self._lanes: WeakSet[Lane] = WeakSet()
        self._voted: dict[str, int] = {}  # by the claim's id: the number of its lane
        self._numbers = count()
        self._waiting: deque[Turn] = deque()  # the threads for which there was no lane, in order
        # Not a condition: an interrupt inside its methods may leave its lock held for ever.
        self._guard = native.guard()
        self.attempts.after_fork()

    def prepare(self) -> None:
        standing = self.connected()
        self.attempts.prepare(node for node in range(len(self.places)) if standing.get(node, True))

    def connected(self) -> dict[int, InterlockError | None]:
        found: dict[int, InterlockError | None] = {}
        for node in range(len(self.places)):
            ready, fault = self.attempts.spares(node)
            if ready or any(lane.reaches(node) for lane in list(self._lanes)):
                found[node] = None
            elif fault is not None:
                found[node] = fault
        return found

    def inside(self) -> bool:
        return self._guard._is_owned()

    def silent(self, node: int, timeout: float) -> InterlockError:
        return self._addresses[node].silent(timeout)

    async def ask(
        self,
        request: Request,
        to: Collection[int],
        awaited: Collection[int],
        hear: Hear,
        limits: Limits,
    ) -> list[int]:
        packed = self._packing.pack(request)
        lane = self._lane(request, limits)
        hear = self._packing.translated(request, hear)
        try:
            quiet = lane.ask(packed, to, awaited, hear, limits)
        except BaseException:  # interrupted, too: nobody knows which replies will come
            self._discard(lane)
            raise
        if self._closed:
            lane.close()
            return quiet
        broke, lane.broke = lane.broke, False
        if self._waiting:
            self._give(lane)
        else:
            self._idle.append(lane)
        if broke:
            self._look_at_idle()
        if len(self._idle) > 1:
            self._shrink(lane.used)
        return quiet

    def _lane(self, request: Request, limits: Limits) -> Lane:
        """An idle lane, the last used first; for a release that of its vote: on another a node that hangs might read it first."""
        lane: Lane | None = None
        if not self._waiting:  # or others came first
            try:
                lane = self._idle.pop()
            except IndexError:
                pass
        if lane is None:
            lane = self._next(min(limits.connecting, limits.total))
        if type(request) is Vote:
            if len(self._voted) >= REMEMBERED:
                self._voted.clear()
            self._voted[request.claim.id] = lane.number
        elif type(request) is Release:
            number = self._voted.pop(request.id, lane.number)
            if number != lane.number:
                return self._instead(lane, number)
        return lane

    def _instead(self, lane: Lane, number: int) -> Lane:
        """The lane of this number if nobody uses it; otherwise this one."""
        for other in list(self._idle):
            if other.number == number:
                try:
                    self._idle.remove(other)
                except ValueError:
                    break  # another thread has it
                self._idle.append(lane)
                return other
        return lane

    def _next(self, timeout: float) -> Lane:
        """A new lane; where there are enough, the next that is given back. First come, first served: or some would starve."""
        until = self.now() + timeout
        turn: Turn = queue.SimpleQueue()
        self._waiting.append(turn)  # before the look: whoever gives one back after it sees that we wait
        try:
            while not self._closed:
                try:
                    return self._idle.pop()
                except IndexError:
                    pass
                with self._guard:
                    if len(self._lanes) < MOST:
                        lane = Lane(self, next(self._numbers))
                        self._lanes.add(lane)
                        return lane
                if (left := until - self.now()) <= 0:
                    raise StoreUnavailable(
                        f"all {MOST} connections to {self.places[0]} and its like are in use"
                    )
                try:
                    return turn.get(timeout=min(left, NAP))
                except queue.Empty:
                    pass
            raise ClientClosed("this client was closed")
        finally:
            self._leave(turn)

    def _give(self, lane: Lane) -> None:
        """Hand a lane to the first thread that waits for one."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().put(lane)
            else:
                self._idle.append(lane)

    def _leave(self, turn: Turn) -> None:
        """Wait no longer; what was handed to us meanwhile is the next one's."""
        with self._guard:
            try:
                self._waiting.remove(turn)
            except ValueError:
                pass  # it was called
            lane = None if turn.empty() else turn.get_nowait()
        if lane is not None:
            self._give(lane)

    def _discard(self, lane: Lane) -> None:
        self._lanes.discard(lane)
        lane.close()

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
                self._discard(other)
                raise
            self._idle.append(other)

    def _shrink(self, now: float) -> None:
        try:
            if now - self._idle[0].used > IDLE:
                self._discard(self._idle.pop(0))
                self.attempts.spare()
        except IndexError:
            pass  # other threads have taken all: nothing is idle

    async def close(self) -> None:
        self._closed = True
        self.attempts.close()
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                break  # another thread has it
