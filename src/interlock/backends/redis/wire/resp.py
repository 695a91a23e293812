"""The part of RESP2 that a lock needs: requests as bytes; replies as bytes, ints, lists, None and
`ErrorReply`.

A server may be broken or hostile, so a reply has bounds: its bytes, the items of one array, and how deep
arrays nest. Whatever cannot be a reply is a `ProtocolError`, and whoever decodes a reply catches `MALFORMED`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

MAX_REPLY_BYTES = 64 * 2**20  # bytes of one reply: the queue of a lock with 100,000 waiters
MAX_ITEMS = 1_000_000  # items of one array
MAX_DEPTH = 32  # arrays within arrays; ours nest four deep
MAX_LINE_BYTES = 65536  # bytes of a number, a status or an error


class ErrorReply(Exception):
    """An error reply; `code` is its first word, such as NOSCRIPT."""

    @property
    def text(self) -> str:
        return str(self.args[0]) if self.args else ""

    @property
    def code(self) -> str:
        return self.text.partition(" ")[0]


class ProtocolError(Exception):
    """The data is not RESP, so the connection cannot be trusted any more."""


# How code fails that takes apart a reply of another shape than the one it asked for.
MALFORMED = (
    ProtocolError,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    RecursionError,
)


class Reader(Protocol):
    """Takes bytes as they arrive; returns replies, or False while the next one is incomplete.

    Take `gets` anew after each `feed`. Both raise one of `MALFORMED` if the bytes are no reply.
    """

    def feed(self, data: bytes, /) -> object: ...
    @property
    def gets(self) -> Callable[[], Any]: ...


def check_size(size: int) -> None:
    """Refuse a reply of which so many bytes have arrived, without its end.

    Called when the reader waits for more bytes.
    """
    if size > MAX_REPLY_BYTES:
        raise ProtocolError(f"a reply has more than {MAX_REPLY_BYTES // 2**20} MiB")


def bulk(part: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(part), part)


def command(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join([bulk(part) for part in parts])


def message_parts(reply: Any) -> list[Any]:
    """The parts of what comes on a subscription: its kind, its channel, and the rest."""
    if (
        reply.__class__ is not list
        or len(reply) < 2
        or not all(part.__class__ is bytes for part in reply[:2])
    ):
        raise ProtocolError("not a message of a subscription")
    parts: list[Any] = reply
    return parts


class PlainReader:
    """The reader for programs without hiredis."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0  # how much of the data is parsed
        self._chunks: list[bytes] = []  # what came after it
        self._size = 0  # bytes in the chunks
        self._missing = 0  # bytes without which it is not worth looking: a long string comes in many chunks
        self._open: list[
            tuple[list[Any], int]
        ] = []  # arrays that are incomplete, and how many items each has

    def feed(self, data: bytes, /) -> None:
        self._chunks.append(data)
        self._size += len(data)

    def gets(self) -> Any:
        if self._size < self._missing:
            return False
        if self._chunks:
            self._data = b"".join([self._data[self._at :], *self._chunks])
            self._at = self._size = self._missing = 0
            self._chunks.clear()
        while (item := self._next()) is not _WAITS:
            if item is _OPENED:
                continue
            while self._open:
                items, length = self._open[-1]
                items.append(item)
                if len(items) < length:
                    break
                self._open.pop()
                item = items
            else:
                return item
        return False

    def _next(self) -> Any:
        """The next item that is no array with items; such an array is opened."""
        data, start = self._data, self._at
        end = data.find(b"\r\n", start)
        if end < 0 or end - start > MAX_LINE_BYTES:
            if len(data) - start > MAX_LINE_BYTES:
                raise ProtocolError(f"a line has more than {MAX_LINE_BYTES} bytes")
            return _WAITS
        kind, line, after = data[start : start + 1], data[start + 1 : end], end + 2
        if kind == b"$":
            return self._string(_number(line, MAX_REPLY_BYTES), after)
        self._at = after
        if kind == b":":
            return _number(line)
        if kind == b"*":
            return self._array(_number(line, MAX_ITEMS))
        if kind == b"+":
            return line
        if kind == b"-":
            return ErrorReply(line.decode(errors="replace"))
        raise ProtocolError(f"not a reply of Redis: {data[start : start + 40]!r}")

    def _string(self, length: int, start: int) -> Any:
        if length < 0:
            self._at = start
            return None
        end = start + length + 2
        if len(self._data) < end:
            self._missing = end - len(self._data)
            return _WAITS
        self._at = end
        return self._data[start : end - 2]

    def _array(self, length: int) -> Any:
        if length <= 0:
            return None if length < 0 else []
        if len(self._open) >= MAX_DEPTH:
            raise ProtocolError(f"arrays are nested more than {MAX_DEPTH} deep")
        self._open.append(([], length))
        return _OPENED


_WAITS, _OPENED = object(), object()
_NUMBER = re.compile(rb"-?[0-9]{1,19}")


def _number(line: bytes, most: int | None = None) -> int:
    """The number of a line: of a `:` line any that has 64 bits, otherwise a length, which is -1 for
    nothing.
    """
    number = int(line) if _NUMBER.fullmatch(line) else None
    if number is None or (not -1 <= number <= most if most is not None else not -(2**63) <= number < 2**63):
        raise ProtocolError(f"not a number that a reply can have: {line[:40]!r}")
    return number


class HiredisReader:
    """The reader of hiredis, which makes a list as soon as it has read its length, however long.

    A list of 10**9 items costs no memory before its items come, but to free it stops the whole process for
    seconds. So bytes that look like the head of a long array are looked at before hiredis parses them: within
    a string they are text. hiredis has bytes in its buffer exactly if it is within an item, and bounds by
    itself how deep arrays nest.
    """

    __slots__ = ("_feed", "_held", "_owed", "_parsed", "_reader", "gets")

    def __init__(self, made: Any) -> None:
        self._reader = made
        self._feed: Callable[[bytes], object] = made.feed
        self._held = b""  # the beginning of such a head, whose rest is in the next chunk
        self._owed = 0  # items of a long array that may still be missing
        self._parsed: deque[Any] = deque()  # replies before such a head, which nobody has got yet
        # Of hiredis itself, as a rule: a call of ours for each reply would be felt.
        self.gets: Callable[[], Any] = made.gets

    def feed(self, data: bytes, /) -> None:
        # Numbers and most strings have none of these bytes, and a search for long arrays would take three
        # times as long.
        if len(data.translate(None, HEADS)) != len(data) or self._held or self._owed:
            data = self._checked(data)
        self._feed(data)

    def _checked(self, data: bytes) -> bytes:
        """The data, of which hiredis has parsed the beginning; without the beginning of a head that is
        incomplete.
        """
        if not self._held and not self._owed and LONG_ARRAY.search(data) is None:
            return data
        self._owed = max(0, self._owed - len(data) // MIN_ITEM_BYTES)
        data, self._held, done = self._held + data, b"", 0
        for found in LONG_ARRAY.finditer(data):
            at, length = found.start(), found[1]
            if found.end() == len(data) and len(length) < MAX_LENGTH_DIGITS:
                self._held = data[at:]
                return data[done:at]
            self._feed(data[done:at])
            self._drain()
            done = at
            if not self._reader.has_data():
                if self._owed or len(length) > MAX_LENGTH_DIGITS or int(length) > MAX_ITEMS:
                    raise ProtocolError(f"an array of {length[:40].decode()} items")
                self._owed = int(length)
        return data[done:]

    def _drain(self) -> None:
        while (reply := self._reader.gets()) is not False:
            self._parsed.append(reply)
        if self._parsed:
            self.gets = self._next

    def _next(self) -> Any:
        """The next of the replies that were parsed early; after the last of them hiredis is asked again."""
        if self._parsed:
            return self._parsed.popleft()
        self.gets = self._reader.gets
        return self.gets()


# An array, and RESP3's push, set and attribute: hiredis makes lists of them as well.
LONG_ARRAY = re.compile(rb"[*>~|]([0-9]{6,}|[0-9]{0,5}\Z)")
HEADS = b"*>~|"
MAX_LENGTH_DIGITS = 8  # so many are always more than MAX_ITEMS
MIN_ITEM_BYTES = 3  # bytes of the shortest item


def _find_reader() -> Any:
    try:
        hiredis = import_module("hiredis")
    except ImportError:
        return PlainReader
    return lambda: HiredisReader(hiredis.Reader(protocolError=ProtocolError, replyError=ErrorReply))


_make: Any = None


def reader() -> Reader:
    """A new reader: with hiredis if it is installed."""
    global _make
    if _make is None:
        _make = _find_reader()
    made: Reader = _make()
    return made
