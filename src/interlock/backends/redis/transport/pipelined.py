"""One connection on one event loop: what many ask in one turn of it leaves in one send, replies come in that order."""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from typing import Any

from interlock.backends.redis.errors import protocol_error, unreachable
from interlock.backends.redis.transport.pool import AT_ONCE
from interlock.backends.redis.wire.resp import ProtocolError, reader
from interlock.errors import InterlockError


class PipelinedConnection(asyncio.Protocol, ABC):
    """Sends and parses; who gets a reply, and who is told of the end, is for those made of it."""

    def __init__(self, place: str, loop: asyncio.AbstractEventLoop, connection: Any) -> None:
        self.place = place
        self.loop = loop
        self.usable = True
        self._connection = connection  # kept: the library closes what is forgotten
        self._transport: asyncio.WriteTransport = connection._writer.transport
        self._transport.set_protocol(self)
        self._reader = reader()
        self._out: list[bytes] = []

    @abstractmethod
    def _on_reply(self, reply: Any) -> None:
        """A reply, the next in order; IndexError if nobody asked for it."""

    @abstractmethod
    def _fail_all(self, error: InterlockError) -> object:
        """Nobody will get an answer any more. Says whether anything was asked that is not answered."""

    @property
    def ended(self) -> bool:
        """Whether it is closed; one that is not usable may still be waited on."""
        return self._connection._writer is None

    def _send(self, request: bytes, alone: bool) -> None:
        """Send at once where nobody else waits for a reply; otherwise with all that this turn of the loop asks."""
        if alone:
            self._transport.write(request)
            return
        if not self._out:
            self.loop.call_soon(self._flush)
        self._out.append(request)

    def _flush(self) -> None:
        out = self._out
        if out and self.usable:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        out.clear()

    def data_received(self, data: bytes) -> None:
        take, gets = self._on_reply, self._reader.gets
        try:
            self._reader.feed(data)
            while (reply := gets()) is not False:
                take(reply)
        except (ProtocolError, IndexError) as error:
            self.end(protocol_error(self.place, error))

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(unreachable(self.place, exc or "the server closed the connection"))

    def pause_writing(self) -> None:
        """Requests are small and each has its deadline: the buffer is bounded by who waits."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def end(self, error: InterlockError) -> None:
        """Close, and tell everybody who waits. What was asked and not answered must not arrive later: it is reset."""
        self.usable = False
        if self._fail_all(error):
            self._reset()
        self._transport.abort()  # nothing is left to send, and TLS would take its time to say goodbye
        self._connection._writer = self._connection._reader = None

    def _reset(self) -> None:
        sock = self._transport.get_extra_info("socket")
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        except (OSError, AttributeError):
            pass  # it is gone already, or of another kind
