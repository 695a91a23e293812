"""Connecting to all nodes at once, for the blocking transport.

An attempt to connect goes on when the request that began it no longer waits, and the next request that needs
this node takes it over. So a distant node costs its time once, and attempts do not pile up. Each attempt runs
on a thread: redis-py looks up the name, connects, negotiates TLS and sends the password, and it can only
block.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from interlock._support import native
from interlock.backends.redis.address import Address
from interlock.backends.redlock.transport.connections import NodeConnection
from interlock.backends.redlock.transport.timeouts import MIN_CONNECT_S, ConnectTimes
from interlock.backends.redlock.wire.packing import Packing
from interlock.errors import ClientClosed, InterlockError, StoreUnavailable

EndedAttempts: TypeAlias = (
    "queue.SimpleQueue[ConnectAttempt]"  # attempts that are over, for the request that waits for them
)


class ConnectAttempt:
    """One blocking connection being made, on a thread of its own; a request that waits for it may leave."""

    def __init__(
        self, node: int, make: Callable[[float], NodeConnection], timeout: float, ended: EndedAttempts | None
    ) -> None:
        self.node = node
        self.over = False
        self._unwanted = False
        self._make = make
        self._made: list[NodeConnection] = []  # until somebody takes it
        self._error: BaseException | None = None
        self._ended = ended
        try:
            native.begin(lambda: self._connect(timeout), self._end)
        except RuntimeError:  # no thread can be started now: connect on this one, and not for long
            self._connect(MIN_CONNECT_S)
            self._end()

    def _connect(self, timeout: float) -> None:
        try:
            self._made.append(self._make(timeout))
        except BaseException as error:
            self._error = error.with_traceback(None)  # it is raised on another thread, perhaps much later

    def _end(self) -> None:
        if self._error is None and not self._made:
            self._error = StoreUnavailable("the thread that was connecting was ended from outside")
        self.over = True
        if self._unwanted:
            self.discard()
        if (ended := self._ended) is not None:
            ended.put(self)

    def notify(self, ended: EndedAttempts | None) -> None:
        """Put the attempt into `ended` when it is over. It may be put there twice."""
        self._ended = ended
        if self.over and ended is not None:
            ended.put(self)

    def take(self) -> NodeConnection:
        """The connection, for the first caller; or raise the error."""
        if self._error is not None:
            raise self._error
        return self._made.pop()

    @property
    def fault(self) -> InterlockError | None:
        """Why there is no connection, once it is over; None if there is one."""
        error = self._error
        return error if error is None or isinstance(error, InterlockError) else InterlockError(repr(error))

    def discard(self) -> None:
        """Close the connection: nobody will take it."""
        self._unwanted = True  # first: the attempt may end at this moment
        while self._made:
            try:
                self._made.pop().close()
            except IndexError:
                return  # another thread has it

    @property
    def usable(self) -> bool:
        """Whether it is under way, or ended in a connection that is still open."""
        if not self.over:
            return True
        try:
            connection = self._made.pop()
        except IndexError:
            return False
        if not connection.alive():
            connection.close()
            return False
        self._made.append(connection)
        return True


class ConnectAttempts:
    """The attempts to connect of one blocking transport."""

    def __init__(self, addresses: Sequence[Address], packing: Packing, now: Callable[[], float]) -> None:
        self._addresses = addresses
        self._packing = packing
        self._now = now
        self.speed = ConnectTimes(len(addresses))
        self._closed = False
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the attempts: their threads run in the parent."""
        self._left: list[list[ConnectAttempt]] = [
            [] for _ in self._addresses
        ]  # by node: attempts that nobody waits for
        self.speed.trying = [None] * len(self._addresses)

    def begin(self, node: int, ended: EndedAttempts | None) -> ConnectAttempt:
        """An attempt at this node: one that another request left, or a new one."""
        while self._left[node]:
            try:
                attempt = self._left[node].pop()
            except IndexError:
                break  # another thread has it
            if attempt.usable:
                attempt.notify(ended)
                return attempt
        self.speed.wanted(node, self._now())
        timeout = self._addresses[node].connect_timeout
        return ConnectAttempt(node, lambda seconds: self._connect_to(node, seconds), timeout, ended)

    def leave(self, attempt: ConnectAttempt) -> None:
        """Stop waiting for an attempt: it goes on for the next request."""
        attempt.notify(None)
        self._left[attempt.node].append(attempt)
        if self._closed:
            self.close()

    def prepare(self, nodes: Iterable[int]) -> None:
        """Begin to connect to these nodes, for the next request."""
        for node in nodes:
            self.leave(self.begin(node, None))

    def spares(self, node: int) -> tuple[bool, InterlockError | None]:
        """Whether an attempt at this node that nobody waits for has succeeded; otherwise why the last one
        failed.
        """
        error: InterlockError | None = None
        for attempt in list(self._left[node]):
            if attempt.over and attempt.fault is None:
                return True, None
            error = attempt.fault
        return False, error

    def _connect_to(self, node: int, timeout: float) -> NodeConnection:
        began = self._now()
        connection = NodeConnection(node, self._addresses[node], timeout)
        try:
            self._packing.refuse_duplicate(connection.label, connection.identity)
            if self._closed:
                raise ClientClosed("this client was closed")
        except InterlockError:
            connection.close()
            raise
        self.speed.connected(node, self._now() - began, connection.round_trip)
        return connection

    def close_spares(self) -> None:
        """Close the connections that no request has taken."""
        for left in self._left:
            for attempt in list(left):
                if attempt.over:
                    attempt.discard()

    def close(self) -> None:
        self._closed = True
        for left in self._left:
            while left:
                try:
                    left.pop().discard()
                except IndexError:
                    break  # another thread has it
