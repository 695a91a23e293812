"""The blocking leaf: a socket for each request under way, kept for the next.

A reply has a deadline, kept by the kernel where it can: that costs one system call when the deadline changes and
none otherwise. A connection on which anything went wrong is closed: what comes late must not answer another.
"""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import threading
import time
from typing import Any

from interlock.backends.redis.address import Route
from interlock.backends.redis.refusal import garbled, silent, since, unreachable
from interlock.backends.redis.resp import Garbled, reader
from interlock.errors import ClientClosed, StoreUnavailable, Unreached

MOST = 16  # connections at once: more threads than these take turns
IDLE = 1.0  # seconds after which a connection that others do without is closed
FRESH = 0.5  # seconds of idleness after which a connection is looked at before it is used
CHUNK = 16384
USUAL = 256  # bytes of most replies: a large buffer costs more to get than it saves
KERNEL = sys.platform.startswith("linux") and struct.calcsize("l") == 8  # SO_RCVTIMEO as we write it


class Broken(StoreUnavailable):
    """The connection ended before the reply: nobody knows whether the request was applied."""


class Wire:
    """One connection. Used by one thread at a time."""

    __slots__ = ("_connection", "_kernel", "_place", "_reader", "_sock", "_timeout", "used")

    def __init__(self, address: Route, timeout: float) -> None:
        self._connection: Any = address.connect(timeout)  # kept: the library closes what is forgotten
        self._sock: Any = self._connection._sock
        self._place = address.place
        self._reader = reader()
        self._timeout = -1.0
        self._kernel = KERNEL and not isinstance(self._sock, ssl.SSLSocket)
        if self._kernel:
            self._sock.settimeout(None)
        self.used = 0.0

    def ask(self, request: bytes, timeout: float, replies: int, now: float) -> Any:
        """The reply to one request; a list of them when it holds several commands."""
        sock = self._sock
        if timeout != self._timeout:
            self._patience(timeout)
        try:
            sock.sendall(request)
            data = sock.recv(USUAL)
            if replies == 1 and data[:1] == b":" and data[-2:] == b"\r\n":  # a number: what most replies are
                self.used = now
                return int(data[1:-2])
            return self._read(data, now + timeout, replies)
        except (BlockingIOError, TimeoutError):
            raise silent(self._place, timeout) from None
        except (OSError, EOFError) as error:
            raise Broken(str(unreachable(self._place, error))) from None
        except (Garbled, ValueError) as error:
            raise garbled(self._place, error) from None

    def _read(self, data: bytes, until: float, replies: int) -> Any:
        got: list[Any] = []
        while True:
            if not data:
                raise EOFError("the server closed the connection")
            self._reader.feed(data)
            while len(got) < replies and (reply := self._reader.gets()) is not False:
                got.append(reply)
            self.used = now = time.monotonic()
            if len(got) == replies:
                return got[0] if replies == 1 else got
            if now >= until:
                raise TimeoutError
            self._patience(until - now)
            data = self._sock.recv(CHUNK)

    def bound(self, timeout: float) -> None:
        """No read or write takes longer than that from now on."""
        self._patience(timeout)

    def send(self, request: bytes) -> None:
        self._sock.sendall(request)

    def receive(self, timeout: float) -> list[Any]:
        """The replies that have come, after waiting for the first; none when nothing came in time."""
        if timeout != self._timeout:
            self._patience(timeout)
        try:
            data = self._sock.recv(CHUNK)
        except (BlockingIOError, TimeoutError):
            return []
        return self._parsed(data)

    def received(self) -> list[Any]:
        """The replies that have come, without waiting; only where the kernel keeps the deadlines."""
        try:
            data = self._sock.recv(CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        return self._parsed(data)

    def _parsed(self, data: bytes) -> list[Any]:
        if not data:
            raise EOFError("the server closed the connection")
        self._reader.feed(data)
        got: list[Any] = []
        while (reply := self._reader.gets()) is not False:
            got.append(reply)
        return got

    def fileno(self) -> int:
        return int(self._sock.fileno())

    @property
    def polls(self) -> bool:
        """Whether what has come can be seen from outside, and be taken without waiting."""
        return self._kernel

    def _patience(self, timeout: float) -> None:
        self._timeout = timeout
        timeout = max(0.001, timeout)
        if self._kernel:
            seconds = int(timeout)
            packed = struct.pack("ll", seconds, int((timeout - seconds) * 1e6))
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, packed)
        else:
            self._sock.settimeout(timeout)

    def alive(self) -> bool:
        """Whether the server has not closed it, and nothing unasked for has come."""
        if not self._kernel:
            return False  # a new one is simpler than looking through TLS
        try:
            self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def hang_up(self) -> None:
        """End a read that another thread is blocked in."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is gone already

    def close(self) -> None:
        try:
            self._sock.close()
        except OSError:
            pass
        self._connection._sock = None


class Pool:
    """Connections to one server, the last used first; bounded, and fewer again once they are idle."""

    def __init__(self, address: Route) -> None:
        self.address = address
        self._closed = False
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's sockets: the library closes them here without a word to the server."""
        self._idle: list[Wire] = []
        self._open = 0
        self._waiting = 0
        self._change = threading.Condition(threading.Lock())

    async def ask(self, request: bytes, timeout: float, replies: int = 1, again: bool = True) -> Any:
        """The reply. A kept connection that proves dead is replaced once, where `again` asking is harmless."""
        try:
            wire = self._idle.pop()
        except IndexError:
            return self._ask_slowly(request, timeout, replies)
        now = time.monotonic()
        if now - wire.used > FRESH and not wire.alive():
            self._drop(wire)
            return await self.ask(request, timeout, replies, again)
        try:
            reply = wire.ask(request, timeout, replies, now)
        except Broken as lost:
            self._drop(wire)
            self._drain()  # the others are as old
            if not again:
                raise
            try:
                return self._ask_slowly(request, max(0.001, now + timeout - time.monotonic()), replies)
            except Unreached as error:
                raise since(lost, error) from None
        except BaseException:  # interrupted, too: what comes late must not answer another
            self._drop(wire)
            raise
        idle = self._idle
        idle.append(wire)
        if self._waiting or len(idle) > 1 or self._closed:
            self._tidy(wire)
        return reply

    def _ask_slowly(self, request: bytes, timeout: float, replies: int) -> Any:
        """On a new connection, or on one that another thread gives back."""
        until = time.monotonic() + timeout
        wire = self._next(until)
        try:
            now = time.monotonic()
            reply = wire.ask(request, max(0.001, until - now), replies, now)
        except BaseException:
            self._drop(wire)
            raise
        self._idle.append(wire)
        self._tidy(wire)
        return reply

    def _next(self, until: float) -> Wire:
        with self._change:
            self._waiting += 1  # before the look: who gives back after it sees that we wait
            try:
                while not self._idle and self._open >= MOST and not self._closed:
                    if not self._change.wait(max(0.0, until - time.monotonic())):
                        raise StoreUnavailable(
                            f"{self.address.place}: all {MOST} connections are waiting for it"
                        )
            finally:
                self._waiting -= 1
            if self._closed:
                raise ClientClosed("this client was closed")
            if self._idle:
                return self._idle.pop()
            self._open += 1
        try:
            return Wire(self.address, max(0.001, until - time.monotonic()))
        except StoreUnavailable as error:
            self._gone()
            raise Unreached(str(error)) from None
        except BaseException:
            self._gone()
            raise

    def _tidy(self, wire: Wire) -> None:
        """This one was given back: wake who waits for one, close what nobody needs."""
        idle = self._idle
        if self._closed:
            self._drain()
        elif self._waiting:
            with self._change:
                self._change.notify()
        elif len(idle) > 1:
            try:
                if wire.used - idle[0].used > IDLE:
                    self._drop(idle.pop(0))
            except IndexError:
                pass  # other threads have taken all: nothing is idle

    def _drop(self, wire: Wire) -> None:
        wire.close()
        self._gone()

    def _gone(self) -> None:
        with self._change:
            self._open -= 1
            self._change.notify()

    def _drain(self) -> None:
        while self._idle:
            try:
                self._drop(self._idle.pop())
            except IndexError:
                return

    async def close(self) -> None:
        self._closed = True
        self._drain()
        with self._change:
            self._change.notify_all()
