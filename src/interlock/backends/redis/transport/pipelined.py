"""One pipelined connection on an event loop: all requests of one turn leave in one send, and replies come
in order.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from interlock._support.inline_resume import InlineResume
from interlock.backends.redis.errors import protocol_error, unreachable
from interlock.backends.redis.transport.pool import DISCARD_UNSENT
from interlock.backends.redis.wire.resp import MALFORMED, check_size, reader
from interlock.errors import InterlockError


class PipelinedConnection(asyncio.Protocol, ABC):
    """Sends requests and parses replies; subclasses decide who gets a reply and who is told of the end."""

    def __init__(self, label: str, loop: asyncio.AbstractEventLoop, connection: Any) -> None:
        self.label = label
        self.loop = loop
        self.usable = True
        self._connection = connection  # kept alive: the library closes a connection that is garbage-collected
        self._transport: asyncio.WriteTransport = connection._writer.transport
        self._transport.set_protocol(self)
        self._reader = reader()
        self._out: list[bytes] = []
        self._waited = 0  # bytes of a reply that is incomplete
        self.inline_resume = InlineResume(loop)

    @abstractmethod
    def _on_replies(self, reply: Any, gets: Callable[[], Any]) -> None:
        """Take the replies that have arrived, in order: this one; `gets` returns the next ones, and False
        after the last.

        Raises IndexError if nobody asked for one.
        """

    @abstractmethod
    def _fail_all(self, error: InterlockError) -> object:
        """Fail all pending requests with this error. Returns something true if there were any."""

    @property
    def ended(self) -> bool:
        """Whether it is closed. A connection that is not usable may still have pending requests."""
        return self._connection._writer is None

    def _send(self, request: bytes, alone: bool) -> None:
        """Send at once if no other request is pending, otherwise together with all requests of this turn
        of the loop.
        """
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
        reader = self._reader
        try:
            reader.feed(data)
            gets = reader.gets
            reply = gets()
            if reply is not False:
                self._waited = 0
                self._on_replies(reply, gets)
            else:
                self._waited += len(data)
                check_size(self._waited)
        except MALFORMED as error:
            self.end(protocol_error(self.label, error))
        except (
            BaseException
        ):  # Ctrl-C, perhaps between a reply and its request: later replies would go to others
            self.end(unreachable(self.label, "the program was interrupted while it read a reply"))
            raise
        self.inline_resume.run()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(unreachable(self.label, exc or "the server closed the connection"))

    def pause_writing(self) -> None:
        """Ignore it: requests are small and have deadlines, so the number of callers bounds the buffer."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def end(self, error: InterlockError) -> None:
        """Close, and fail all pending requests.

        If there were any, reset it, so that none of them arrives later.
        """
        self.usable = False
        if self._fail_all(error):
            self._reset()
        self._transport.abort()  # nothing is left to send, and a TLS goodbye would take time
        self._connection._writer = self._connection._reader = None
        self.inline_resume.run_later()

    def _reset(self) -> None:
        sock = self._transport.get_extra_info("socket")
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, DISCARD_UNSENT)
        except (OSError, AttributeError):
            pass  # it is gone already, or no TCP socket
