"""A server that greets like etcd and then answers whatever a test wants, broken or not at all."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from hpack import Decoder

from interlock.backends.etcd.wire import messages
from interlock.backends.etcd.wire.grpc import framed
from interlock.backends.etcd.wire.http2 import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    SETTINGS,
    frame,
    literal,
)
from interlock.backends.etcd.wire.messages import Method
from interlock.backends.etcd.wire.protobuf import message

MEMBER, TERM = 7, 2
HEADER = message((1, 5), (2, MEMBER), (3, 9), (4, TERM))
STATUS_ANSWER = message((1, HEADER), (2, b"3.5.30"), (4, MEMBER))
RESPONSE = b"\x88" + literal(b"content-type", b"application/grpc")
TRAILERS = literal(b"grpc-status", b"0")

Answer = Callable[[Method, int], bytes]
"""The bytes that are sent for a call of this method on this stream."""


def answered(stream: int, body: bytes) -> bytes:
    """A good answer with this message."""
    return begun(stream) + frame(DATA, 0, stream, framed(body)) + ended(stream)


def begun(stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS, stream, RESPONSE)


def ended(stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, TRAILERS)


class Rogue:
    """Says that it leads; other calls are answered by `answer`."""

    def __init__(self, answer: Answer, *, greets: bool = True) -> None:
        self._answer, self._greets = answer, greets
        self.connections = 0
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, options: str = "connect_timeout=1") -> str:
        return f"etcd://127.0.0.1:{self.port}?{options}"

    def _accept(self) -> None:
        while True:
            try:
                came, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(came)
            threading.Thread(target=self._serve, args=(came,), daemon=True).start()

    def _serve(self, came: socket.socket) -> None:
        with suppress(OSError, EOFError), came:
            _exactly(came, len(PREFACE))
            came.sendall(frame(SETTINGS, 0, 0))
            decoder = Decoder()
            while True:
                first, flags, stream = struct.unpack(">IBI", _exactly(came, 9))
                kind, payload = first & 0xFF, _exactly(came, first >> 8)
                if kind == SETTINGS and not flags & ACK:
                    came.sendall(frame(SETTINGS, ACK, 0))
                elif kind == PING and not flags & ACK:
                    came.sendall(frame(PING, ACK, 0, payload))
                elif kind == HEADERS:
                    path = dict(decoder.decode(payload, raw=True))[b":path"]
                    greeting = self._greets and path == messages.STATUS
                    came.sendall(answered(stream, STATUS_ANSWER) if greeting else self._answer(path, stream))

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for sock in self._open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := sock.recv(size - len(data))):
            raise EOFError
        data += more
    return data


@contextmanager
def rogue(answer: Answer, *, greets: bool = True) -> Iterator[Rogue]:
    server = Rogue(answer, greets=greets)
    try:
        yield server
    finally:
        server.close()
