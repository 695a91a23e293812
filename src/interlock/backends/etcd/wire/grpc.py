"""gRPC over HTTP/2: headers, messages with their length before them, and the status in the trailers.

No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from interlock.backends.etcd.wire.http2 import ProtocolError, literal
from interlock.backends.etcd.wire.protobuf import MalformedMessage

OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = 0, 1, 2, 3, 4, 5
PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE = 7, 8, 9, 11
UNIMPLEMENTED, UNAVAILABLE, UNAUTHENTICATED = 12, 14, 16
MAX_MESSAGE_BYTES = 1 << 26  # bytes of one answer: a queue of a hundred thousand claims
MAX_TEXT_CHARACTERS = 1000  # characters of what a server says about an error, and
MAX_CODE_DIGITS = 3  # digits of its number

_OVERLOADED = (b"429", b"502", b"503", b"504")  # what gateways answer for a server that is away or busy

_FIXED = literal(b"content-type", b"application/grpc") + literal(b"te", b"trailers")


def head(method: bytes, authority: bytes, *, tls: bool, metadata: bytes = b"") -> bytes:
    """The headers of a call. `metadata` are more headers, already encoded."""
    scheme = b"\x87" if tls else b"\x86"
    return (
        b"\x83" + scheme + literal(b":path", method) + literal(b":authority", authority) + _FIXED + metadata
    )


def framed(body: bytes) -> bytes:
    """A message as it stands in the data of a stream."""
    return b"\0" + len(body).to_bytes(4, "big") + body


class Status:
    """How a call ended. `processed` is False if the server has certainly not acted on it."""

    __slots__ = ("code", "processed", "text")

    def __init__(self, code: int, text: str = "", processed: bool = True) -> None:
        self.code = code
        self.text = text
        self.processed = processed

    def __repr__(self) -> str:
        return f"<Status {self.code} {self.text!r}>"


_SUCCESS = Status(OK)
_NO_HEADERS: dict[bytes, bytes] = {}


class Call:
    """Receives one call: its messages, then its status. `wake` is called, if it is set, when it has ended."""

    __slots__ = ("_headers", "_rest", "messages", "status", "wake")

    def __init__(self, wake: Callable[[], object] | None = None) -> None:
        self._rest: bytearray | None = None  # a message whose end is not here yet
        self._headers = _NO_HEADERS
        self.messages: list[bytes] = []
        self.status: Status | None = None
        self.wake = wake

    def on_headers(self, headers: dict[bytes, bytes], last: bool) -> None:
        if self._headers:
            if not last:
                raise ProtocolError("headers follow upon headers")
            headers = {**self._headers, **headers}
        self._headers = headers
        http = headers.get(b":status", b"200")
        if http in _OVERLOADED:
            self._end(
                Status(UNAVAILABLE, f"HTTP status {http.decode()}: a gateway before it reaches no server")
            )
        elif http != b"200" or not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            self._end(
                Status(UNIMPLEMENTED, f"HTTP status {http[:20].decode('ascii', 'replace')}, and no gRPC")
            )
        elif last:
            code, said = headers.get(b"grpc-status", b"2"), headers.get(b"grpc-message", b"")
            if code == b"0" and not said:
                self._end(_SUCCESS)
            else:
                text = unquote_to_bytes(said).decode("utf-8", "replace")[:MAX_TEXT_CHARACTERS]
                number = int(code) if code.isdigit() and len(code) <= MAX_CODE_DIGITS else UNKNOWN
                self._end(Status(number, text))

    def on_data(self, data: bytes, last: bool) -> None:
        rest = self._rest
        body: bytes | bytearray = data
        if rest is not None:
            rest += data
            body = rest
        at, after, end = 0, 0, len(body)
        while end - at >= 5 and (after := at + 5 + int.from_bytes(body[at + 1 : at + 5], "big")) <= end:
            if body[at]:
                self._end(Status(UNIMPLEMENTED, "the answer is compressed, which was not asked for"))
                return
            self.on_message(bytes(body[at + 5 : after]))
            at = after
        if end - at >= 5 and after - at > MAX_MESSAGE_BYTES:
            raise MalformedMessage(f"it has {after - at} bytes")
        if at or rest is None:
            self._rest = bytearray(body[at:]) if at < end else None
        if last:
            self._end(Status(UNAVAILABLE, "the answer ended without a status"))

    def on_message(self, message: bytes) -> None:
        if self.messages:
            raise MalformedMessage("a second one follows upon the only one")
        self.messages.append(message)

    def on_failure(self, why: str, processed: bool) -> None:
        self._end(Status(UNAVAILABLE, why, processed))

    def _end(self, status: Status) -> None:
        if self.status is None:
            self.status = status
            if self.wake is not None:
                self.wake()
