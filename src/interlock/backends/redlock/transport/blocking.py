"""The blocking transport: a bounded pool of connection sets, one for each thread that asks the nodes at
the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import count

from interlock._support import native
from interlock.backends.kit.slots import Slots
from interlock.backends.redis.address import Address
from interlock.backends.redlock.transport.connecting import ConnectAttempts
from interlock.backends.redlock.transport.connections import ConnectionSet
from interlock.backends.redlock.transport.interface import ignore_late_vote, ignore_unacknowledged
from interlock.backends.redlock.transport.timeouts import Timeouts
from interlock.backends.redlock.wire.packed import Packed
from interlock.backends.redlock.wire.packing import PLAIN_REPLIES, Packing
from interlock.backends.redlock.wire.requests import (
    OnLateVote,
    OnReply,
    OnUnacknowledged,
    Release,
    Request,
    Vote,
)
from interlock.errors import ClientClosed, InterlockError, StoreUnavailable

MAX_SETS = 16  # connection sets at once: if more threads than these ask, they wait for each other
IDLE_CLOSE_S = 1.0  # after which a set that no thread needed is closed
MAX_VOTES_REMEMBERED = 10000  # claims of which it is known which set their votes were sent on


class BlockingQuorumTransport:
    """Asks the nodes over the connection set that was used last among the idle ones."""

    def __init__(self, addresses: Sequence[Address], packing: Packing, now: Callable[[], float]) -> None:
        self.labels = [address.label for address in addresses]
        self.now = now
        self.attempts = ConnectAttempts(addresses, packing, now)
        self.round_trip = self.attempts.speed.round_trip
        self._addresses = addresses
        self._packing = packing
        self.standing = packing.standing
        self.on_unacknowledged: OnUnacknowledged = ignore_unacknowledged
        self.on_late_vote: OnLateVote = ignore_late_vote
        self._closed = False
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's sockets: the child closes its copies and sends nothing on them."""
        self._idle: list[ConnectionSet] = []
        self._slots: Slots[ConnectionSet] = Slots(MAX_SETS, self._new_set, self._idle)
        self._slots.closed = self._closed
        self._waiting = self._slots.waiting
        self._set_of_vote: dict[str, int] = {}  # by the claim's id: the number of the set
        self._numbers = count()
        self._threads: set[int] = set()  # those at whose end their sets are closed
        self._mutex = self._slots.mutex
        self.inside: Callable[[], bool] = self._mutex._is_owned  # itself: every release asks
        self.attempts.after_fork()

    def prepare(self) -> None:
        standing = self.connected()
        self.attempts.prepare(node for node in range(len(self.labels)) if standing.get(node, True))

    def connected(self) -> dict[int, InterlockError | None]:
        found: dict[int, InterlockError | None] = {}
        for node in range(len(self.labels)):
            ready, fault = self.attempts.spares(node)
            if ready or any(connections.reaches(node) for connections in self._slots):
                found[node] = None
            elif fault is not None:
                found[node] = fault
        return found

    def timeout_error(self, node: int, timeout: float) -> InterlockError:
        return self._addresses[node].timeout_error(timeout)

    async def ask(
        self,
        request: Request,
        to: Collection[int],
        awaited: Collection[int],
        on_reply: OnReply,
        timeouts: Timeouts,
    ) -> list[int]:
        packed = self._packing.pack(request)
        connections = self._take_set(request, packed, timeouts)
        if type(request) not in PLAIN_REPLIES:
            on_reply = self._packing.decoding(request, on_reply)
        try:
            unanswered = connections.ask(packed, to, awaited, on_reply, timeouts)
        except BaseException:  # also an interrupt: nobody knows which replies will still arrive
            self._discard(connections)
            raise
        if self._closed:
            connections.close()
            return unanswered
        broke, connections.broke = connections.broke, False
        self._idle.append(connections)
        if self._waiting:
            self._slots.hand_over()
        if broke:
            self._drop_closed_idle()
        if len(self._idle) > 1:
            self._shrink(connections.used)
        return unanswered

    def _take_set(self, request: Request, packed: Packed, timeouts: Timeouts) -> ConnectionSet:
        """Take an idle set, the one used last; for a release, the one on which its vote was sent, unless
        another thread uses it.

        On another connection, a node may read the release before the vote: if it hangs, or just because it is
        busy.
        """
        connections: ConnectionSet | None = None
        if not self._waiting:  # otherwise an idle set belongs to the thread that has waited longest
            try:
                connections = self._idle.pop()
            except IndexError:
                pass
        if connections is None:
            connections = self._make_or_wait(min(timeouts.connecting, timeouts.total))
        if type(request) is Vote:
            if len(self._set_of_vote) >= MAX_VOTES_REMEMBERED:
                self._set_of_vote.clear()
            self._set_of_vote[request.claim.id] = connections.number
        elif type(request) is Release:
            number = self._set_of_vote.pop(request.id, connections.number)
            if number != connections.number:
                connections = self._swap_for(connections, number)
                packed.sent_on_other_set = number != connections.number
        return connections

    def _swap_for(self, connections: ConnectionSet, number: int) -> ConnectionSet:
        """The set of this number if nobody uses it; otherwise the one at hand."""
        for other in list(self._idle):
            if other.number == number:
                try:
                    self._idle.remove(other)
                except ValueError:
                    break  # another thread has it
                self._idle.append(connections)
                return other
        return connections

    def _make_or_wait(self, timeout: float) -> ConnectionSet:
        """A new set, or, if there are enough, the next one that is given back: first come, first served,
        so that no thread starves.
        """
        until = self.now() + timeout
        found = self._slots.take(lambda: until - self.now())
        if found is None:
            if self._closed:
                raise ClientClosed("this client was closed")
            raise StoreUnavailable(
                f"all {MAX_SETS} connections to {self.labels[0]} and the other nodes are in use"
            )
        return found[0]

    def _new_set(self) -> ConnectionSet:
        connections = ConnectionSet(self, next(self._numbers))
        if native.green("socket"):
            self._close_with_thread(connections)
        return connections

    def _close_with_thread(self, connections: ConnectionSet) -> None:
        """Close the set when this thread ends: nobody can use its green sockets, or even close them, after
        that.
        """
        connections.thread = native.original("get_ident")()
        if connections.thread not in self._threads:
            self._threads.add(connections.thread)
            native.at_thread_end(partial(self._thread_ended, connections.thread))

    def _thread_ended(self, ident: int) -> None:
        self._threads.discard(ident)
        for connections in [one for one in self._idle if one.thread == ident]:
            try:
                self._idle.remove(connections)
            except ValueError:
                continue  # another thread has it
            self._discard(connections)

    def _discard(self, connections: ConnectionSet) -> None:
        self._slots.remove(connections)
        connections.close()

    def _drop_closed_idle(self) -> None:
        """Drop broken connections in the idle sets too: one of them may carry a release that its node has
        not read.
        """
        for _ in range(len(self._idle)):
            try:
                other = self._idle.pop(0)
            except IndexError:
                return  # other threads have taken all
            try:
                other.drop_closed()
            except BaseException:  # an interrupt: nobody knows which replies will still arrive
                self._discard(other)
                raise
            self._idle.append(other)

    def _shrink(self, now: float) -> None:
        try:
            if now - self._idle[0].used > IDLE_CLOSE_S:
                self._discard(self._idle.pop(0))
                self.attempts.close_spares()
        except IndexError:
            pass  # other threads have taken all: nothing is idle

    async def close(self) -> None:
        self._closed = True
        self._slots.close()
        self.attempts.close()
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                break  # another thread has it
