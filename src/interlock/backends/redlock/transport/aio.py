"""The asyncio transport: one connection to each node, shared by all tasks; replies are matched to requests by
their order.

All requests of one turn of the event loop leave in one send, and one timer ends all rounds whose time is up,
as in the transport for a single server. A round ends when it has enough replies; later ones are dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from interlock._support.inline_resume import InlineResume
from interlock.backends.kit.tasks import retrieve
from interlock.backends.redis.address import Address
from interlock.backends.redis.errors import (
    as_unreached,
    reply_error,
    timeout_error,
    unexpected_answer,
    unreachable,
)
from interlock.backends.redis.transport.pipelined import PipelinedConnection
from interlock.backends.redis.wire.resp import MALFORMED, ErrorReply
from interlock.backends.redlock.transport.interface import ignore_late_vote, ignore_unacknowledged
from interlock.backends.redlock.transport.timeouts import ConnectDeadline, ConnectTimes, Timeouts
from interlock.backends.redlock.wire.packed import NodeIdentity, Packed
from interlock.backends.redlock.wire.packing import (
    HANDSHAKE,
    HANDSHAKE_REPLIES,
    PLAIN_REPLIES,
    Packing,
    node_identity,
    refuse_twice,
)
from interlock.backends.redlock.wire.requests import OnLateVote, OnReply, OnUnacknowledged, Request, Vote
from interlock.errors import ClientClosed, InterlockError, StoreUnavailable
from interlock.store import IO_TIMEOUT

MAX_VOTES = 256  # rounds of votes that are under way at once: if more tasks than these ask, they take turns
LATE_S = 0.01  # seconds by which a timer may be late before the event loop counts as busy
MAX_UNANSWERED = 20_000  # commands a silent node may leave unanswered before its connection is closed


class ReplyReceiver(Protocol):
    @property
    def over(self) -> bool:
        """Whether nobody waits for its replies any more."""
        ...

    def on_reply(self, connection: AsyncNodeConnection, reply: Any) -> None: ...


class AsyncNodeConnection(PipelinedConnection):
    """One connection to one node, on one event loop."""

    def __init__(self, node: int, address: Address, transport: AsyncQuorumTransport, raw: Any) -> None:
        super().__init__(address.label, asyncio.get_running_loop(), raw)
        self.node = node
        self._connections = (
            transport._connections
        )  # the transport's connections; this one is removed when it ends
        self.identity = NodeIdentity()
        self._pending: deque[ReplyReceiver] = deque()  # the receivers of the next replies

    def ask(self, receiver: ReplyReceiver, request: bytes) -> None:
        pending = self._pending
        self._send(request, not pending and not self.inline_resume.ready)
        pending.append(receiver)
        if len(pending) > MAX_UNANSWERED:
            self.end(timeout_error(self.label, 0.0))

    def handshake(self, handshake: NodeHandshake) -> None:
        self._send(HANDSHAKE, True)
        self._pending.extend([handshake] * HANDSHAKE_REPLIES)

    def _on_replies(self, reply: Any, gets: Callable[[], Any]) -> None:
        popleft = self._pending.popleft
        while reply is not False:
            receiver = popleft()
            # A release that was answered after a majority says nothing new.
            if not receiver.over or reply.__class__ is not int:
                try:
                    receiver.on_reply(self, reply)
                except InterlockError:
                    raise
                except MALFORMED as error:
                    receiver.on_reply(self, unexpected_answer(self.label, error))
                    raise
            reply = gets()

    def _fail_all(self, error: InterlockError) -> None:
        if self._connections[self.node] is self:
            self._connections[self.node] = None
        while self._pending:
            self._pending.popleft().on_reply(self, error)


class NodeHandshake:
    """Collects the replies to the first requests on a connection."""

    over = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self.replies: list[Any] = []

    def on_reply(self, connection: AsyncNodeConnection, reply: Any) -> None:
        if self.done.done():
            return
        if isinstance(reply, InterlockError):
            self.done.set_exception(reply)
            return
        self.replies.append(reply)
        if len(self.replies) == HANDSHAKE_REPLIES:
            self.done.set_result(None)


class Exchange:
    """One request to several nodes, and the replies to it."""

    __slots__ = (
        *("_on_reply", "_packed", "_sent", "_timeouts", "_transport", "until"),
        *("broken", "done", "enough", "excused", "over", "replied", "waiting"),
    )

    def __init__(
        self,
        transport: AsyncQuorumTransport,
        packed: Packed,
        on_reply: OnReply,
        awaited: Collection[int],
        timeouts: Timeouts,
    ) -> None:
        self._transport = transport
        self._packed = packed
        self._on_reply = on_reply
        self._sent = sent = transport.now()
        self._timeouts = timeouts
        self.until = sent + (timeouts.longest if timeouts.least else timeouts.timeout)
        self.waiting = set(awaited)
        self.replied = 0
        self.broken: list[int] = []
        self.enough = False
        self.excused = False  # it has got its time again, because the loop was busy
        self.over = False  # nobody waits any more
        self.done: asyncio.Future[None] | None = None

    def on_reply(self, connection: AsyncNodeConnection, reply: Any) -> None:
        kind, node = reply.__class__, connection.node
        if self.over and (kind is bytes or kind is list) and self._packed.request.__class__ is Vote:
            vote = self._packed.request
            assert isinstance(vote, Vote)
            self._transport.on_late_vote(node, vote, reply, self._sent, self._transport.now())
            return
        if kind is not bytes and kind is not int and kind is not list:
            reply = self._not_done(connection, reply)
        if self.over or node not in self.waiting or reply is None:
            return
        self.waiting.discard(node)
        now, answers = self._transport.now(), not isinstance(reply, InterlockError)
        self.replied += answers
        if self._on_reply(node, reply, self._sent, now):
            self.enough = True
            self.end(connection.inline_resume)
        elif not self.waiting:  # its time is the timer's matter: other replies may be here, too, and unread
            self.end(connection.inline_resume)
        elif answers and self.replied == self._timeouts.least:
            self.until = self._sent + self._timeouts.for_all(now - self._sent)
            self._transport.expire_at(self.until)

    def _not_done(self, connection: AsyncNodeConnection, reply: Any) -> Any:
        """The error; None if the request was sent again, with the script that the node did not know."""
        wanted = connection.node in self.waiting and not self.over
        packed = self._packed
        if isinstance(reply, ErrorReply):
            if reply.code == "NOSCRIPT" and (wanted or packed.lasting):
                connection.ask(self, packed.with_source(connection.identity, connection.node))
                return None
            return reply_error(connection.label, reply)
        if wanted:
            self.broken.append(connection.node)
        if packed.request is not None:
            self._transport.on_unacknowledged(connection.node, packed.request)
        return reply

    def end(self, inline_resume: InlineResume | None = None) -> None:
        """Nobody waits any more; the task that asked goes on with these wake-ups, or in the next turn of
        the loop.
        """
        self.over = True
        if self.done is not None and not self.done.done():
            if inline_resume is None:
                self.done.set_result(None)
            else:
                inline_resume.add(self.done, None)


class VoteSlots:
    """Limits how many votes are under way at once; the rest wait, first come, first served.

    If thousands of tasks asked at once, reading the replies would take longer than a round may, and no task
    would get a majority in time. Only votes need a slot: a task that holds nothing has nothing else to ask.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self, loop: asyncio.AbstractEventLoop, timeout: float, label: str) -> None:
        handed: asyncio.Future[None] = loop.create_future()

        def give_up() -> None:
            if not handed.done():
                handed.set_exception(
                    StoreUnavailable(f"{MAX_VOTES} claims are asking {label} and the other nodes already")
                )

        timer = loop.call_later(timeout, give_up)
        self.waiting.append(handed)
        try:
            await handed
        except BaseException:
            if handed.done() and not handed.cancelled() and handed.exception() is None:
                self.give_back()  # it was handed over as the task was cancelled
            raise
        finally:
            timer.cancel()

    def give_back(self) -> None:
        while self.waiting:
            handed = self.waiting.popleft()
            if not handed.done():
                handed.set_result(None)
                return
        self.taken -= 1


class AsyncQuorumTransport:
    """The connections to all nodes, on the event loop of the task that asks."""

    def __init__(self, addresses: Sequence[Address], packing: Packing, now: Callable[[], float]) -> None:
        self.labels = [address.label for address in addresses]
        self.now = now
        self._addresses = addresses
        self._packing = packing
        self.standing = packing.standing
        self.on_unacknowledged: OnUnacknowledged = ignore_unacknowledged
        self.on_late_vote: OnLateVote = ignore_late_vote
        self._speed = ConnectTimes(len(addresses))
        self.round_trip = self._speed.round_trip
        self._closed = False
        self._forget(None)

    def _forget(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._connections: list[AsyncNodeConnection | None] = [None] * len(self._addresses)
        self._connecting: dict[int, asyncio.Task[AsyncNodeConnection]] = {}
        self._exchanges: set[Exchange] = set()
        self._vote_slots = VoteSlots()
        self._timer: asyncio.TimerHandle | None = None
        self._expires_at = 0.0

    def _on_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._forget(loop)
        return loop

    async def ask(
        self,
        request: Request,
        to: Collection[int],
        awaited: Collection[int],
        on_reply: OnReply,
        timeouts: Timeouts,
    ) -> list[int]:
        """See `QuorumTransport.ask`.

        Long because it is the hot path: each further coroutine costs every round.
        """
        loop, slots = self._on_loop(), None
        if request.__class__ is Vote:
            slots = self._vote_slots
            if slots.taken < MAX_VOTES:
                slots.taken += 1
            else:
                longest = timeouts.connecting if timeouts.shortened else max(timeouts.connecting, IO_TIMEOUT)
                await slots.wait(loop, min(longest, timeouts.total), self.labels[0])
        try:
            packed = self._packing.pack(request)
            if type(request) not in PLAIN_REPLIES:
                on_reply = self._packing.decoding(request, on_reply)
            connections = self._connections
            lost: list[int] = []
            if None in connections and (missing := [node for node in awaited if connections[node] is None]):
                began = self.now()
                lost = await self._connect(loop, missing, awaited, on_reply, timeouts)
                had = len(awaited) - len(missing)
                timeouts = timeouts.after(self.now() - began, had, self.round_trip(timeouts.least))
            elif timeouts.shortened:
                timeouts = timeouts.after(0.0, len(awaited), self.round_trip(timeouts.least))
            exchange = Exchange(self, packed, on_reply, awaited, timeouts)
            self._send(exchange, packed, to)
            if exchange.waiting and not exchange.over:
                exchange.done = loop.create_future()
                self._exchanges.add(exchange)
                self.expire_at(exchange.until)
                try:
                    await exchange.done
                finally:
                    self._exchanges.discard(exchange)
                    exchange.over = True  # also when the task is cancelled: later replies are dropped
            lost += exchange.broken
            return lost if exchange.enough else [*lost, *exchange.waiting]
        finally:
            if slots is not None:
                if slots.waiting:
                    slots.give_back()
                else:
                    slots.taken -= 1

    def _send(self, exchange: Exchange, packed: Packed, to: Collection[int]) -> None:
        for node in to:
            connection = self._connections[node]
            if connection is None:
                exchange.waiting.discard(node)
                if packed.request is not None:
                    self.on_unacknowledged(node, packed.request)
            else:
                connection.ask(exchange, packed.by_hash(connection.identity, node))

    def expire_at(self, when: float) -> None:
        """End rounds whose time is up no later than `when`."""
        if self._timer is not None:
            if when >= self._expires_at:
                return
            self._timer.cancel()
        assert self._loop is not None
        self._expires_at = when
        self._timer = self._loop.call_later(max(0.0, when - self.now()), self._expire)

    def _expire(self) -> None:
        """End the rounds whose time is up, and set the timer for the next."""
        self._timer = None
        now, first = self.now(), float("inf")
        busy = now - self._expires_at  # nobody has read meanwhile what the nodes have answered
        for exchange in list(self._exchanges):
            if exchange.until <= now and busy > LATE_S and not exchange.excused:
                exchange.excused, exchange.until = True, now + busy
            if exchange.until <= now:
                exchange.end()
            else:
                first = min(first, exchange.until)
        if first < float("inf"):
            self.expire_at(first)

    def prepare(self) -> None:
        loop = self._on_loop()
        for node, connection in enumerate(self._connections):
            if connection is None:
                self._attempt(loop, node)

    def connected(self) -> dict[int, InterlockError | None]:
        found: dict[int, InterlockError | None] = {}
        for node, connection in enumerate(self._connections):
            task = self._connecting.get(node)
            if connection is not None:
                found[node] = None
            elif task is not None and task.done():
                found[node] = self._fault(node, task, 0.0)
        return found

    def inside(self) -> bool:
        return False  # there is no critical section: everything runs on the loop's own thread

    async def _connect(
        self,
        loop: asyncio.AbstractEventLoop,
        missing: list[int],
        awaited: Collection[int],
        on_reply: OnReply,
        timeouts: Timeouts,
    ) -> list[int]:
        """Connect to all of these at once; return the nodes that were not reached in time.

        Each node has one attempt at a time, shared by all tasks that need it; it goes on when they no longer
        wait.
        """
        if self._closed:
            raise ClientClosed("this client was closed")
        began = self.now()
        tasks = {node: self._attempt(loop, node) for node in missing}
        deadline = ConnectDeadline(timeouts, missing, len(awaited), self._speed, began)
        while waiting := [task for task in tasks.values() if not task.done()]:
            connected = sum(self._connections[node] is not None for node in awaited)
            left = deadline.until(connected, self.now()) - self.now()
            if left <= 0:
                break
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        lost: list[int] = []
        for node, task in tasks.items():
            error = self._fault(node, task, self.now() - began)
            if error is not None:
                lost.append(node)
                on_reply(node, as_unreached(error), began, self.now())
        return lost

    def _attempt(self, loop: asyncio.AbstractEventLoop, node: int) -> asyncio.Task[AsyncNodeConnection]:
        task = self._connecting.get(node)
        if task is None or task.done():
            self._speed.wanted(node, self.now())
            task = self._connecting[node] = loop.create_task(self._connected(loop, node))
            task.add_done_callback(retrieve)
        return task

    def _fault(
        self, node: int, task: asyncio.Task[AsyncNodeConnection], waited: float
    ) -> InterlockError | None:
        """Why there is no connection; None if there is one."""
        if not task.done():
            return self._addresses[node].timeout_error(waited)
        if task.cancelled():
            raise ClientClosed("this client was closed")
        error = task.exception()
        if error is not None and not isinstance(error, InterlockError):
            raise error
        return error

    async def _connected(self, loop: asyncio.AbstractEventLoop, node: int) -> AsyncNodeConnection:
        began = self.now()
        address = self._addresses[node]
        raw = await address.connect_async(address.connect_timeout)
        connection = AsyncNodeConnection(node, address, self, raw)
        shook_hands_at = self.now()
        timeout = max(0.001, address.connect_timeout - (shook_hands_at - began))
        handshake = NodeHandshake(loop)
        connection.handshake(handshake)
        try:
            async with asyncio.timeout(timeout):
                await handshake.done
            connection.identity = node_identity(address.label, handshake.replies)
            self._packing.refuse_duplicate(address.label, connection.identity)
            others = [(other.label, other.identity) for other in self._connections if other is not None]
            refuse_twice(address.label, connection.identity, others)
        except BaseException as error:
            connection.end(unreachable(address.label, "the handshake was not answered"))
            if isinstance(error, TimeoutError):
                raise timeout_error(address.label, timeout) from None
            raise
        self._speed.connected(node, self.now() - began, self.now() - shook_hands_at)
        self._connections[node] = connection
        return connection

    def after_fork(self) -> None:
        """Keep the parent's sockets, unused: closing them here would say goodbye on the parent's
        connections.
        """
        _parents.append((self._connections, self._connecting, self._exchanges))
        self._forget(None)

    async def close(self) -> None:
        self._closed = True
        if self._loop is None or self._loop.is_closed():
            return
        for task in self._connecting.values():
            task.cancel()
        for connection in self._connections:
            if connection is not None:
                connection.end(unreachable(connection.label, "this client was closed"))
        await asyncio.sleep(0)  # let the transports close their sockets


_parents: list[object] = []
