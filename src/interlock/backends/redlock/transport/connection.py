"""One blocking connection to one node: requests go out at once, replies are taken when they are there."""

from __future__ import annotations

import select
import ssl
import time
from collections import deque
from typing import Any

from interlock.backends.redis.address import Address
from interlock.backends.redis.errors import garbled, silent, unreachable
from interlock.backends.redis.wire.resp import Failure, Garbled, reader
from interlock.backends.redlock.wire.packing import INTRODUCTION, INTRODUCTIONS, Packed, introduced
from interlock.backends.redlock.wire.requests import Release, Vote
from interlock.errors import InterlockError

CHUNK = 2048  # replies are small, and a large buffer costs more to get
EMPTY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Line:
    """One connection to one node."""

    __slots__ = ("_connection", "_reader", "due", "fd", "node", "place", "sock", "trip", "words")

    def __init__(self, node: int, address: Address, timeout: float) -> None:
        self.node = node
        self.place = address.place
        until = time.monotonic() + timeout
        self._connection: Any = address.connect(timeout)  # kept: the library closes what is forgotten
        self.sock: Any = self._connection._sock
        self._reader = reader()
        self.due: deque[Packed] = deque()  # what will be answered; only the last of them is waited for
        try:
            began = time.monotonic()
            self.words = self._introduced(timeout, until)
            self.trip = time.monotonic() - began  # seconds: one round trip, and little else
            self.sock.setblocking(False)
        except BaseException:
            self.close()
            raise
        self.fd: int = self.sock.fileno()

    def _introduced(self, timeout: float, until: float) -> tuple[bytes, bytes, bytes]:
        replies: list[Any] = []
        try:
            self.sock.settimeout(max(0.001, until - time.monotonic()))
            self.sock.sendall(INTRODUCTION)
            while len(replies) < INTRODUCTIONS:
                # For each read anew: a server that sends a byte at a time must not take longer than all may.
                self.sock.settimeout(max(0.001, until - time.monotonic()))
                self._feed(self.sock.recv(CHUNK))
                while (reply := self._reader.gets()) is not False:
                    replies.append(reply)
        except TimeoutError:
            raise silent(self.place, timeout) from None
        except OSError as error:
            raise unreachable(self.place, error) from None
        return introduced(self.place, replies)

    def _feed(self, data: bytes) -> None:
        if not data:
            raise unreachable(self.place, "the server closed the connection")
        try:
            self._reader.feed(data)
        except Garbled as error:
            raise garbled(self.place, error) from None

    def send(self, packed: Packed, request: bytes) -> int:
        """Hand it to the kernel; how many replies are due now. Only a node that has long read nothing makes it wait, and then not for long."""
        self.due.append(packed)  # first: who is interrupted after the send must know that a reply will come
        try:
            gone = self.sock.send(request)
            while gone < len(request):
                if not select.select([], [self.sock], [], 0.05)[1]:
                    raise silent(self.place, 0.05)
                gone += self.sock.send(request[gone:])
        except EMPTY:
            raise silent(self.place, 0.0) from None
        except OSError as error:
            raise unreachable(self.place, error) from None
        return len(self.due)

    def receive(self, asked: Packed | None) -> Any:
        """The reply to what was asked last; False while it has not come. What came for earlier requests is dropped.

        Asked for nothing, it reads to the end: only behind the last reply stands whether the server has closed.
        """
        gets, popleft = self._reader.gets, self.due.popleft
        while True:
            try:
                data = self.sock.recv(CHUNK)
            except EMPTY:
                return False
            except OSError as error:
                raise unreachable(self.place, error) from None
            if not data:
                raise unreachable(self.place, "the server closed the connection")
            try:
                self._reader.feed(data)
                while (reply := gets()) is not False:
                    packed = popleft()
                    if reply.__class__ is Failure and reply.code == "NOSCRIPT":
                        if packed is asked or packed.lasting:
                            self.send(packed, packed.whole(self.words))
                    elif packed is asked:
                        return reply
            except (Garbled, IndexError) as error:  # or a reply that nobody asked for
                raise garbled(self.place, error) from None
            if asked is not None and type(self.sock) is not ssl.SSLSocket and len(data) < CHUNK:
                return False

    def unread(self) -> list[Vote | Release]:
        """The votes and releases without an answer, now that none can come: nobody knows whether the node has read them."""
        try:
            self.receive(None)
        except InterlockError:
            pass
        return [packed.request for packed in self.due if packed.request is not None]

    def alive(self) -> bool:
        """Whether the server has not closed it; replies nobody waits for are read on the way."""
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
