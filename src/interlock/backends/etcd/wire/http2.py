"""HTTP/2 as a client of gRPC needs it: frames in, frames out, no sockets (RFC 9113; HPACK is the library's).

A `Connection` is fed with what arrived, calls the receivers of its streams, and gathers in `take()` what is to be sent. It
answers SETTINGS and PING, keeps to the peer's windows, frame sizes and number of streams, opens its own windows again,
joins CONTINUATION frames, and knows after GOAWAY or RST_STREAM whether a request may have been processed. It sends headers
without compression, and allows none for those that it receives, so a header block has no state to lose.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

from interlock.errors import Unsupported

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    *(0, 1, 3, 4, 5, 6, 7, 8, 9),
)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 3, 4, 5
REFUSED_STREAM, CANCEL = 7, 8
WINDOW = 1 << 30  # what we let the peer send: answers are small, and are never held up
DEFAULT_WINDOW = 65535
LAST_STREAM = (1 << 31) - 3  # a connection that has used up its numbers is replaced
LONGEST_HEADERS = 1 << 20  # bytes of one block of headers
KNOWN_HEADERS, KNOWN_SIZE = 64, 512  # so many blocks of headers, of so many bytes, are decoded once


class ProtocolError(Exception):
    """The peer does not speak HTTP/2, or not correctly."""


class Receiver(Protocol):
    """Gets what arrives on one stream."""

    def on_headers(self, headers: dict[bytes, bytes], last: bool) -> None: ...
    def on_data(self, data: bytes, last: bool) -> None: ...
    def on_failure(self, why: str, processed: bool) -> None:
        """The stream has ended without an answer; `processed` is False if the peer has certainly not acted on it."""
        ...


class Stream:
    """One request and its answer."""

    __slots__ = ("closing", "head", "id", "receiver", "unsent", "window")

    def __init__(self, receiver: Receiver, head: bytes) -> None:
        self.id = 0  # until it is started: the peer may allow only so many at the same time
        self.receiver = receiver
        self.head = head
        self.unsent = bytearray()
        self.closing = False  # nothing is sent after `unsent`
        self.window: int = 0


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
    return b"%b%c%c%b%b" % (len(payload).to_bytes(3, "big"), kind, flags, stream.to_bytes(4, "big"), payload)


def _setting(payload: bytes, at: int) -> tuple[int, int]:
    name, value = struct.unpack_from(">HI", payload, at)
    return int(name), int(value)


def _decoder() -> tuple[Any, type[Exception]]:
    try:
        hpack = import_module("hpack")
    except ImportError:
        raise Unsupported(
            "etcd needs the package hpack, which is not installed: pip install 'interlock[etcd]'"
        ) from None
    return hpack.Decoder(), hpack.HPACKError


class Connection:
    """One connection, as its client sees it. Not thread-safe: the transports guard it."""

    def __init__(self) -> None:
        self._decoder, self._hpack_error = _decoder()
        settings = struct.pack(">HIHIHI", HEADER_TABLE_SIZE, 0, ENABLE_PUSH, 0, INITIAL_WINDOW_SIZE, WINDOW)
        self._out = bytearray(PREFACE + frame(SETTINGS, 0, 0, settings))
        self._out += frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW - DEFAULT_WINDOW))
        self._known_headers: dict[bytes, dict[bytes, bytes]] = {}
        self._rest = bytearray()
        self._next = 1
        self._streams: dict[int, Stream] = {}
        self._backlog: deque[Stream] = deque()  # not started: the peer allows no more streams now
        self._most_streams = 1 << 31
        self._first_window = DEFAULT_WINDOW
        self._window: int = DEFAULT_WINDOW  # what we may send on all streams together
        self._frame_size = 16384
        self._consumed = 0
        self._consumed_by: dict[int, int] = {}
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
        return len(self._streams) + len(self._backlog)

    def request(self, head: bytes, data: bytes, receiver: Receiver, *, last: bool = True) -> Stream:
        """Begin a stream with these headers and this data; more follows by `send` unless it is the `last`."""
        stream = Stream(receiver, head)
        stream.unsent += data
        stream.closing = last
        if len(self._streams) >= self._most_streams or self._backlog:
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
            if stream in self._backlog:
                self._backlog.remove(stream)
        elif stream.id in self._streams:
            self._out += frame(RST_STREAM, 0, stream.id, struct.pack(">I", CANCEL))
            self._forget(stream)

    def ping(self) -> None:
        self.pings += 1
        self._out += frame(PING, 0, 0, b"interlck")

    @property
    def has_output(self) -> bool:
        return bool(self._out)

    def take(self) -> bytes:
        """What must be sent now; it is handed out once."""
        out, self._out = bytes(self._out), bytearray()
        return out

    def fail(self, why: str) -> None:
        """The connection is lost: so are all streams. Those that were never started were never processed."""
        self.draining = True
        streams, self._streams = list(self._streams.values()), {}
        waiting, self._backlog = list(self._backlog), deque()
        for stream in streams:
            stream.receiver.on_failure(why, True)
        for stream in waiting:
            stream.receiver.on_failure(why, False)

    def _start(self, stream: Stream) -> None:
        stream.id, self._next = self._next, self._next + 2
        if self._next > LAST_STREAM:
            self.draining = True
        stream.window = self._first_window
        self._streams[stream.id] = stream
        head, size = stream.head, self._frame_size
        flags = END_HEADERS if len(head) <= size else 0
        self._out += frame(HEADERS, flags, stream.id, head[:size])
        for start in range(size, len(head), size):
            flags = END_HEADERS if start + size >= len(head) else 0
            self._out += frame(CONTINUATION, flags, stream.id, head[start : start + size])
        self._push(stream)

    def _push(self, stream: Stream) -> None:
        """Send as much of a stream's data as the windows allow."""
        while stream.unsent:
            size = min(len(stream.unsent), self._frame_size, stream.window, self._window)
            if size <= 0:
                return
            part = bytes(stream.unsent[:size])
            del stream.unsent[:size]
            stream.window -= size
            self._window -= size
            over = stream.closing and not stream.unsent
            self._out += frame(DATA, END_STREAM if over else 0, stream.id, part)

    def _forget(self, stream: Stream) -> None:
        self._streams.pop(stream.id, None)
        self._consumed_by.pop(stream.id, None)
        while self._backlog and not self.draining and len(self._streams) < self._most_streams:
            self._start(self._backlog.popleft())

    # ---- what arrives ------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Take in what has arrived; `ProtocolError` if it is no HTTP/2."""
        rest = self._rest
        rest += data
        at, end = 0, len(rest)
        while end - at >= 9:
            size = int.from_bytes(rest[at : at + 3], "big")
            if size > 16384:  # we never allow more; another protocol looks like this
                raise ProtocolError(f"a frame of {size} bytes")
            if end - at < 9 + size:
                break
            kind, flags = rest[at + 3], rest[at + 4]
            stream = int.from_bytes(rest[at + 5 : at + 9], "big") & 0x7FFFFFFF
            payload = bytes(rest[at + 9 : at + 9 + size])
            at += 9 + size
            self._dispatch(kind, flags, stream, payload)
        del rest[:at]

    def _dispatch(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if not self._greeted and kind != SETTINGS:
            raise ProtocolError("the first frame is no SETTINGS")
        if self._block is not None and kind != CONTINUATION:
            raise ProtocolError("headers are not continued")
        handler = self._on_frame.get(kind)
        if handler is not None:  # frames of other kinds are to be ignored
            try:
                handler(flags, stream, payload)
            except (IndexError, struct.error):
                raise ProtocolError(f"a frame of kind {kind} is too short") from None

    def _on_data(self, flags: int, stream: int, payload: bytes) -> None:
        self._consume(stream, len(payload))
        if flags & PADDED:
            payload = payload[1 : len(payload) - payload[0]]
        found = self._streams.get(stream)
        if found is None:
            return  # given up meanwhile
        last = bool(flags & END_STREAM)
        if last:
            self._forget(found)
        found.receiver.on_data(payload, last)

    def _consume(self, stream: int, size: int) -> None:
        """Count what we received, and open the windows again before they are used up."""
        self._consumed += size
        if self._consumed >= WINDOW // 2:
            self._out += frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._consumed))
            self._consumed = 0
        if stream in self._streams:
            consumed = self._consumed_by.get(stream, 0) + size
            if consumed >= WINDOW // 2:  # a watch may be open for months
                self._out += frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", consumed))
                consumed = 0
            self._consumed_by[stream] = consumed

    def _on_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if flags & PADDED:
            payload = payload[1 : len(payload) - payload[0]]
        if flags & PRIORITY:
            payload = payload[5:]
        self._block = (stream, flags, bytearray(payload))
        if flags & END_HEADERS:
            self._end_headers()

    def _on_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != stream:
            raise ProtocolError("a CONTINUATION of nothing")
        self._block[2].extend(payload)
        if len(self._block[2]) > LONGEST_HEADERS:
            raise ProtocolError("headers without an end")
        if flags & END_HEADERS:
            self._end_headers()

    def _end_headers(self) -> None:
        assert self._block is not None
        (stream, flags, block), self._block = self._block, None
        headers = self._decoded(
            bytes(block)
        )  # also for streams that nobody waits for: the decoder has a state
        found = self._streams.get(stream)
        if found is None:
            return
        last = bool(flags & END_STREAM)
        if last:
            self._forget(found)
        found.receiver.on_headers(headers, last)

    def _decoded(self, block: bytes) -> dict[bytes, bytes]:
        """The headers of a block. All answers have nearly the same, and without a table to refer to, equal blocks mean the same."""
        stateless = self._decoder.header_table_size == 0
        if stateless and (known := self._known_headers.get(block)) is not None:
            return known
        try:
            headers: dict[bytes, bytes] = dict(self._decoder.decode(block, raw=True))
        except self._hpack_error as error:
            raise ProtocolError(f"headers cannot be decoded: {error}") from None
        short = len(block) <= KNOWN_SIZE and len(self._known_headers) < KNOWN_HEADERS
        if short and stateless and self._decoder.header_table_size == 0:
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
                self._frame_size = value
            elif name == INITIAL_WINDOW_SIZE:
                for found in self._streams.values():
                    found.window += value - self._first_window
                self._first_window = value
        self._out += frame(SETTINGS, ACK, 0)
        self._resume()

    def _on_push(self, flags: int, stream: int, payload: bytes) -> None:
        raise ProtocolError("a PUSH_PROMISE, which we did not allow")

    def _on_ping(self, flags: int, stream: int, payload: bytes) -> None:
        if flags & ACK:
            self.pings = 0
        else:
            self._out += frame(PING, ACK, 0, payload)

    def _on_goaway(self, flags: int, stream: int, payload: bytes) -> None:
        last, code = struct.unpack_from(">II", payload)
        self.draining = True
        why = f"the server closes the connection (code {code}) {payload[8:].decode('ascii', 'replace')}".rstrip()
        for found in [found for number, found in self._streams.items() if number > last & 0x7FFFFFFF]:
            self._forget(found)
            found.receiver.on_failure(why, False)
        while self._backlog:
            self._backlog.popleft().receiver.on_failure(why, False)

    def _on_window(self, flags: int, stream: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ProtocolError("a WINDOW_UPDATE of another size")
        more = int.from_bytes(payload, "big") & 0x7FFFFFFF
        if stream == 0:
            self._window += more
        elif (found := self._streams.get(stream)) is not None:
            found.window += more
        self._resume()

    def _resume(self) -> None:
        """Go on sending what waited for a window, and begin what waited for a stream."""
        for found in list(self._streams.values()):
            if found.unsent:
                self._push(found)
        while self._backlog and not self.draining and len(self._streams) < self._most_streams:
            self._start(self._backlog.popleft())
