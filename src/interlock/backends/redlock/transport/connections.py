"""Blocking connections: one to one node, and a set of them, one to each node, that one thread uses at a time.

A set sends a request to all its nodes, then polls all their sockets, on the caller's own thread. Each node
replies in order, so a reply that nobody waits for any more is counted, and dropped when it arrives.
"""

from __future__ import annotations

import queue
import select
import ssl
import time
from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from interlock.backends.redis.address import Address
from interlock.backends.redis.errors import (
    as_unreached,
    protocol_error,
    reply_error,
    timeout_error,
    unexpected_answer,
    unreachable,
)
from interlock.backends.redis.wire.resp import MALFORMED, ErrorReply, check_size, reader
from interlock.backends.redlock.transport.timeouts import ConnectDeadline, Timeouts
from interlock.backends.redlock.wire.packed import NodeIdentity, Packed
from interlock.backends.redlock.wire.packing import HANDSHAKE, HANDSHAKE_REPLIES, node_identity, refuse_twice
from interlock.backends.redlock.wire.requests import OnReply, Release, Vote
from interlock.errors import InterlockError

if TYPE_CHECKING:
    from interlock.backends.redlock.transport.blocking import BlockingQuorumTransport
    from interlock.backends.redlock.transport.connecting import EndedAttempts

UNCHECKED_S = 0.5  # of idleness after which connections are checked before they are used
# Poll objects that are kept: of five nodes, two may be behind in ten ways, of fifteen seven in thousands.
MAX_POLLS = 100
MAX_UNANSWERED = 256  # commands a silent node may leave unanswered before it gets no new ones
READ_BYTES = 2048  # replies are small, and a large buffer costs more to get
POLLIN = select.POLLIN
EMPTY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class NodeConnection:
    """One blocking connection to one node."""

    __slots__ = (
        *("_connection", "_reader", "_waited", "bit", "due", "fd", "identity"),
        *("node", "label", "round_trip", "sock", "transport"),
    )

    def __init__(self, node: int, address: Address, timeout: float) -> None:
        self.node = node
        self.bit = 1 << node
        self.label = address.label
        self.transport: BlockingQuorumTransport | None = None  # once it belongs to a set
        until = time.monotonic() + timeout
        self._connection: Any = address.connect(
            timeout
        )  # kept: redis-py closes a connection that nobody refers to
        self.sock: Any = self._connection._sock
        self._reader = reader()
        self._waited = 0  # bytes of a reply that is incomplete
        self.due: deque[Packed] = deque()  # sent and not yet answered; only the last of them is waited for
        try:
            began = time.monotonic()
            self.identity = self._handshake(timeout, until)
            self.round_trip = time.monotonic() - began  # seconds: the handshake takes little else
            self.sock.setblocking(False)
        except BaseException:
            self.close()
            raise
        self.fd: int = self.sock.fileno()

    def _handshake(self, timeout: float, until: float) -> NodeIdentity:
        replies: list[Any] = []
        try:
            self.sock.settimeout(max(0.001, until - time.monotonic()))
            self.sock.sendall(HANDSHAKE)
            while len(replies) < HANDSHAKE_REPLIES:
                # Set again for each read: a server that sends one byte at a time must not exceed the whole
                # timeout.
                self.sock.settimeout(max(0.001, until - time.monotonic()))
                data = self.sock.recv(READ_BYTES)
                if not data:
                    raise unreachable(self.label, "the server closed the connection")
                self._reader.feed(data)
                self._waited += len(data)
                check_size(self._waited)
                while (reply := self._reader.gets()) is not False:
                    replies.append(reply)
        except TimeoutError:
            raise timeout_error(self.label, timeout) from None
        except OSError as error:
            raise unreachable(self.label, error) from None
        except MALFORMED as error:
            raise protocol_error(self.label, error) from None
        self._waited = 0
        return node_identity(self.label, replies)

    def send(self, packed: Packed, request: bytes) -> None:
        """Hand the request to the kernel."""
        # Before the send: a caller that is interrupted there must know that a reply will come.
        self.due.append(packed)
        try:
            if (gone := self.sock.send(request)) < len(request):
                self.send_rest(request[gone:])
        except OSError as error:
            raise self.send_error(error) from None

    def send_rest(self, request: bytes) -> None:
        """Wait, for 50 ms at most, until the node has read so much that the rest of a request fits into
        the socket's buffer.
        """
        writable = select.poll()  # not select(), which knows no descriptor above 1,023
        writable.register(self.sock, select.POLLOUT)
        while request:
            if not writable.poll(50):
                raise timeout_error(self.label, 0.05)
            request = request[self.sock.send(request) :]

    def send_error(self, error: OSError) -> InterlockError:
        return timeout_error(self.label, 0.0) if isinstance(error, EMPTY) else unreachable(self.label, error)

    def receive(self, asked: Packed | None) -> Any:
        """The reply to `asked`, or the error that the server replied; False while it has not arrived.

        Replies to earlier requests are dropped. With None it reads all there is: only after the last reply
        can it see whether the server has closed the connection.
        """
        reader, due = self._reader, self.due
        while True:
            try:
                data = self.sock.recv(READ_BYTES)
            except EMPTY:
                return False
            except OSError as error:
                raise unreachable(self.label, error) from None
            if not data:
                raise unreachable(self.label, "the server closed the connection")
            try:
                reader.feed(data)
                before = len(due)
                while (reply := reader.gets()) is not False:
                    if self._waited:
                        self._waited = 0
                    packed = due.popleft()
                    if reply.__class__ is ErrorReply:
                        if reply.code == "NOSCRIPT":
                            if packed is asked or packed.lasting:
                                self.send(packed, packed.with_source(self.identity, self.node))
                            continue
                        reply = reply_error(self.label, reply)
                    if packed.sent_on_other_set and reply == 0:
                        self.tell_crossed(packed)
                    if packed is asked:
                        return reply
                    if packed.request.__class__ is Vote and reply.__class__ in (bytes, list):
                        self.tell_late_vote(packed, reply)
                if len(due) == before:
                    self._waited += len(data)
                    check_size(self._waited)
            except InterlockError:
                raise
            except MALFORMED as error:  # or a reply to no request
                raise protocol_error(self.label, error) from None
            if asked is not None and type(self.sock) is not ssl.SSLSocket and len(data) < READ_BYTES:
                return False

    def tell_crossed(self, packed: Packed) -> None:
        """A release found no claim, perhaps because its vote comes on another connection and is read
        later: it is sent again.
        """
        assert self.transport is not None
        assert packed.request is not None
        self.transport.on_unacknowledged(self.node, packed.request)

    def tell_late_vote(self, packed: Packed, reply: Any) -> None:
        transport = self.transport
        assert transport is not None  # it belongs to a set: a vote was sent on it
        assert isinstance(packed.request, Vote)
        transport.on_late_vote(self.node, packed.request, reply, packed.sent, transport.now())

    def unacknowledged(self) -> list[Vote | Release]:
        """The votes and releases that no reply can answer any more: nobody knows whether the node has read
        them.
        """
        try:
            self.receive(None)
        except InterlockError:
            pass
        return [packed.request for packed in self.due if packed.request is not None]

    @property
    def overdue(self) -> bool:
        """Whether the node has left so much unanswered that it gets no new requests."""
        return len(self.due) > MAX_UNANSWERED

    def alive(self) -> bool:
        """Whether the server has left the connection open; replies that nobody waits for are read on the
        way.
        """
        try:
            self.receive(None)
        except InterlockError:
            return False
        return True

    def close(self) -> None:
        try:
            self.sock.close()
        except OSError:
            pass
        self._connection._sock = None


class ConnectionSet:
    """A connection to each node that can be reached; one thread uses the set at a time."""

    def __init__(self, transport: BlockingQuorumTransport, number: int) -> None:
        self._transport = transport
        self.number = number
        self.connections: list[NodeConnection | None] = [None] * len(transport.labels)
        self._by_fd: dict[int, NodeConnection] = {}  # by file descriptor
        self._polls: dict[int, Any] = {}  # by the bits of the nodes that are left out
        self._late = False  # some node has left too many requests unanswered
        self.broke = False  # whether a connection broke during the last request
        self.used = 0.0
        self.thread = 0  # the thread to which its sockets belong, in a program of greenlets

    def ask(
        self,
        packed: Packed,
        to: Collection[int],
        awaited: Collection[int],
        on_reply: OnReply,
        timeouts: Timeouts,
    ) -> list[int]:
        """Send a request to the nodes `to`; return the awaited ones that did not answer.

        Long because it is one exchange with all nodes, and the hot path: sending and collecting as methods
        of an object takes 5 % more processor time for a pair (15 of 290 us).
        """
        transport, connections = self._transport, self.connections
        now = transport.now
        lost: list[int] = []
        sent = now()
        if sent - self.used > UNCHECKED_S:
            self.drop_closed()
        if None in connections and (missing := [node for node in awaited if connections[node] is None]):
            lost = self._connect(missing, awaited, on_reply, timeouts)
            had, began, sent = len(awaited) - len(missing), sent, now()
            timeouts = timeouts.after(sent - began, had, transport.round_trip(timeouts.least))
        elif timeouts.shortened:
            timeouts = timeouts.after(0.0, len(awaited), transport.round_trip(timeouts.least))
        packed.sent, by_hash, waiting = sent, packed.by_hash, set(awaited)

        # Send. Connections that are behind have replies to earlier requests, which nobody has read. They come
        # first: when one of the other nodes has answered, they have, too, and one wait is enough.
        behind: list[NodeConnection] = []
        if first := [node for node in to if (one := connections[node]) is not None and one.due]:
            to = [*first, *[node for node in to if node not in first]]
        for node in to:
            connection = connections[node]
            if connection is None or (self._late and connection.overdue and not packed.lasting):
                waiting.discard(node)
                self._report(node, packed)
                continue
            due = connection.due
            if due:
                behind.append(connection)
                if len(due) >= MAX_UNANSWERED:
                    self._late = True
            request = by_hash(connection.identity, node)
            due.append(packed)  # as in `NodeConnection.send`, in line: see decision 0037
            try:
                if (gone := connection.sock.send(request)) < len(request):
                    connection.send_rest(request[gone:])
            except (OSError, InterlockError) as failure:
                error = connection.send_error(failure) if isinstance(failure, OSError) else failure
                self._drop(connection)
                behind = [one for one in behind if one is not connection]
                self._report(node, packed)
                if node in waiting:
                    waiting.discard(node)
                    lost.append(node)
                    on_reply(node, error, sent, now())

        # Collect. Old replies would end the wait at once. If they are so few that the round cannot be over
        # before one of the other nodes has answered, only those are waited for; then what is behind is read
        # first, so that no node stays behind.
        until, least, replied = (
            sent + (timeouts.longest if timeouts.least else timeouts.timeout),
            timeouts.least,
            0,
        )
        if behind and len(behind) >= min(least, len(waiting) - least + 1):
            behind = []
        while waiting:
            left = until - now()
            # If the time is up, what has arrived is read all the same: this thread may have had no time to
            # read it.
            ready = self._poll_without(behind).poll(left * 1000 + 1 if left > 0 else 0)
            if not ready and left <= 0 and not behind:
                break
            by_fd = self._by_fd
            for connection in [*behind, *[by_fd[fd] for fd, _ in ready]]:
                node = connection.node
                try:
                    reply = connection.receive(packed)
                except InterlockError as error:
                    self._drop(connection)
                    lost.append(node)
                    reply = error
                if reply is False or node not in waiting:
                    continue
                waiting.discard(node)
                # Not when the poll returned: the node may have read its clock, and answered, since then.
                received = now()
                try:
                    enough = on_reply(node, reply, sent, received)
                except InterlockError:
                    raise
                except MALFORMED as error:
                    self._drop(connection)
                    lost.append(node)
                    reply = unexpected_answer(connection.label, error)
                    enough = on_reply(node, reply, sent, received)
                if enough:
                    self.used = received
                    return [*lost, *self._overdue()] if self._late else lost
                if not isinstance(reply, InterlockError):
                    replied += 1
                    if replied == least:
                        until = sent + timeouts.for_all(received - sent)
            behind = []
        self.used = now()
        return [*lost, *waiting]

    def _report(self, node: int, packed: Packed) -> None:
        """The node does not get this request, or nobody knows whether it does."""
        if packed.request is not None:
            self._transport.on_unacknowledged(node, packed.request)

    def reaches(self, node: int) -> bool:
        return self.connections[node] is not None

    def _poll_without(self, left_out: Sequence[NodeConnection]) -> Any:
        """The poll object for all connections but these; of no use any more once a connection is dropped."""
        without = sum([connection.bit for connection in left_out]) if left_out else 0
        if (kept := self._polls.get(without)) is not None:
            return kept
        made = select.poll()
        for connection in self._by_fd.values():
            if not connection.bit & without:
                made.register(connection.fd, POLLIN)
        if len(self._polls) >= MAX_POLLS:
            self._polls.clear()
        self._polls[without] = made
        return made

    def drop_closed(self) -> None:
        """Drop connections that the servers closed while nobody used them: their nodes do not count as
        away for it.
        """
        for connection in self.connections:
            if connection is not None and not connection.alive():
                self._drop(connection)

    def _connect(
        self, missing: list[int], awaited: Collection[int], on_reply: OnReply, timeouts: Timeouts
    ) -> list[int]:
        """Connect to all of these at once; return the nodes that were not reached in time."""
        attempts, now = self._transport.attempts, self._transport.now
        began = now()
        ended: EndedAttempts = queue.SimpleQueue()
        trying = {node: attempts.begin(node, ended) for node in missing}
        deadline = ConnectDeadline(timeouts, missing, len(awaited), attempts.speed, began)
        lost: list[int] = []
        try:
            while trying:
                connected = len(awaited) - len(trying) - len(lost)
                try:
                    attempt = ended.get(timeout=max(0.0, deadline.until(connected, now()) - now()))
                except queue.Empty:
                    break
                if trying.pop(attempt.node, None) is None:
                    continue  # it was put there twice: see `ConnectAttempt.notify`
                try:
                    self._add(attempt.take())
                except InterlockError as error:
                    lost.append(attempt.node)
                    on_reply(attempt.node, as_unreached(error), began, now())
        finally:  # also when the caller is interrupted
            for attempt in trying.values():
                attempts.leave(attempt)
        for node in trying:
            on_reply(node, as_unreached(self._transport.timeout_error(node, now() - began)), began, now())
        return [*lost, *trying]

    def _add(self, connection: NodeConnection) -> None:
        others = [(other.label, other.identity) for other in self._by_fd.values()]
        try:
            refuse_twice(connection.label, connection.identity, others)
        except InterlockError:
            connection.close()
            raise
        connection.transport = self._transport
        self.connections[connection.node] = self._by_fd[connection.fd] = connection
        self._polls.clear()

    def _overdue(self) -> list[int]:
        """The nodes with too many unanswered requests: from now on they get only releases, and in the end
        nothing.

        They are not dropped at once: a node that comes back from a hang reads its requests in order, and must
        find the release of every claim among them.
        """
        late = [
            connection for connection in self.connections if connection is not None and connection.overdue
        ]
        self._late = bool(late)
        for connection in late:
            if len(connection.due) > 4 * MAX_UNANSWERED:
                self._drop(connection)
        return [connection.node for connection in late]

    def _drop(self, connection: NodeConnection) -> None:
        if self.connections[connection.node] is connection:
            self._polls.clear()
            self.connections[connection.node] = None
            del self._by_fd[connection.fd]
            self.broke = True
        unacknowledged = connection.unacknowledged() if connection.due else ()
        connection.close()
        for request in unacknowledged:
            self._transport.on_unacknowledged(connection.node, request)

    def close(self) -> None:
        for connection in self.connections:
            if connection is not None:
                self._drop(connection)
