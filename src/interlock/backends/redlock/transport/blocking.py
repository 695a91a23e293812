"""The blocking panel: send to all sockets, then read from all, on the caller's own thread.

A lane is one connection to each node, used by one thread at a time. Replies come in order, so a reply nobody waits for
any more is counted, and dropped when it comes.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import count
from typing import TypeAlias
from weakref import WeakSet

from interlock import native
from interlock.backends.redis.address import Address
from interlock.backends.redlock.transport.connecting import Attempts
from interlock.backends.redlock.transport.connections import Lane
from interlock.backends.redlock.transport.interface import nothing
from interlock.backends.redlock.transport.patience import Limits
from interlock.backends.redlock.wire.packing import Packing
from interlock.backends.redlock.wire.requests import Hear, Release, Request, Unread, Vote
from interlock.errors import ClientClosed, InterlockError, StoreUnavailable

MOST = 16  # lanes at once: more threads than these take turns
IDLE = 1.0  # seconds after which a lane that others do without is closed
NAP = 0.05  # seconds after which a thread that waits for a lane looks whether one may be made
REMEMBERED = 10000  # claims whose lanes are known

Turn: TypeAlias = "queue.SimpleQueue[Lane]"


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
