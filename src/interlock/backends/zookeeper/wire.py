"""Sockets as kazoo's connection uses them, of the system and not of greenlets, with one call of the system
for each reply.

kazoo asks before each read and write whether the socket is ready, and reads the length of a reply and the
reply itself apart: that is three times a new epoll, and two reads. Here a write is tried first, a read takes
all that is there, and `ready` knows of it.
"""

from __future__ import annotations

import _socket
import select
import socket
import ssl
import sys
from collections.abc import Callable, Collection, Sequence, Sized
from contextlib import suppress
from importlib import import_module
from math import ceil
from typing import Any

from interlock._support import clock, native, standard_streams
from interlock.backends.kit import resolver

POLL: Any = getattr(select, "poll", None)  # not on Windows

READ_BYTES = 65536  # bytes that are read at once
LENGTH_BYTES = 4  # bytes before each reply that say how long it is
MAX_GREETING_BYTES = 1024  # bytes of the reply that begins a session, at most; it has about 40
MAX_REPLY_BYTES = 1 << 26  # bytes of any other one: a list of half a million claims


class Wire:
    """A connection to a server. It does not block; `select` below waits for it."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._read = b""  # from the server, of which kazoo has taken so much:
        self._taken = 0
        self.full = False  # the last write did not fit
        self._greeting = b""  # the beginning of the first reply
        self.other_product = False  # the first reply is too long for any that ZooKeeper gives
        self.fileno, self.close, self.detach = sock.fileno, sock.close, sock.detach
        self.setblocking, self.shutdown, self.getpeername = sock.setblocking, sock.shutdown, sock.getpeername

    def pending(self) -> int:
        """Bytes that can be had without the network."""
        left = len(self._read) - self._taken
        if not left and isinstance(self._sock, ssl.SSLSocket):
            left = self._sock.pending()
        return left

    def recv(self, most: int) -> bytes:
        """The bytes that have come, at most so many: the rest of a reply whose length was read before."""
        if most > MAX_REPLY_BYTES:
            raise ConnectionAbortedError(f"the server announces a reply of {most} bytes")
        if self._taken == len(self._read):
            self._read, self._taken = self._sock.recv(max(most, READ_BYTES)), 0
            if len(self._greeting) < LENGTH_BYTES:
                self._greeted()
        start = self._taken
        self._taken = min(start + most, len(self._read))
        return self._read[start : self._taken]

    def _greeted(self) -> None:
        """Hang up on a server of another product: what it says would be taken for the length of a reply,
        of a gigabyte or more.
        """
        self._greeting += self._read[: LENGTH_BYTES - len(self._greeting)]
        if len(self._greeting) == LENGTH_BYTES and int.from_bytes(self._greeting, "big") > MAX_GREETING_BYTES:
            self.other_product = True
            raise ConnectionAbortedError("the server does not speak the protocol of ZooKeeper")

    def send(self, data: Any) -> int:
        try:
            sent: int = self._sock.send(data)
            return sent
        except (BlockingIOError, ssl.SSLWantWriteError):
            self.full = True
            raise ssl.SSLWantWriteError(ssl.SSL_ERROR_WANT_WRITE, "full") from None  # for which kazoo waits


class Waker:
    """Both ends of what wakes kazoo's loop when a request is to be sent.

    kazoo sends itself one byte for each request over a pair of sockets, and reads one for each that it has
    sent. A few hundred fill such a pair, and the loop, which sends requests too, would then wait for itself.
    Here the queue tells what is left to be sent, and a byte that does not fit is not needed. Nor is it while
    the loop is awake, for it looks at the queue before it sleeps; each byte costs the caller a turn of the
    interpreter, which a crowd of callers and the loop contend for. No caller remembers anything: an interrupt
    may strike it at any step.
    """

    def __init__(self, requests: Callable[[], Sized]) -> None:
        self._requests = requests  # that are to be sent
        # Of the system, whatever gevent has put before it; on Windows only `socket` has it.
        standard_streams.occupy()
        self._near: Any
        self._far: Any
        self._near, self._far = getattr(_socket, "socketpair", socket.socketpair)()
        for end in (self._near, self._far):
            end.setblocking(False)
        self.fileno = self._near.fileno
        self.asleep = (
            False  # the loop sleeps, or is about to look at the queue for the last time before it does
        )

    def pending(self) -> int:
        return len(self._requests())

    def send(self, _: bytes) -> int:
        """Wake the loop; called after the request was put into the queue."""
        if self.asleep:
            with suppress(BlockingIOError):
                self._far.send(b"\0")
        return 1

    def recv(self, _: int) -> bytes:
        return b"\0"

    def heard(self) -> None:
        """The loop is awake, and looks at the queue after this: in the other order it would sleep through
        what comes between.
        """
        with suppress(BlockingIOError):
            self._near.recv(READ_BYTES)

    def close(self) -> None:
        self._near.close()
        self._far.close()


def ready(
    readers: Sequence[Any],
    writers: Sequence[Any],
    _: Sequence[Any],
    timeout: float | None = None,
    poller: Any = POLL,
) -> tuple[list[Any], list[Any], list[Any]]:
    """Do for kazoo what `select.select` does: return the connections that can be read from, and those that
    can be written to.

    It waits until there is one, for at most `timeout` seconds.

    Requests that are to be sent do not keep replies waiting: the server would stop reading if nobody read
    from it.
    """
    writable = [one for one in writers if not one.full]
    if writable or any(isinstance(one, Wire) and one.pending() for one in readers):
        return [one for one in readers if one.pending()], writable, []
    if any(one.fileno() < 0 for one in (*readers, *writers)):
        raise OSError("the socket is closed")
    until = None if timeout is None else clock.now() + timeout
    wakers = [one for one in readers if isinstance(one, Waker)]
    while True:
        for one in wakers:
            one.asleep = True  # before the look at the queue: whoever comes later wakes it
        left = None if until is None else max(0.0, until - clock.now())
        if any(one.pending() for one in readers):
            left = 0.0
        found = _wait(readers, writers, left, poller)
        for one in wakers:
            one.asleep = False
            if one.fileno() in found:
                one.heard()
        readable = [one for one in readers if one.pending() or _has_come(one, found)]
        writable = [one for one in writers if one.fileno() in found]
        for one in writable:
            one.full = False
        # Not if the loop was only woken for what it has sent already: kazoo would take that for the end of
        # its timeout for the server.
        if readable or writable or not found:
            return readable, writable, []


def _wait(
    readers: Sequence[Any], writers: Sequence[Any], timeout: float | None, poller: Any
) -> Collection[int]:
    """The descriptors that are ready.

    `select` cannot wait for those above 1023, but Windows has no `poll`.
    """
    if poller is None:
        ready, full, _ = select.select(readers, writers, (), timeout)
        return {one.fileno() for one in (*ready, *full)}
    poll = poller()
    for wanted, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
        for one in wanted:
            poll.register(one.fileno(), event)
    return dict(poll.poll(None if timeout is None else ceil(timeout * 1000)))


def _has_come(one: Any, found: Collection[int]) -> bool:
    """Whether a socket has something to read; what wakes the loop has nothing but the queue."""
    return not isinstance(one, Waker) and one.fileno() in found


def addresses(host: str, port: int, timeout: float) -> list[tuple[str, int]]:
    """The addresses and ports behind a name, found by the system's own lookup; `TimeoutError` if it takes
    longer.

    gevent's would make an event loop and a pool of threads for the thread of the connection. Such a loop
    outlives the client by some milliseconds, and if the interpreter ends meanwhile, the process crashes: the
    system unwinds the thread, and greenlet drops objects of Python on the way.
    """
    find = original("socket", "getaddrinfo")
    if resolver.named(host):
        found = resolver.addresses_of_system(host, port, timeout, find)
    else:
        found = find(host, port, type=socket.SOCK_STREAM)
    return [(address[0], address[1]) for *_, address in found]


def connection(address: tuple[str, int], timeout: float) -> Any:
    """A connected socket, which blocks for at most so many seconds at a time."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    standard_streams.occupy()
    made = original("socket", "socket")(family, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout)
        made.connect(address)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    except BaseException:
        made.close()
        raise
    return made


def original(module: str, name: str, *otherwise: Any) -> Any:
    """The attribute of a module under this name, before greenlets were put in its place; `otherwise` if it
    has no such name.
    """
    library = native.green(module)
    if library == "gevent":
        return sys.modules["gevent.monkey"].get_original(module, name)
    found = sys.modules["eventlet.patcher"].original(module) if library else import_module(module)
    return getattr(found, name, *otherwise)
