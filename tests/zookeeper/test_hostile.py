"""A server that begins a session like ZooKeeper and then answers nonsense: callers get errors of ours, and little memory is taken."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

import interlock
from interlock import aio
from interlock.backends.zookeeper.wire import MAX_REPLY_BYTES, Wire
from interlock.errors import InterlockError

SESSION = struct.pack(">iiqi16s?", 0, 20_000, 7, 16, b"p" * 16, False)
PING, PONG_XID = 11, -2
Answer = Callable[[int, int], bytes]
"""The bytes that are sent for a request with this xid and of this type."""


def packet(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(xid: int, error: int = 0) -> bytes:
    return struct.pack(">iqi", xid, 5, error)


class Rogue:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._open: list[socket.socket] = []
        self.sent = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"zookeeper://127.0.0.1:{self._listening.getsockname()[1]}?connect_timeout=1"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                came, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(came)
            threading.Thread(target=self._serve, args=(came,), daemon=True).start()

    def _serve(self, came: socket.socket) -> None:
        with suppress(OSError, EOFError), came:
            _packet(came)
            came.sendall(packet(SESSION))
            while True:
                xid, kind = struct.unpack_from(">ii", _packet(came))
                if kind == PING:
                    came.sendall(packet(header(PONG_XID)))
                    continue
                came.sendall(self._answer(xid, kind))

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for sock in self._open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _packet(sock: socket.socket) -> bytes:
    return _exactly(sock, int(struct.unpack(">i", _exactly(sock, 4))[0]))


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := sock.recv(size - len(data))):
            raise EOFError
        data += more
    return data


@contextmanager
def rogue(answer: Answer) -> Iterator[Rogue]:
    server = Rogue(answer)
    try:
        yield server
    finally:
        server.close()


def garbage(xid: int, kind: int) -> bytes:
    return packet(header(xid) + b"\xff" * 9)


def empty(xid: int, kind: int) -> bytes:
    return packet(header(xid))


def headless(xid: int, kind: int) -> bytes:
    return packet(b"\0")


def negative(xid: int, kind: int) -> bytes:
    return struct.pack(">i", -5)


def too_long(xid: int, kind: int) -> bytes:
    return struct.pack(">i", 2**31 - 1) + header(xid) + b"x" * 100_000


def another(xid: int, kind: int) -> bytes:
    return packet(header(xid + 17) + b"\0" * 100)


def unasked(xid: int, kind: int) -> bytes:
    return packet(header(xid) + b"\0" * 100) * 3


def strange_error(xid: int, kind: int) -> bytes:
    return packet(header(xid, -7777))


def strange_event(xid: int, kind: int) -> bytes:
    return packet(header(-1) + b"\xff" * 20)


def zeros(xid: int, kind: int) -> bytes:
    return packet(header(xid) + b"\0" * 200)


def many_children(xid: int, kind: int) -> bytes:
    return packet(header(xid) + struct.pack(">i", 2**31 - 1) + b"\xff" * 4000)


def bad_text(xid: int, kind: int) -> bytes:
    return packet(header(xid) + struct.pack(">i", 1) + struct.pack(">i", 4) + b"\xff\xfe\n\x1b" + b"\0" * 200)


NONSENSE = [
    garbage,
    empty,
    headless,
    negative,
    too_long,
    another,
    unasked,
    strange_error,
    strange_event,
    zeros,
    many_children,
    bad_text,
]

CALLS: dict[str, Callable[[interlock.Client], object]] = {
    "acquire": lambda client: client.lock("x").acquire(timeout=1.0),
    "try": lambda client: client.lock("x").acquire(blocking=False),
    "semaphore": lambda client: client.semaphore("x", 3).acquire(timeout=1.0),
    "inspect": lambda client: client.inspect("x"),
    "scan": lambda client: list(client.scan("")),
    "evict": lambda client: client.evict("x", reason="y"),
    "register": lambda client: client.register("x").read(),
    "write": lambda client: client.register("x").compare_and_set(0, "y"),
}


@pytest.mark.parametrize("answer", NONSENSE)
@pytest.mark.parametrize("call", CALLS)
def test_a_caller_gets_an_error_of_ours(answer: Answer, call: str) -> None:
    with rogue(answer) as server, interlock.connect(server.url, ttl=20) as client:
        with suppress(InterlockError):  # of Python's errors, none
            CALLS[call](client)


@pytest.mark.parametrize("answer", NONSENSE)
def test_a_task_gets_an_error_of_ours(answer: Answer) -> None:
    async def main(url: str) -> None:
        async with aio.connect(url, ttl=20) as client:
            with suppress(InterlockError):
                await client.lock("x").acquire(timeout=1.0)
            with suppress(InterlockError):
                await client.register("x").read()

    with rogue(answer) as server:
        asyncio.run(main(server.url))


def test_a_long_reply_is_refused_before_it_is_here() -> None:
    """A length of 2 GB was believed."""
    near, far = socket.socketpair()
    with near, far:
        wire = Wire(near)
        far.sendall(packet(SESSION) + struct.pack(">i", MAX_REPLY_BYTES + 1) + b"x" * 100)
        wire.recv(4)
        wire.recv(len(SESSION))
        size = int(struct.unpack(">i", wire.recv(4))[0])
        with pytest.raises(ConnectionAbortedError):
            wire.recv(size)
