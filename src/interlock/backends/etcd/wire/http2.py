"""HTTP/2 as a client of gRPC needs it: frames in, frames out, no sockets (RFC 9113; HPACK is the library's).

A `Connection` is fed with what arrived, calls the receivers of its streams, and gathers in `take()` what is
to be sent. It answers SETTINGS and PING, keeps to the peer's windows, frame sizes and number of streams,
opens its own windows again, joins CONTINUATION frames, and knows after GOAWAY or RST_STREAM whether a request
may have been processed. It sends headers without compression, and allows none for those that it receives, so
a header block has no state to lose.

etcd sends a PING with nearly every request, to measure the connection. The answers can wait for the next
request: then they cost no send of their own.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from interlock.backends.kit.libraries import missing

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    *(0, 1, 3, 4, 5, 6, 7, 8, 9),
)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 3, 4, 5
REFUSED_STREAM, CANCEL = 7, 8
WINDOW_BYTES = 1 << 30  # what we let the peer send: answers are small, and are never held up
DEFAULT_WINDOW_BYTES = 65535
LAST_STREAM = (1 << 31) - 3  # a connection that has used up its numbers is replaced
MAX_HEADERS_BYTES = 1 << 17  # bytes of one block of headers
MAX_PONGS_BYTES = 1 << 17  # bytes of answers to pings that wait to be sent
MAX_REASON_CHARACTERS = 200  # characters of what the peer says when it closes the connection
SMALLEST_FRAME, LARGEST_SIZE = 16384, (1 << 24) - 1  # what a peer may allow as the size of a frame
MAX_WINDOW_BYTES = (1 << 31) - 1
# With so many requests under way, further low-priority ones wait here, not at the server.
MAX_STREAMS_BEFORE_QUEUE = 16
KNOWN_HEADERS, KNOWN_SIZE = 64, 512  # so many blocks of headers, of so many bytes, are decoded once
MAX_FRAME_BYTES = 16384  # that we allow
START = struct.Struct(">IBI")
"""The start of a frame: three bytes of its size and one of its kind, then flags, then the stream."""


class ProtocolError(Exception):
    """The peer does not speak HTTP/2, or not correctly."""


class Receiver(Protocol):
    """Gets what arrives on one stream."""

    def on_headers(self, headers: dict[bytes, bytes], last: bool) -> None: ...
    def on_data(self, data: bytes, last: bool) -> None: ...
    def on_failure(self, why: str, processed: bool) -> None:
        """The stream has ended without an answer; `processed` is False if the peer has certainly not acted
        on it.
        """
        ...


class Stream:
    """One request and its answer."""

    __slots__ = ("closing", "consumed", "head", "id", "receiver", "unsent", "window")

    def __init__(self, receiver: Receiver, head: bytes, data: bytes, closing: bool) -> None:
        self.id = 0  # until it is started: the peer may allow only so many at the same time
        self.receiver = receiver
        self.head = head
        self.unsent = data
        self.closing = closing  # nothing is sent after `unsent`
        self.window: int = 0
        self.consumed = 0  # bytes received since its window was last opened


def literal(name: bytes, value: bytes) -> bytes:
    """One header, not compressed and not to be remembered."""
    return b"\0" + _length(len(name)) + name + _length(len(value)) + value


def _length(number: int) -> bytes:
    """An integer of HPACK with a prefix of seven bits."""
    if number < 127:
        return bytes((number,))
    out, number = bytearray((127,)), number - 127
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return START.pack(len(payload) << 8 | kind, flags, stream) + payload


def _setting(payload: bytes, at: int) -> tuple[int, int]:
    name, value = struct.unpack_from(">HI", payload, at)
    return int(name), int(value)


def _unpadded(payload: bytes) -> bytes:
    end = len(payload) - payload[0]
    if end < 1:
        raise ProtocolError("a frame has more padding than bytes")
    return payload[1:end]


def _decoder() -> tuple[Any, type[Exception]]:
    try:
        hpack = import_module("hpack")
    except ImportError:
        raise missing("etcd", "hpack", "etcd", "hpack") from None
    for name in ("hpack.hpack", "hpack.table"):
        logging.getLogger(name).addFilter(_not_ours)  # adding it again changes nothing
    return hpack.Decoder(), hpack.HPACKError


class _Decoding(threading.local):
    """Whether this thread decodes headers for us right now."""

    now = False


_decoding = _Decoding()


def _not_ours(record: logging.LogRecord) -> bool:
    """At the level DEBUG the library logs several lines for each answer.

    Those of other programs that use it are theirs to want.
    """
    return not _decoding.now


class Connection:
    """One connection, as its client sees it. Not thread-safe: the transports guard it."""

    def __init__(self) -> None:
        self._decoder, self._hpack_error = _decoder()
        settings = struct.pack(
            ">HIHIHI", HEADER_TABLE_SIZE, 0, ENABLE_PUSH, 0, INITIAL_WINDOW_SIZE, WINDOW_BYTES
        )
        # What is to be sent at once, and answers to pings, which are to be sent soon.
        self.out = bytearray(PREFACE + frame(SETTINGS, 0, 0, settings))
        self.out += frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW_BYTES - DEFAULT_WINDOW_BYTES))
        self.pongs = b""
        self._stateless = False  # whether the peer refers to nothing that it has sent before
        self._known_headers: dict[bytes, dict[bytes, bytes]] = {}  # empty unless it is stateless
        self._rest = b""
        self._next = 1
        self._streams: dict[int, Stream] = {}
        self._backlog: deque[Stream] = deque()  # not started: the peer allows no more streams now
        # Not started: so many are under way that others must come first.
        self._low_priority: deque[Stream] = deque()
        self._most_streams = 1 << 31
        self._first_window = DEFAULT_WINDOW_BYTES
        self._window: int = DEFAULT_WINDOW_BYTES  # what we may send on all streams together
        self._frame_size = 16384
        self._consumed = 0
        self._held_up = False  # whether a stream may have data that no window allows
        self._block: tuple[int, int, bytearray] | None = (
            None  # stream, flags, headers whose end is not here yet
        )
        self._greeted = False
        self.draining = False  # the peer accepts no new streams: the connection is to be replaced
        self.pings = 0  # unanswered ones of ours
        self._on_frame: dict[int, Callable[[int, int, bytes], None]] = {
            DATA: self._on_data,
            HEADERS: self._on_headers,
            RST_STREAM: self._on_reset,
            SETTINGS: self._on_settings,
            PUSH_PROMISE: self._on_push,
            PING: self._on_ping,
            GOAWAY: self._on_goaway,
            WINDOW_UPDATE: self._on_window,
            CONTINUATION: self._on_continuation,
        }

    # ---- what we send ------------------------------------------------------------------

    @property
    def streams(self) -> int:
        """How many requests are under way or wait for their turn."""
        return len(self._streams) + len(self._backlog) + len(self._low_priority)

    def request(
        self, head: bytes, data: bytes, receiver: Receiver, *, last: bool = True, low_priority: bool = False
    ) -> Stream:
        """Begin a stream with these headers and this data; more follows by `send` unless it is the `last`.

        A `low_priority` one waits while many are under way, and all others come before it.
        """
        stream = Stream(receiver, head, data, last)
        if low_priority and len(self._streams) >= MAX_STREAMS_BEFORE_QUEUE:
            self._low_priority.append(stream)
        elif len(self._streams) >= self._most_streams or self._backlog:
            self._backlog.append(stream)
        else:
            self._start(stream)
        return stream

    def send(self, stream: Stream, data: bytes) -> None:
        stream.unsent += data
        if stream.id:
            self._push(stream)

    def reset(self, stream: Stream) -> None:
        """Give a stream up: its receiver hears no more."""
        if not stream.id:
            for waiting in (self._backlog, self._low_priority):
                if stream in waiting:
                    waiting.remove(stream)
        elif stream.id in self._streams:
            self.out += frame(RST_STREAM, 0, stream.id, struct.pack(">I", CANCEL))
            self._forget(stream)

    def ping(self) -> None:
        self.pings += 1
        self.out += frame(PING, 0, 0, b"interlck")

    def take(self) -> bytes:
        """The bytes that must be sent now; they are handed out once.

        The answers to pings come last: etcd sends the next ping with the first request after the answer.
        """
        out = bytes(self.out)
        if out:
            self.out = bytearray()
        if self.pongs:
            out += self.pongs
            self.pongs = b""
        return out

    def fail(self, why: str) -> None:
        """The connection is lost: so are all streams. Those that were never started were never processed."""
        self.draining = True
        streams, self._streams = list(self._streams.values()), {}
        waiting = [*self._backlog, *self._low_priority]
        self._backlog, self._low_priority = deque(), deque()
        for stream in streams:
            stream.receiver.on_failure(why, True)
        for stream in waiting:
            stream.receiver.on_failure(why, False)

    def _start(self, stream: Stream) -> None:
        number = stream.id = self._next
        self._next += 2
        if self._next > LAST_STREAM:
            self.draining = True
        stream.window = self._first_window
        self._streams[number] = stream
        head, size = stream.head, self._frame_size
        if len(head) <= size:
            self.out += START.pack(len(head) << 8 | HEADERS, END_HEADERS, number) + head
        else:
            self.out += frame(HEADERS, 0, number, head[:size])
            for start in range(size, len(head), size):
                flags = END_HEADERS if start + size >= len(head) else 0
                self.out += frame(CONTINUATION, flags, number, head[start : start + size])
        self._push(stream)

    def _push(self, stream: Stream) -> None:
        """Send as much of a stream's data as the windows allow."""
        data, at = stream.unsent, 0
        while at < len(data):
            size = min(len(data) - at, self._frame_size, stream.window, self._window)
            if size <= 0:
                self._held_up = True
                break
            stream.window -= size
            self._window -= size
            flags = END_STREAM if stream.closing and at + size == len(data) else 0
            self.out += START.pack(size << 8 | DATA, flags, stream.id) + data[at : at + size]
            at += size
        stream.unsent = data[at:]

    def _forget(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)
        if self._backlog or self._low_priority:
            self._begin_waiting()

    def _begin_waiting(self) -> None:
        """Begin streams that waited for their turn."""
        while self._backlog and not self.draining and len(self._streams) < self._most_streams:
            self._start(self._backlog.popleft())
        most = min(MAX_STREAMS_BEFORE_QUEUE, self._most_streams)
        while self._low_priority and not self._backlog and not self.draining and len(self._streams) < most:
            self._start(self._low_priority.popleft())

    # ---- what arrives ------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take in what has arrived; `ProtocolError` if it is no HTTP/2."""
        if self._rest:
            data = self._rest + data
        at, end, kind = 0, len(data), 0
        try:
            while end - at >= 9:
                first, flags, stream = START.unpack_from(data, at)
                size, kind = first >> 8, first & 0xFF
                if size > MAX_FRAME_BYTES:  # another protocol looks like this
                    raise ProtocolError(f"a frame of {size} bytes")
                start, at = at + 9, at + 9 + size
                if at > end:
                    at = start - 9
                    break
                if not self._greeted and kind != SETTINGS:
                    raise ProtocolError("the first frame is no SETTINGS")
                if self._block is not None and kind != CONTINUATION:
                    raise ProtocolError("headers are not continued")
                handler = self._on_frame.get(kind)
                if handler is not None:  # frames of other kinds are to be ignored
                    handler(flags, stream & 0x7FFFFFFF, data[start:at])
        except (IndexError, struct.error):
            raise ProtocolError(f"a frame of kind {kind} is too short") from None
        self._rest = data[at:]

    def _on_data(self, flags: int, stream: int, payload: bytes) -> None:
        size, found = len(payload), self._streams.get(stream)
        self._consumed += size
        if self._consumed >= WINDOW_BYTES // 2:  # before the window is used up
            self.out += frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._consumed))
            self._consumed = 0
        if found is None:
            return  # given up meanwhile
        if flags & PADDED:
            payload = _unpadded(payload)
        if flags & END_STREAM:
            self._forget(found)
            found.receiver.on_data(payload, True)
            return
        found.consumed += size
        if found.consumed >= WINDOW_BYTES // 2:  # a watch may be open for months
            self.out += frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", found.consumed))
            found.consumed = 0
        found.receiver.on_data(payload, False)

    def _on_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if flags & PADDED:
            payload = _unpadded(payload)
        if flags & PRIORITY:
            payload = payload[5:]
        if flags & END_HEADERS:
            self._take_headers(stream, flags, payload)
        else:
            self._block = (stream, flags, bytearray(payload))

    def _on_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != stream:
            raise ProtocolError("a CONTINUATION of nothing")
        self._block[2].extend(payload)
        if len(self._block[2]) > MAX_HEADERS_BYTES:
            raise ProtocolError("headers without an end")
        if flags & END_HEADERS:
            (_, begun, block), self._block = self._block, None
            self._take_headers(stream, begun, bytes(block))

    def _take_headers(self, stream: int, flags: int, block: bytes) -> None:
        # Also for streams that nobody waits for: the decoder has a state.
        headers = self._known_headers.get(block)
        if headers is None:
            headers = self._decoded(block)
        found = self._streams.get(stream)
        if found is None:
            return
        last = bool(flags & END_STREAM)
        if last:
            self._forget(found)
        found.receiver.on_headers(headers, last)

    def _decoded(self, block: bytes) -> dict[bytes, bytes]:
        """The headers of a block.

        All answers have nearly the same, and without a table to refer to, equal blocks mean the same.
        """
        _decoding.now = True
        try:
            headers: dict[bytes, bytes] = dict(self._decoder.decode(block, raw=True))
        except self._hpack_error as error:
            raise ProtocolError(f"headers cannot be decoded: {error}") from None
        finally:
            _decoding.now = False
        before, self._stateless = self._stateless, self._decoder.header_table_size == 0
        if not self._stateless:
            self._known_headers.clear()
        elif before and len(block) <= KNOWN_SIZE and len(self._known_headers) < KNOWN_HEADERS:
            self._known_headers[block] = headers
        return headers

    def _on_reset(self, flags: int, stream: int, payload: bytes) -> None:
        (code,) = struct.unpack(">I", payload)
        found = self._streams.get(stream)
        if found is not None:
            self._forget(found)
            found.receiver.on_failure(f"the server reset the stream (code {code})", code != REFUSED_STREAM)

    def _on_settings(self, flags: int, stream: int, payload: bytes) -> None:
        if flags & ACK:
            return
        self._greeted = True
        for at in range(0, len(payload), 6):
            name, value = _setting(payload, at)
            if name == MAX_CONCURRENT_STREAMS:
                self._most_streams = value
            elif name == MAX_FRAME_SIZE:
                if not SMALLEST_FRAME <= value <= LARGEST_SIZE:
                    raise ProtocolError(f"frames of {value} bytes are asked for")
                self._frame_size = value
            elif name == INITIAL_WINDOW_SIZE:
                if value > MAX_WINDOW_BYTES:
                    raise ProtocolError(f"a window of {value} bytes")
                for found in self._streams.values():
                    found.window += value - self._first_window
                self._first_window = value
        self.out += frame(SETTINGS, ACK, 0)
        self._resume()

    def _on_push(self, flags: int, stream: int, payload: bytes) -> None:
        raise ProtocolError("a PUSH_PROMISE, which we did not allow")

    def _on_ping(self, flags: int, stream: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise ProtocolError("a PING of another size")
        if flags & ACK:
            self.pings = 0
            return
        if len(self.pongs) > MAX_PONGS_BYTES:
            raise ProtocolError("pings without an end")
        self.pongs += frame(PING, ACK, 0, payload)

    def _on_goaway(self, flags: int, stream: int, payload: bytes) -> None:
        last, code = struct.unpack_from(">II", payload)
        self.draining = True
        reason = payload[8 : 8 + MAX_REASON_CHARACTERS].decode("ascii", "replace")
        why = f"the server closes the connection (code {code}) {reason}".rstrip()
        for found in [found for number, found in self._streams.items() if number > last & 0x7FFFFFFF]:
            self._forget(found)
            found.receiver.on_failure(why, False)
        for waiting in (self._backlog, self._low_priority):
            while waiting:
                waiting.popleft().receiver.on_failure(why, False)

    def _on_window(self, flags: int, stream: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ProtocolError("a WINDOW_UPDATE of another size")
        more = int.from_bytes(payload, "big") & 0x7FFFFFFF
        if stream == 0:
            self._window += more
        elif (found := self._streams.get(stream)) is not None:
            found.window += more
        if self._held_up or self._backlog:
            self._resume()

    def _resume(self) -> None:
        """Go on sending what waited for a window, and begin what waited for a stream."""
        self._held_up = False
        for found in list(self._streams.values()):
            if found.unsent:
                self._push(found)
        self._begin_waiting()
